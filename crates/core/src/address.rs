//! Where on its target a message goes: exchange, routing key, topic, path.

use std::{collections::BTreeMap, sync::Arc};

use crate::Row;

/// The parts of an address by name (`exchange`, `routing_key`), filled in for one message. Cheap
/// to clone: it goes wherever its message goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Address(Arc<[(&'static str, String)]>);

impl Address {
    /// The part with this name; empty if the address has none.
    #[must_use]
    pub fn get(&self, part: &str) -> &str {
        self.0.iter().rfind(|(name, _)| *name == part).map_or("", |(_, text)| text)
    }
}

impl FromIterator<(&'static str, String)> for Address {
    fn from_iter<I: IntoIterator<Item = (&'static str, String)>>(parts: I) -> Address {
        Address(parts.into_iter().collect())
    }
}

/// An address whose parts may hold `{type}`, `{key}` and `{tenant}`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressTemplate(BTreeMap<&'static str, Template>);

/// Why a text is no template.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{part} {text:?}: {{{placeholder}}} is unknown; {{type}}, {{key}} and {{tenant}} may stand there")]
pub struct BadTemplate {
    part: &'static str,
    text: String,
    placeholder: String,
}

impl AddressTemplate {
    /// Sets a part.
    ///
    /// # Errors
    /// A placeholder that does not exist.
    pub fn set(&mut self, part: &'static str, text: &str) -> Result<(), BadTemplate> {
        let template =
            Template::parse(text).map_err(|placeholder| BadTemplate { part, text: text.to_owned(), placeholder })?;
        self.0.insert(part, template);
        Ok(())
    }

    /// The names of the parts that are set.
    pub fn parts(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// The text of a part that is the same for every message.
    #[must_use]
    pub fn constant(&self, part: &str) -> Option<&str> {
        match self.0.get(part)?.0.as_slice() {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The address of the message made of `row`. A key or tenant that the row lacks is empty.
    #[must_use]
    pub fn fill(&self, row: &Row) -> Address {
        self.0.iter().map(|(part, template)| (*part, template.fill(row))).collect()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(String),
    Type,
    Key,
    Tenant,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Template(Vec<Piece>);

impl Template {
    fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            // A brace that is never closed is ordinary text.
            let Some((name, after)) = after.split_once('}') else { break };
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(match name {
                "type" => Piece::Type,
                "key" => Piece::Key,
                "tenant" => Piece::Tenant,
                other => return Err(other.to_owned()),
            });
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Template(pieces))
    }

    fn fill(&self, row: &Row) -> String {
        let mut filled = String::new();
        for piece in &self.0 {
            filled.push_str(match piece {
                Piece::Text(text) => text,
                Piece::Type => &row.event_type,
                Piece::Key => row.key.as_deref().unwrap_or(""),
                Piece::Tenant => row.tenant.as_deref().unwrap_or(""),
            });
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_placeholders_are_refused_by_name() {
        let mut template = AddressTemplate::default();
        template.set("exchange", "orders").unwrap();
        template.set("routing_key", "{tenant}.{type}").unwrap();
        let error = template.set("routing_key", "{typ}").unwrap_err().to_string();
        assert!(error.contains("{typ}") && error.contains("{type}"), "{error}");
        assert_eq!(template.parts().collect::<Vec<_>>(), ["exchange", "routing_key"]);
        assert_eq!((template.constant("exchange"), template.constant("routing_key")), (Some("orders"), None));
        assert_eq!(template.constant("queue"), None);
    }
}
