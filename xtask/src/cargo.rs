//! Running Cargo on this workspace.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Features that are off by default and have tests of their own: package and feature.
pub const FEATURES: [(&str, &str); 4] = [
    ("posthaste-store-postgres", "sqlx"),
    ("posthaste-store-postgres", "diesel"),
    ("posthaste-store-postgres", "sea-orm"),
    ("posthaste-store-sqlite", "sqlx"),
];

/// The Cargo that runs us, at the root of the workspace.
pub fn cargo(subcommand: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg(subcommand).current_dir(root());
    command
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    ours.parent().unwrap_or(ours).to_owned()
}

/// The arguments that select packages and features: those named, else all.
pub fn selection(arguments: &[String]) -> Vec<String> {
    let named = packages(arguments);
    let mut selection = Vec::new();
    if named.is_empty() {
        selection.push("--workspace".to_owned());
    }
    let wanted = FEATURES.iter().filter(|(package, _)| named.is_empty() || named.contains(package));
    let features: Vec<String> = wanted.map(|(package, feature)| format!("{package}/{feature}")).collect();
    if !features.is_empty() {
        selection.push(format!("--features={}", features.join(",")));
    }
    selection
}

/// The values of `-p X`, `-pX`, `--package X` and `--package=X`.
fn packages(arguments: &[String]) -> Vec<&str> {
    let mut packages = Vec::new();
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        match argument {
            "-p" | "--package" => packages.extend(rest.next()),
            _ => packages.extend(argument.strip_prefix("--package=").or_else(|| argument.strip_prefix("-p"))),
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(arguments: &[&str]) -> Vec<String> {
        selection(&arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn all_packages_are_tested_with_the_features_that_have_tests() {
        let all = [
            "--workspace",
            "--features=posthaste-store-postgres/sqlx,posthaste-store-postgres/diesel,posthaste-store-postgres/sea-orm,posthaste-store-sqlite/sqlx",
        ];
        assert_eq!(selected(&[]), all);
        assert_eq!(selected(&["some_filter", "--lib"]), all);
    }

    #[test]
    fn a_named_package_is_tested_alone_with_its_feature() {
        for named in [&["-p", "posthaste-store-sqlite"][..], &["--package=posthaste-store-sqlite"]] {
            assert_eq!(selected(named), ["--features=posthaste-store-sqlite/sqlx"]);
        }
        assert!(selected(&["-pposthaste-core"]).is_empty());
    }
}
