//! The arrows between the crates: what each may depend on among our own.

use serde_json::Value;

use crate::Result;

const CORE: &str = "posthaste-core";
const TESTKIT: &str = "posthaste-testkit";

/// One crate depends on another of ours.
#[derive(Debug, PartialEq, Eq)]
struct Arrow<'a> {
    from: &'a str,
    to: &'a str,
    /// For its tests only.
    dev: bool,
}

/// Checks the output of `cargo metadata`.
pub fn check(metadata: &Value) -> Result<()> {
    let arrows = arrows(metadata).ok_or("`cargo metadata` has no list of packages")?;
    let wrong: Vec<String> = arrows.iter().filter(|arrow| !is_allowed(arrow)).map(describe).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}

/// Own crates are those that a dependency names by path.
fn arrows(metadata: &Value) -> Option<Vec<Arrow<'_>>> {
    let mut arrows = Vec::new();
    for package in metadata["packages"].as_array()? {
        let own = package["dependencies"].as_array()?.iter().filter(|dependency| dependency["path"].is_string());
        for dependency in own {
            let dev = dependency["kind"].as_str() == Some("dev");
            arrows.push(Arrow { from: package["name"].as_str()?, to: dependency["name"].as_str()?, dev });
        }
    }
    Some(arrows)
}

fn is_allowed(arrow: &Arrow<'_>) -> bool {
    match (arrow.from, arrow.to) {
        // tests may use anything, but core must not need its users to be tested
        (CORE, _) => false,
        _ if arrow.dev => true,
        ("xtask", _) => true,
        (_, TESTKIT) => false,
        (_, CORE) => true,
        (from, _) => !is_part(from),
    }
}

/// The crates that know core alone, so that each can be used without the others.
fn is_part(name: &str) -> bool {
    let part = name.strip_prefix("posthaste-").unwrap_or(name);
    matches!(part, "relay" | "testkit") || part.starts_with("store-") || part.starts_with("transport-")
}

fn describe(arrow: &Arrow<'_>) -> String {
    let Arrow { from, to, .. } = arrow;
    let rule = match (*from, *to) {
        (CORE, _) => "core depends on no other crate of ours".to_owned(),
        (_, TESTKIT) => "testkit is for [dev-dependencies]".to_owned(),
        _ => format!("{from} may depend on {CORE} alone"),
    };
    format!("{from} depends on {to}: {rule}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(from: &str, to: &str, kind: Option<&str>) -> bool {
        let dependencies = json!([{ "name": to, "kind": kind, "path": "/x" }, { "name": "tokio", "kind": null }]);
        check(&json!({ "packages": [{ "name": from, "dependencies": dependencies }] })).is_ok()
    }

    #[test]
    fn parts_depend_on_core_alone() {
        for part in ["posthaste-relay", "posthaste-store-sqlite", "posthaste-transport-amqp", "posthaste-testkit"] {
            assert!(verdict(part, CORE, None), "{part}");
            assert!(!verdict(part, "posthaste-store-postgres", None), "{part}");
        }
        assert!(!verdict(CORE, "posthaste-relay", None));
        assert!(verdict("posthaste-cli", "posthaste-store-postgres", None));
    }

    #[test]
    fn the_testkit_is_for_tests() {
        assert!(!verdict("posthaste-cli", TESTKIT, None));
        assert!(!verdict("posthaste-cli", TESTKIT, Some("build")));
        assert!(verdict("posthaste-cli", TESTKIT, Some("dev")) && verdict("xtask", TESTKIT, None));
        assert!(!verdict(CORE, TESTKIT, Some("dev")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dependencies = json!([{ "name": "posthaste-relay", "kind": null, "path": "/x" }]);
        let metadata = json!({ "packages": [{ "name": "posthaste-store-sqlite", "dependencies": dependencies }] });
        let error = check(&metadata).unwrap_err().to_string();
        assert!(error.contains("posthaste-store-sqlite depends on posthaste-relay"), "{error}");
    }
}
