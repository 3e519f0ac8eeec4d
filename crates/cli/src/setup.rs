//! From the command line to a store that is ready: configuration first, then the schema.

use std::sync::Arc;

use posthaste_core::{
    OutboxName,
    event::Limits,
    port::{SchemaState, Store},
    redact::redact_url,
};

use crate::{
    args::{Place, Several, Single},
    config::{self, Config},
    exit::{Fault, say},
    registry::{self, StoreSettings},
};

/// The configuration, and the database it is about.
pub struct Setup {
    /// The whole configuration.
    pub config: Config,
    url: String,
}

/// What to do about a database without the schema.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum IfEmpty {
    /// Refuse.
    Refuse,
    /// Make it, where a database of this kind is made by its first use and holds nothing.
    Make,
}

impl Setup {
    /// Reads and checks everything that can be checked before anything connects.
    pub fn read(place: &Place) -> Result<Setup, Fault> {
        let config = config::load(place.config.as_deref()).map_err(Fault::usage)?;
        for warning in &config.warnings {
            say(&format!("warning: {warning}"));
        }
        let url = place.store.clone().or_else(|| config.store.clone()).ok_or_else(|| {
            Fault::usage("no store is given").hint("give --store URL, set POSTHASTE_STORE, or `store` in --config")
        })?;
        Ok(Setup { config, url })
    }

    /// What an event must keep to.
    pub fn limits(&self) -> Limits {
        Limits { max_body: usize::try_from(self.config.outbox.max_body).unwrap_or(usize::MAX) }
    }

    /// The outbox called `name`. Connects to nothing.
    ///
    /// # Errors
    /// The URL is wrong, or names a database that ends with this command.
    pub fn store(&self, name: &OutboxName) -> Result<Arc<dyn Store>, Fault> {
        if registry::ends_with_the_process(&self.url) {
            let error = format!("{}: a database in memory starts empty and is lost when the command ends", self.url);
            return Err(Fault::usage(error).hint("name a file: --store sqlite:app.db"));
        }
        self.unchecked(name)
    }

    /// The SQL that makes the outbox called `name`. Connects to nothing.
    pub fn sql(&self, name: &OutboxName) -> Result<String, Fault> {
        Ok(self.unchecked(name)?.sql())
    }

    fn unchecked(&self, name: &OutboxName) -> Result<Arc<dyn Store>, Fault> {
        let settings = StoreSettings { retention: self.config.outbox.retention, limits: self.limits() };
        Ok(registry::store(&self.url, name, settings)?)
    }

    /// The outbox called `name` with its schema in place.
    pub async fn open(&self, name: &OutboxName, if_empty: IfEmpty) -> Result<Arc<dyn Store>, Fault> {
        let store = self.store(name)?;
        match store.schema().await? {
            SchemaState::Current => Ok(store),
            SchemaState::EmptyDatabase if if_empty == IfEmpty::Make && registry::is_made_by_first_use(&self.url) => {
                store.migrate().await?;
                Ok(store)
            }
            SchemaState::EmptyDatabase | SchemaState::Missing => {
                Err(self.refused(name, "has no schema here", "create it"))
            }
            SchemaState::Older(version) => {
                Err(self.refused(name, &format!("has schema version {version}, an older one"), "upgrade it"))
            }
            SchemaState::Newer(version) => {
                let error = format!("{} has schema version {version}, which this build does not know", called(name));
                Err(Fault::usage(error).hint("use a posthaste at least as new as the one that migrated it"))
            }
        }
    }

    /// Whether the first use of an empty database makes the schema.
    pub fn makes_schema(&self) -> bool {
        registry::is_made_by_first_use(&self.url)
    }

    /// The outbox that `at` means, with its schema in place.
    pub async fn open_single(&self, at: &Single, if_empty: IfEmpty) -> Result<Arc<dyn Store>, Fault> {
        self.open(&self.single(at)?, if_empty).await
    }

    /// The outboxes that `at` means.
    pub fn several(&self, at: &Several) -> Vec<OutboxName> {
        let named = if at.outboxes.is_empty() { &self.config.outboxes } else { &at.outboxes };
        if named.is_empty() { vec![OutboxName::unnamed()] } else { named.clone() }
    }

    /// The name of the outbox that `at` means.
    pub fn single(&self, at: &Single) -> Result<OutboxName, Fault> {
        match (&at.outbox, self.config.outboxes.as_slice()) {
            (Some(name), _) => Ok(name.clone()),
            (None, []) => Ok(OutboxName::unnamed()),
            (None, [name]) => Ok(name.clone()),
            (None, several) => {
                let names: Vec<String> = several.iter().map(ToString::to_string).collect();
                let error = format!("the configuration has several outboxes: {}", names.join(", "));
                Err(Fault::usage(error).hint("choose one with --outbox NAME"))
            }
        }
    }

    fn refused(&self, name: &OutboxName, what: &str, to_do: &str) -> Fault {
        let command = self.migrate_command(name);
        Fault::usage(format!("{} {what}", called(name))).hint(format!("{to_do}: {command}"))
    }

    /// The command that creates or upgrades the schema of the outbox called `name`.
    pub fn migrate_command(&self, name: &OutboxName) -> String {
        let outbox =
            if name.as_str().is_empty() { String::new() } else { format!(" --outbox {}", quoted(name.as_str())) };
        format!("posthaste migrate --store {}{outbox}", quoted(&redact_url(&self.url)))
    }
}

/// The outbox in a sentence.
pub fn called(name: &OutboxName) -> String {
    if name.as_str().is_empty() { "the unnamed outbox".to_owned() } else { format!("outbox {name}") }
}

/// `word` as a shell takes it literally.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@%+=,".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_are_shown_can_be_pasted() {
        assert_eq!(quoted("postgres://app@h/shop"), "postgres://app@h/shop");
        assert_eq!(quoted("postgres://app:***@h/d"), "'postgres://app:***@h/d'");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
