//! From a URL to a connection's configuration. The driver decodes percent escapes, exactly once;
//! what stands here finds the mistakes that people make and names them without showing a secret.

use std::{path::PathBuf, time::Duration};

use posthaste_core::{options::ConfigError, redact::redact_url};
use tokio_postgres::config::{Config, SslMode, TargetSessionAttrs};

/// How much of the server's identity is checked, with libpq's meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verify {
    Nothing,
    Chain,
    ChainAndHost,
}

/// A URL, taken apart.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) config: Config,
    pub(crate) verify: Verify,
    pub(crate) root_certificates: Option<PathBuf>,
    /// The URL without secrets.
    pub(crate) label: String,
}

const ESCAPES: &str = "in a user or password write '@' as %40, ':' as %3A, '/' as %2F, '?' as %3F, '#' as %23, '%' as %25 and a space as %20";

pub(crate) fn parse(url: &str) -> Result<Parsed, ConfigError> {
    let label = redact_url(url);
    let bad = |detail: String| ConfigError::Url { url: redact_url(url), detail };
    check_form(url).map_err(&bad)?;
    let (url, sslmode, root) = take_tls_options(url).map_err(&bad)?;
    let mut config: Config = url.parse().map_err(|error| bad(said(&error)))?;
    if config.get_hosts().is_empty() {
        return Err(bad("no host is named".to_owned()));
    }
    if config.get_hosts().len() > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    let (mode, verify) = tls_mode(sslmode.as_deref().unwrap_or("prefer"), root.is_some()).map_err(&bad)?;
    config.ssl_mode(mode).keepalives_idle(Duration::from_secs(10)).keepalives_interval(Duration::from_secs(5));
    config.keepalives_retries(3);
    Ok(Parsed { config, verify, root_certificates: root.map(PathBuf::from), label })
}

/// Finds an unescaped special character before it makes a misleading error out of half a password.
fn check_form(url: &str) -> Result<(), String> {
    let rest = url
        .strip_prefix("postgres://")
        .or_else(|| url.strip_prefix("postgresql://"))
        .ok_or("a PostgreSQL URL starts with postgres:// or postgresql://")?;
    if rest.matches('@').count() > 1 {
        return Err(format!("there is more than one '@'; {ESCAPES}"));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let userinfo = authority.rsplit_once('@').map_or("", |(userinfo, _)| userinfo);
    if rest.contains('@') && !authority.contains('@') {
        return Err(format!("'/', '?' or '#' stands before the '@'; {ESCAPES}"));
    }
    if userinfo.matches(':').count() > 1 || userinfo.contains(|c: char| c.is_whitespace()) {
        return Err(format!("the password holds a ':' or a space; {ESCAPES}"));
    }
    if !escapes_are_whole(rest) {
        return Err(format!("a '%' is not followed by two hexadecimal digits; {ESCAPES}"));
    }
    Ok(())
}

fn escapes_are_whole(text: &str) -> bool {
    text.split('%').skip(1).all(|after| after.len() >= 2 && after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

/// Takes out what the driver does not know: all of libpq's `sslmode` words, and `sslrootcert`.
fn take_tls_options(url: &str) -> Result<(String, Option<String>, Option<String>), String> {
    let Some((head, query)) = url.split_once('?') else { return Ok((url.to_owned(), None, None)) };
    let (mut mode, mut root, mut kept) = (None, None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value.to_owned()),
            Some(("sslrootcert", value)) => root = Some(decode(value)?),
            Some(_) => kept.push(pair),
            None => return Err(format!("the option {pair} has no value")),
        }
    }
    let url = if kept.is_empty() { head.to_owned() } else { format!("{head}?{}", kept.join("&")) };
    Ok((url, mode, root))
}

fn decode(text: &str) -> Result<String, String> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8();
    text.map(std::borrow::Cow::into_owned).map_err(|_| "sslrootcert is not UTF-8".to_owned())
}

fn tls_mode(word: &str, has_root: bool) -> Result<(SslMode, Verify), String> {
    match word {
        "disable" => Ok((SslMode::Disable, Verify::Nothing)),
        // Plain text first, as libpq does for `allow`, would only lose what `prefer` can have.
        "allow" | "prefer" => Ok((SslMode::Prefer, Verify::Nothing)),
        "require" if has_root => Ok((SslMode::Require, Verify::Chain)),
        "require" => Ok((SslMode::Require, Verify::Nothing)),
        "verify-ca" => Ok((SslMode::Require, Verify::Chain)),
        "verify-full" => Ok((SslMode::Require, Verify::ChainAndHost)),
        other => Err(format!("sslmode {other} is unknown: disable, allow, prefer, require, verify-ca or verify-full")),
    }
}

fn said(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &str = "p@s:s/w%r#d?{}^ +é%41";
    const ESCAPED: &str = "p%40s%3As%2Fw%25r%23d%3F%7B%7D%5E%20%2B%C3%A9%2541";

    #[test]
    fn report_115_escapes_are_decoded_exactly_once() {
        let config = parse(&format!("postgres://a%40b:{ESCAPED}@h:5433/d%20b?sslmode=disable")).unwrap().config;
        assert_eq!(config.get_password(), Some(PASSWORD.as_bytes()));
        assert_eq!((config.get_user(), config.get_dbname()), (Some("a@b"), Some("d b")));
    }

    #[test]
    fn report_115_what_is_not_escaped_is_named_without_the_secret() {
        for (password, says) in
            [(PASSWORD, "%40"), ("s3/cret", "%2F"), ("s3:cret", "%3A"), ("s3%cret", "%25"), ("s3cret%", "%25")]
        {
            let error = parse(&format!("postgres://app:{password}@h/db")).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert!(!error.contains("cret") && !error.contains("s:s") && !error.contains('é'), "{error}");
        }
    }

    #[test]
    fn sslmode_means_what_it_means_to_libpq() {
        for (query, verify) in [
            ("", Verify::Nothing),
            ("?sslmode=require", Verify::Nothing),
            ("?sslmode=require&sslrootcert=%2Fca.pem", Verify::Chain),
            ("?sslmode=verify-ca", Verify::Chain),
            ("?sslmode=verify-full", Verify::ChainAndHost),
        ] {
            assert_eq!(parse(&format!("postgres://h/db{query}")).unwrap().verify, verify, "{query}");
        }
        let error = parse("postgres://h/db?sslmode=verify_full").unwrap_err().to_string();
        assert!(error.contains("verify-full"), "{error}");
    }

    #[test]
    fn options_and_hosts_are_checked() {
        for (url, says) in [
            ("mysql://h/db", "postgres://"),
            ("postgres:///db", "no host"),
            ("postgres://h/db?aplication_name=x", "aplication_name"),
            ("postgres://h/db?sslmode", "no value"),
            ("postgres://h:x/db", "port"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let several = parse("postgres://a,b/db").unwrap().config;
        assert_eq!(several.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert!(parse("postgres:///db?host=/var/run/postgresql").is_ok());
    }
}
