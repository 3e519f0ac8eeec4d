//! Reads single keys from environment and file, and collects what is wrong with them.

use super::{
    env::{Lookup, expand, name_of, older_name_of},
    file::Text,
};

/// What has been read so far.
pub struct Reader<'a> {
    lookup: Lookup<'a>,
    /// What can't be used.
    pub problems: Vec<String>,
    /// What is used otherwise than it was written.
    pub warnings: Vec<String>,
}

impl<'a> Reader<'a> {
    pub fn new(lookup: Lookup<'a>) -> Reader<'a> {
        Reader { lookup, problems: Vec::new(), warnings: Vec::new() }
    }

    /// The value of `key`: its variable, else its older variable, else the file, else `default`.
    /// A value that can't be used is a problem, except in an older variable, where it is a warning.
    pub fn get<T>(
        &mut self,
        key: &str,
        file: Option<&Text>,
        parse: impl Fn(&str) -> Result<T, String>,
        default: T,
    ) -> T {
        let name = name_of(key);
        if let Some(text) = (self.lookup)(&name) {
            return self.used(parse(&text), &name, default);
        }
        let older = older_name_of(key).and_then(|name| Some((name, (self.lookup)(name)?)));
        let ignored = match older.map(|(name, text)| (name, check_older(name, &text).and_then(|()| parse(&text)))) {
            Some((_, Ok(value))) => return value,
            Some((name, Err(error))) => Some((name, error)),
            None => None,
        };
        let text = file.and_then(|text| self.text(key, text));
        if let Some((name, error)) = ignored {
            let instead = text.as_deref().map_or_else(|| "the default".to_owned(), |text| format!("{text:?}"));
            self.warnings.push(format!("{name}: {error}; {instead} is used for {key}"));
        }
        match (text, file) {
            (Some(text), Some(written)) => self.used(parse(&text), &at(written, key), default),
            _ => default,
        }
    }

    /// A text of the file with its variables filled in.
    pub fn text(&mut self, key: &str, text: &Text) -> Option<String> {
        match expand(&text.value, self.lookup) {
            Ok(expanded) => Some(expanded),
            Err(error) => self.problem(&at(text, key), &error),
        }
    }

    /// The same for a text whose line is not known.
    pub fn expand(&mut self, key: &str, text: &str) -> Option<String> {
        expand(text, self.lookup).map_or_else(|error| self.problem(key, &error), Some)
    }

    /// Records that what stands at `place` can't be used.
    pub fn problem<T>(&mut self, place: &str, error: &str) -> Option<T> {
        self.problems.push(format!("{place}: {error}"));
        None
    }

    fn used<T>(&mut self, parsed: Result<T, String>, place: &str, default: T) -> T {
        parsed.unwrap_or_else(|error| self.problem(place, &error).unwrap_or(default))
    }
}

/// The older switch is on only as exactly `1`.
fn check_older(name: &str, text: &str) -> Result<(), String> {
    if name == "TOA_OUTBOX_DEFER" && text != "1" { Err(format!("{text:?} is not 1")) } else { Ok(()) }
}

/// Where a text stands.
pub fn at(text: &Text, key: &str) -> String {
    format!("line {}: {key}", text.referenced.line())
}
