//! AMQP URLs, read without any I/O.
//!
//! | URL | virtual host |
//! |---|---|
//! | `amqp://h` and `amqp://h/` | `/` (by the letter a lone slash means the empty name; no broker has one) |
//! | `amqp://h/%2f` | `/` |
//! | `amqp://h/%2Fteam` | `/team` |
//! | `amqp://h/a%2Fb` | `a/b` |
//! | `amqp://h//x`, `amqp://h/a/b` | an error: a slash inside the name is written `%2F` |
//!
//! Percent escapes are decoded exactly once, in every part.

use percent_encoding::percent_decode_str;
use posthaste_core::{Secret, options::ConfigError, redact::redact_url};

const ESCAPES: &str =
    "in user, password and virtual host write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, % as %25";

/// The parts of an AMQP URL, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Uri {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: Secret,
    pub(crate) vhost: String,
    pub(crate) query: Vec<(String, String)>,
}

impl Uri {
    /// Reads a URL; user and password default to `guest`, the port to 5672 or 5671.
    pub(crate) fn parse(url: &str) -> Result<Uri, ConfigError> {
        read(url).map_err(|detail| ConfigError::Url { url: redact_url(url), detail })
    }
}

fn read(url: &str) -> Result<Uri, String> {
    let (tls, rest) = match url.split_once("://") {
        Some(("amqp", rest)) => (false, rest),
        Some(("amqps", rest)) => (true, rest),
        _ => return Err("starts with neither amqp:// nor amqps://".to_owned()),
    };
    if rest.contains('#') {
        return Err(format!("'#' can't stand in an AMQP URL; {ESCAPES}"));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(authority, path)| (authority, Some(path)));
    let (userinfo, address) = split_authority(authority, path, query)?;
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, "guest"));
    let (host, port) = host_and_port(address, if tls { 5671 } else { 5672 })?;
    Ok(Uri {
        tls,
        host: decode("host", if host.is_empty() { "localhost" } else { host })?,
        port,
        user: decode("user", if userinfo.is_empty() { "guest" } else { user })?,
        password: Secret::new(decode("password", password)?),
        vhost: vhost(path.unwrap_or(""))?,
        query: query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect::<Result<_, _>>()?,
    })
}

fn split_authority<'a>(authority: &'a str, path: Option<&str>, query: &str) -> Result<(&'a str, &'a str), String> {
    match authority.split_once('@') {
        Some((_, address)) if address.contains('@') => Err(format!("more than one '@' before the host; {ESCAPES}")),
        Some(parts) => Ok(parts),
        // An unescaped '/' or '?' in the password ends the host early and leaves the '@' behind.
        None if authority.contains(':') && (path.is_some_and(|path| path.contains('@')) || query.contains('@')) => {
            Err(format!("'@' after the host; {ESCAPES}"))
        }
        None => Ok(("", authority)),
    }
}

fn host_and_port(address: &str, default: u16) -> Result<(&str, u16), String> {
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("'[' without ']' around the IPv6 address")?;
            (host, after.strip_prefix(':').unwrap_or(after))
        }
        None => address.split_once(':').unwrap_or((address, "")),
    };
    if port.is_empty() {
        return Ok((host, default));
    }
    match port.parse() {
        // The text may be half a password: it is not repeated.
        Ok(0) | Err(_) => Err(format!("the port is no number from 1 to 65535; {ESCAPES}")),
        Ok(port) => Ok((host, port)),
    }
}

fn vhost(path: &str) -> Result<String, String> {
    if path.contains('/') {
        return Err("a slash inside the virtual host is written %2F".to_owned());
    }
    decode("virtual host", if path.is_empty() { "/" } else { path })
}

fn pair(pair: &str) -> Result<(String, String), String> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    Ok((decode("query", name)?, decode("query", value)?))
}

fn decode(part: &str, text: &str) -> Result<String, String> {
    let mut escapes = text.split('%').skip(1);
    let whole = |escape: &str| escape.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
    if !escapes.all(whole) {
        return Err(format!("'%' without two hexadecimal digits in the {part}; {ESCAPES}"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| format!("the {part} is not UTF-8 after decoding"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        Uri::parse(url).unwrap_err().to_string()
    }

    #[test]
    fn report_116_virtual_hosts() {
        for (url, vhost) in [
            ("amqp://h", "/"),
            ("amqp://h/", "/"),
            ("amqp://h?exchange=e", "/"),
            ("amqp://h/%2f", "/"),
            ("amqp://h/%2Fteam", "/team"),
            ("amqp://h/a%2Fb", "a/b"),
            ("amqp://h/a%252Fb", "a%2Fb"),
            ("amqp://h/team", "team"),
        ] {
            assert_eq!(Uri::parse(url).unwrap().vhost, vhost, "{url}");
        }
        for url in ["amqp://h//x", "amqp://h/a/b"] {
            assert!(refusal(url).contains("%2F"), "{url}");
        }
    }

    #[test]
    fn report_115_escapes_are_decoded_exactly_once() {
        let url = "amqp://app:p%40s%3As%2Fw%25r%23d%3F%7B%7D%5E%20%2B%C3%A9%2541@h:1/v";
        let uri = Uri::parse(url).unwrap();
        assert_eq!(uri.password.expose(), "p@s:s/w%r#d?{}^ +é%41");
        assert_eq!((uri.user.as_str(), uri.host.as_str(), uri.port), ("app", "h", 1));
    }

    #[test]
    fn report_115_what_was_not_escaped_is_named_without_being_shown() {
        for url in [
            "amqp://app:p@geheim@h/",
            "amqp://app:p/geheim@h/",
            "amqp://app:p?geheim@h/",
            "amqp://app:p#geheim@h/",
            "amqp://app:p%geheim@h/",
            "amqp://app:geheim",
        ] {
            let error = refusal(url);
            assert!(error.contains("%40") && !error.contains("geheim@"), "{url}: {error}");
        }
        assert!(!refusal("amqp://app:p%FFgeheim@h").contains("geheim"));
    }

    #[test]
    fn parts_and_their_defaults() {
        let uri = Uri::parse("amqps://h?exchange=a%26b&routing_key={tenant}.{type}&x").unwrap();
        assert_eq!((uri.tls, uri.port, uri.user.as_str(), uri.password.expose()), (true, 5671, "guest", "guest"));
        let query: Vec<_> = uri.query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(query, [("exchange", "a&b"), ("routing_key", "{tenant}.{type}"), ("x", "")]);
        assert_eq!(Uri::parse("amqp://[::1]:99").map(|uri| (uri.host, uri.port)), Ok(("::1".to_owned(), 99)));
        assert_eq!(Uri::parse("amqp://me@").map(|uri| (uri.user, uri.host)), Ok(("me".into(), "localhost".into())));
        assert!(refusal("http://h").contains("amqps://"));
        assert!(refusal("amqp://h:0").contains("port") && refusal("amqp://[::1").contains(']'));
    }
}
