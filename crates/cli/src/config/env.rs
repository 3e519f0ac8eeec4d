//! The environment: the names of the keys, and `${VAR}` in values. Pure over a lookup function.

use std::{cell::RefCell, collections::BTreeSet};

use posthaste_core::options::nearest;

/// Looks up an environment variable.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

const PREFIX: &str = "POSTHASTE_";
/// What is read elsewhere than in the configuration.
const OTHERS: [&str; 1] = ["OPERATOR"];

/// The environment, with a memory of what it was asked for: what bears our prefix and was not asked for may
/// be a misspelt key, which must not be overlooked.
#[derive(Default)]
pub struct Asked(RefCell<BTreeSet<String>>);

impl Asked {
    /// The variable, which is known from now on.
    pub fn lookup(&self, name: &str) -> Option<String> {
        self.0.borrow_mut().insert(name.to_owned());
        of_process(name)
    }

    /// A warning for each of `names` that is near to a known one, and none itself. A name that resembles none
    /// is somebody's own.
    pub fn misspelt(&self, names: impl IntoIterator<Item = String>) -> Vec<String> {
        let asked = self.0.borrow();
        let known: Vec<&str> = asked.iter().filter_map(|name| name.strip_prefix(PREFIX)).chain(OTHERS).collect();
        let warning = |name: String| {
            let rest = name.strip_prefix(PREFIX).filter(|rest| !known.contains(rest) && !rest.starts_with("TEST_"))?;
            let longer =
                || known.iter().find(|known| known.ends_with(&format!("_{rest}"))).map(|known| (*known).to_owned());
            let meant = nearest(&rest.to_ascii_uppercase(), &known).or_else(longer)?;
            Some(format!("{name} sets nothing; did you mean {PREFIX}{meant}?"))
        };
        names.into_iter().filter_map(warning).collect()
    }
}

/// The names of this process's variables that are text, in their order.
pub fn names_of_process() -> BTreeSet<String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
}

/// The environment of this process. What is not UTF-8 comes with replacement characters, so that it
/// is refused and not overlooked.
pub fn of_process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// The variable that sets a key: `outbox.interval` is `POSTHASTE_OUTBOX_INTERVAL`.
pub fn name_of(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_ascii_uppercase())
}

/// The older variable that sets a key where [`name_of`] is absent.
pub fn older_name_of(key: &str) -> Option<&'static str> {
    match key {
        "outbox.interval" => Some("TOA_OUTBOX_INTERVAL"),
        "outbox.batch" => Some("TOA_OUTBOX_BATCH"),
        "outbox.retention" => Some("TOA_OUTBOX_RETENTION"),
        "outbox.defer" => Some("TOA_OUTBOX_DEFER"),
        "coordination.interval" => Some("TOA_ATOMICITY_INTERVAL"),
        _ => None,
    }
}

/// `text` with every `${VAR}` replaced by the variable's value, which is not looked through again.
/// `$${` stands for `${`.
///
/// # Errors
/// A variable that is not set, or a brace that is not closed.
pub fn expand(text: &str, lookup: Lookup<'_>) -> Result<String, String> {
    let (mut expanded, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = after;
            continue;
        }
        let (name, after) = after.split_once('}').ok_or("${ is never closed; write $${ for a plain ${")?;
        let value = lookup(name).ok_or_else(|| format!("the environment variable {name} is not set"))?;
        expanded.push_str(before);
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("db".to_owned()),
            "ODD" => Some("${HOST}$".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn variables_stand_in_values_and_are_not_looked_through_again() {
        for (text, expanded) in [
            ("postgres://${HOST}/shop", "postgres://db/shop"),
            ("${HOST}${HOST}", "dbdb"),
            ("${ODD}", "${HOST}$"),
            ("a${EMPTY}b", "ab"),
            ("$HOST {type} $${HOST} $", "$HOST {type} ${HOST} $"),
        ] {
            assert_eq!(expand(text, &lookup).as_deref(), Ok(expanded), "{text}");
        }
    }

    #[test]
    fn a_name_that_is_nearly_a_known_one_is_told_and_somebody_s_own_is_not() {
        let asked = Asked::default();
        for known in ["POSTHASTE_STORE", "POSTHASTE_OUTBOX_INTERVAL", "POSTHASTE_OUTBOX_BATCH", "POSTHASTE_MY_HOOK"] {
            asked.lookup(known);
        }
        for (name, meant) in [
            ("POSTHASTE_STROE", Some("POSTHASTE_STORE")),
            ("POSTHASTE_OUTBOX_INTERVALL", Some("POSTHASTE_OUTBOX_INTERVAL")),
            ("POSTHASTE_outbox_batch", Some("POSTHASTE_OUTBOX_BATCH")),
            ("POSTHASTE_INTERVAL", Some("POSTHASTE_OUTBOX_INTERVAL")),
            ("POSTHASTE_OPERATER", Some("POSTHASTE_OPERATOR")),
            ("POSTHASTE_OPERATOR", None),
            ("POSTHASTE_STORE", None),
            ("POSTHASTE_MY_HOOK", None),
            ("POSTHASTE_PARTNER_SIGNING_KEY", None),
            ("POSTHASTE_TEST_POSTGRES", None),
            ("STORE", None),
        ] {
            let expected: Vec<String> =
                meant.iter().map(|meant| format!("{name} sets nothing; did you mean {meant}?")).collect();
            assert_eq!(asked.misspelt([name.to_owned()]), expected);
        }
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        assert_eq!(expand("x${MISSING}", &lookup).unwrap_err(), "the environment variable MISSING is not set");
        assert!(expand("${HOST", &lookup).unwrap_err().contains("never closed"));
    }

    #[test]
    fn every_key_has_the_name_of_its_path() {
        assert_eq!(name_of("store"), "POSTHASTE_STORE");
        assert_eq!(name_of("outbox.max_body"), "POSTHASTE_OUTBOX_MAX_BODY");
        assert_eq!(name_of("coordination.interval"), "POSTHASTE_COORDINATION_INTERVAL");
    }
}
