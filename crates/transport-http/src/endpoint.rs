//! The URL of a webhook. `{type}`, `{key}` and `{tenant}` may stand in its path and query; what
//! fills them is percent-encoded, and can change neither host nor the number of path segments.

use std::net::IpAddr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use posthaste_core::{AddressTemplate, Row, options::ConfigError, redact::redact_url};
use url::{Host, Url};

/// What a value may hold unencoded: the unreserved characters.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const PLACEHOLDERS: [&str; 3] = ["type", "key", "tenant"];

/// Where requests go.
#[derive(Clone, Debug)]
pub struct Endpoint {
    url: Url,
    is_template: bool,
}

impl Endpoint {
    /// Reads a URL.
    ///
    /// # Errors
    /// It is no URL of a webhook, or has a placeholder that does not exist.
    pub fn parse(text: &str) -> Result<Endpoint, ConfigError> {
        let bad = |detail: &str| ConfigError::Url { url: redact_url(text), detail: detail.to_owned() };
        let url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(bad("a webhook's URL starts with https:// or http:// and names a host"));
        }
        if url.host_str().is_some_and(|host| host.contains(['{', '}'])) {
            return Err(bad("placeholders may stand in path and query, not in the host"));
        }
        if url.fragment().is_some() {
            return Err(bad("what follows # is never sent; leave it out, or write %23"));
        }
        let (path, query) = (braces(url.path()), url.query().map(braces).unwrap_or_default());
        AddressTemplate::default().set("url", &format!("{path}?{query}"))?;
        let has = |part: &str| PLACEHOLDERS.iter().any(|name| part.contains(&format!("{{{name}}}")));
        Ok(Endpoint { is_template: has(&path) || has(&query), url })
    }

    /// The address that the host is, if it is no name. In whatever form it was written, this is
    /// the address that is connected to.
    #[must_use]
    pub fn literal(&self) -> Option<IpAddr> {
        match self.url.host()? {
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
            Host::Domain(_) => None,
        }
    }

    /// The host as a name, and the port.
    #[must_use]
    pub fn host_and_port(&self) -> (&str, u16) {
        (self.url.host_str().unwrap_or_default(), self.url.port_or_known_default().unwrap_or_default())
    }

    /// The password in the URL, decoded as little as it was given.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.url.password()
    }

    /// The URL for the message made of `row`.
    ///
    /// # Errors
    /// A value that would make the path lead elsewhere; the reason.
    pub fn fill(&self, row: &Row) -> Result<Url, String> {
        let mut url = self.url.clone();
        if !self.is_template {
            return Ok(url);
        }
        let filled = fill(&braces(self.url.path()), row);
        // `..` is understood as "one up" in every spelling, the encoded one included.
        if let Some(dots) = filled.split('/').find(|segment| matches!(*segment, "." | "..")) {
            return Err(format!("{dots:?} can't stand in a URL's path: it would lead elsewhere"));
        }
        url.set_path(&filled);
        let query = self.url.query().map(|query| fill(&braces(query), row));
        url.set_query(query.as_deref());
        Ok(url)
    }
}

/// Parsing a URL encodes the braces of placeholders.
fn braces(part: &str) -> String {
    part.replace("%7B", "{").replace("%7D", "}")
}

fn fill(part: &str, row: &Row) -> String {
    let values = [row.event_type.as_str(), row.key.as_deref().unwrap_or(""), row.tenant.as_deref().unwrap_or("")];
    // Encoded values hold no brace, so no value is taken for a placeholder.
    PLACEHOLDERS.iter().zip(values).fold(part.to_owned(), |part, (name, value)| {
        part.replace(&format!("{{{name}}}"), &utf8_percent_encode(value, VALUE).to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::row;

    fn filled(url: &str, key: &str) -> Result<String, String> {
        let row = Row { key: Some(key.to_owned()), ..row() };
        Endpoint::parse(url).unwrap().fill(&row).map(|url| url.to_string())
    }

    #[test]
    fn placeholders_in_path_and_query_are_filled_and_encoded() {
        for (url, key, expected) in [
            ("https://h/x", "k", "https://h/x"),
            ("https://h/{type}/{key}?t={tenant}&k={key}", "k 1", "https://h/order.placed/k%201?t=&k=k%201"),
            ("https://h/{key}", "a/../b?c#d", "https://h/a%2F..%2Fb%3Fc%23d"),
            ("https://h/{key}", "{type}é%", "https://h/%7Btype%7D%C3%A9%25"),
            ("https://h/a%20b/{key}", "..x", "https://h/a%20b/..x"),
            ("https://h:8443/p?q=1", "k", "https://h:8443/p?q=1"),
        ] {
            assert_eq!(filled(url, key).as_deref(), Ok(expected), "{url}");
        }
        for key in [".", ".."] {
            assert!(filled("https://h/a/{key}/b", key).unwrap_err().contains("elsewhere"));
            assert!(filled("https://h/a?b={key}", key).is_ok());
        }
    }

    #[test]
    fn urls_that_can_t_be_used_are_refused_with_the_reason_and_without_the_password() {
        for (url, reason) in [
            ("ftp://u:hunter2@h/", "https://"),
            ("https://", "host"),
            ("https://{tenant}.example/", "host"),
            ("https://h/{typ}", "{typ}"),
            ("https://h/?a={who}", "{who}"),
            ("https://u:hunter2@h/#a", "%23"),
        ] {
            let error = Endpoint::parse(url).unwrap_err().to_string();
            assert!(error.contains(reason) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn lw_43_an_address_in_any_spelling_is_seen_as_the_address_it_is() {
        for (host, address) in [
            ("127.0.0.1", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0177.0.0.1", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("%31%32%37.0.0.1", "127.0.0.1"),
            ("１２７.0.0.1", "127.0.0.1"),
            ("[::ffff:7f00:1]", "::ffff:127.0.0.1"),
            ("[::1]", "::1"),
        ] {
            let endpoint = Endpoint::parse(&format!("http://{host}/")).unwrap();
            assert_eq!(endpoint.literal(), Some(address.parse().unwrap()), "{host}");
        }
        assert_eq!(Endpoint::parse("http://example.com/").unwrap().literal(), None);
    }
}
