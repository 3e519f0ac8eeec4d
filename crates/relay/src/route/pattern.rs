//! Patterns over event types: `order.*`.

use std::{fmt, str::FromStr};

/// A type in which each `*` stands for any text, the empty one and dots included.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TypePattern(String);

/// Why a text is no pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an empty pattern matches no type; `*` matches all of them")]
pub struct BadPattern;

impl TypePattern {
    /// The pattern that matches every type.
    #[must_use]
    pub fn any() -> TypePattern {
        TypePattern("*".to_owned())
    }

    /// Whether `event_type` as a whole matches. Letters match in their own case only.
    #[must_use]
    pub fn matches(&self, event_type: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == event_type };
        let Some(mut left) = event_type.strip_prefix(first) else { return false };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        for part in middle.split('*') {
            // The leftmost place leaves the most text to the parts that follow.
            let Some(at) = left.find(part) else { return false };
            left = &left[at + part.len()..];
        }
        left.ends_with(last)
    }
}

impl FromStr for TypePattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<TypePattern, BadPattern> {
        if text.is_empty() { Err(BadPattern) } else { Ok(TypePattern(text.to_owned())) }
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, event_type: &str) -> bool {
        pattern.parse::<TypePattern>().unwrap().matches(event_type)
    }

    #[test]
    fn a_star_stands_for_any_text_and_everything_else_for_itself() {
        for (pattern, event_type, expected) in [
            ("*", "order.placed", true),
            ("order.*", "order.placed", true),
            ("order.*", "order.placed.v2", true),
            ("order.*", "order.", true),
            ("order.*", "order", false),
            ("order.*", "preorder.placed", false),
            ("order.placed", "order.placed", true),
            ("order.placed", "order.placed2", false),
            ("order.placed", "Order.placed", false),
            ("*.placed", "order.placed", true),
            ("*.placed", "order.placed.v2", false),
            ("a*b*c", "abbc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*é*", "caféine", true),
            ("order.?", "order.x", false),
        ] {
            assert_eq!(matches(pattern, event_type), expected, "{pattern} {event_type}");
        }
        assert!("".parse::<TypePattern>().is_err());
    }

    /// The definition, by trying every length for every star.
    fn by_definition(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['*', rest @ ..] => (0..=text.len()).any(|length| by_definition(rest, &text[length..])),
            [first, rest @ ..] => text.first() == Some(first) && by_definition(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_its_definition(pattern in "[ab*.]{1,8}", text in "[ab.]{0,8}") {
            let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(matches(&pattern, &text), by_definition(&p, &t));
        }
    }
}
