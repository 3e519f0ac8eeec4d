//! Keeping secrets out of everything that is printed.

use std::fmt;

/// A text that never shows in `Debug`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(secret: impl Into<String>) -> Secret {
        Secret(secret.into())
    }

    /// The secret itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A URL with its password, and every query parameter that looks like a secret, replaced by `***`.
/// Works on texts that are no valid URL, which is when it is printed most.
#[must_use]
pub fn redact_url(url: &str) -> String {
    let shown = redact_userinfo(url);
    let Some((head, query)) = shown.split_once('?') else { return shown };
    let pairs: Vec<String> = query.split('&').map(redact_pair).collect();
    format!("{head}?{}", pairs.join("&"))
}

fn redact_userinfo(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // The last '@' of the whole text: an unencoded '@', '/' or '?' inside a password must not show
    // what follows it, even if an '@' in the query hides the host then.
    let Some((userinfo, host)) = rest.rsplit_once('@') else { return url.to_owned() };
    let user = userinfo.split_once(':').map_or(userinfo, |(user, _)| user);
    let password = if userinfo.contains(':') { ":***" } else { "" };
    format!("{scheme}://{user}{password}@{host}")
}

fn redact_pair(pair: &str) -> String {
    const SECRET: [&str; 5] = ["password", "secret", "token", "key", "signature"];
    match pair.split_once('=') {
        Some((name, _))
            if SECRET.iter().any(|word| name.to_ascii_lowercase().contains(word)) && name != "routing_key" =>
        {
            format!("{name}=***")
        }
        _ => pair.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_115_no_part_of_a_password_shows_even_where_it_was_not_encoded() {
        for (url, shown) in [
            ("postgres://app:p%40s@h/db", "postgres://app:***@h/db"),
            ("postgres://app:p@s:s/w%r#d?{}^ +é@h/db", "postgres://app:***"),
            ("amqp://h/?exchange=e&routing_key={type}", "amqp://h/?exchange=e&routing_key={type}"),
            ("https://h/x?api_key=abc&a=1", "https://h/x?api_key=***&a=1"),
            ("sqlite:a.db", "sqlite:a.db"),
            ("amqp://guest@h", "amqp://guest@h"),
        ] {
            let redacted = redact_url(url);
            assert!(redacted.starts_with(shown), "{redacted}");
            assert!(!redacted.contains("s:s") && !redacted.contains("abc") && !redacted.contains("é"), "{redacted}");
        }
        assert_eq!(format!("{:?}", Secret::new("abc")), "***");
    }
}
