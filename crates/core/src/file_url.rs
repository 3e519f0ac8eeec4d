//! URLs that name a file of this machine: `sqlite:FILE`, `file:PATH`.
//!
//! Percent escapes are decoded once. Two slashes are accepted where they can mean only one thing.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::options::ConfigError;

/// The path that `url` names, relative to the working directory unless it starts with a slash.
///
/// # Errors
/// The scheme is another, the path is empty, not UTF-8 once decoded, or could be meant as a host.
pub fn file_path(url: &str, scheme: &str) -> Result<PathBuf, ConfigError> {
    let bad = |detail: String| ConfigError::Url { url: url.to_owned(), detail };
    let Some(rest) = url.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(':')) else {
        return Err(bad(format!("write {scheme}:PATH")));
    };
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(path) if path.starts_with('/') || !path.contains('/') => path,
        Some(path) => {
            return Err(bad(format!("write {scheme}:{path} for a relative path, {scheme}:/… for an absolute one")));
        }
    };
    if path.contains('?') {
        return Err(bad(format!("{scheme}: takes no options; write %3F for a question mark in a file's name")));
    }
    // One colon too many, or ":memory:" mistyped.
    if let Some(name) = path.strip_prefix(':') {
        let written = if name.is_empty() { "PATH".to_owned() } else { format!("./:{name} for a file of that name") };
        return Err(bad(format!("names no file: write {scheme}:{written}")));
    }
    let path = percent_decode_str(path).decode_utf8().map_err(|_| bad("the path is not UTF-8".to_owned()))?;
    if path.is_empty() || path.contains('\0') {
        return Err(bad(format!("names no file: write {scheme}:PATH")));
    }
    Ok(PathBuf::from(path.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_files_and_decodes_once() {
        for (url, path) in [
            ("sqlite:app.db", "app.db"),
            ("sqlite:dir/app.db", "dir/app.db"),
            ("sqlite:/var/app.db", "/var/app.db"),
            ("sqlite:///var/app.db", "/var/app.db"),
            ("sqlite://app.db", "app.db"),
            ("sqlite:a%20b%2541.db", "a b%41.db"),
            ("sqlite:100%.db", "100%.db"),
            ("sqlite:./:memory:", "./:memory:"),
        ] {
            assert_eq!(file_path(url, "sqlite").unwrap(), PathBuf::from(path), "{url}");
        }
    }

    #[test]
    fn refuses_what_could_mean_something_else() {
        for url in [
            "sqlite:",
            "sqlite://",
            "sqlite::",
            "sqlite::memory",
            "sqlite://host/app.db",
            "sqlite:a.db?mode=rwc",
            "sqlite:a%00",
            "sqlit:a",
            "sqlite:%ff",
        ] {
            assert!(file_path(url, "sqlite").is_err(), "{url}");
        }
        let error = file_path("sqlite::", "sqlite").unwrap_err().to_string();
        assert_eq!(error, "sqlite::: names no file: write sqlite:PATH");
    }
}
