//! The configuration: file, environment and defaults made into one checked whole.
//!
//! Nothing connects before all of it has been read. All problems are reported at once.

pub mod duration;
pub mod env;
pub mod file;
mod reader;
mod resolve;
pub mod size;

use std::{collections::BTreeMap, path::Path, time::Duration};

use posthaste_core::{OutboxName, options::Options};

pub use self::resolve::resolve;

/// Everything that can be configured.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Where the outboxes are.
    pub store: Option<String>,
    /// Empty: the unnamed outbox.
    pub outboxes: Vec<OutboxName>,
    /// How outboxes are pumped.
    pub outbox: OutboxConfig,
    /// When failures become final.
    pub retry: RetryConfig,
    /// Longest wait for the answer to a publication.
    pub publish_timeout: Duration,
    /// Targets by name.
    pub targets: BTreeMap<String, TargetConfig>,
    /// Routes by name.
    pub routes: BTreeMap<String, RouteConfig>,
    /// What was accepted, but not as it was meant.
    pub warnings: Vec<String>,
}

/// `outbox:` and `coordination:`.
#[derive(Clone, PartialEq, Debug)]
pub struct OutboxConfig {
    /// The longest time between two full reads.
    pub interval: Duration,
    /// Most rows a read.
    pub batch: u32,
    /// How long published rows are kept.
    pub retention: Duration,
    /// Leave everything to the interval.
    pub defer: bool,
    /// Largest body in bytes.
    pub max_body: u64,
    /// The longest time a confirmed row waits to be marked.
    pub mark_delay: Duration,
    /// How often ownership of lanes is looked at.
    pub coordination_interval: Duration,
}

/// `retry:`
#[derive(Clone, PartialEq, Debug)]
pub struct RetryConfig {
    /// Counted failures that make a row `invalid`.
    pub max_attempts: u32,
    /// Permanent failures that make a row `invalid`.
    pub permanent_attempts: u32,
    /// How long a row may be misrouted.
    pub misrouted_for: Duration,
}

/// An entry of `targets:`.
#[derive(Clone, PartialEq)]
pub struct TargetConfig {
    /// Its URL; may hold a secret.
    pub url: String,
    /// The rest, for the transport to judge; may hold a secret.
    pub options: Options,
}

impl std::fmt::Debug for TargetConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TargetConfig")
            .field("url", &posthaste_core::redact::redact_url(&self.url))
            .finish_non_exhaustive()
    }
}

/// An entry of `routes:`.
#[derive(Clone, PartialEq, Debug)]
pub struct RouteConfig {
    /// Which types.
    pub pattern: String,
    /// A CEL condition.
    pub when: Option<String>,
    /// A CEL expression for the body.
    pub payload: Option<String>,
    /// The name of its target; `None` where `otherwise: discard` drops the type.
    pub target: Option<String>,
    /// The parts of its address, for the target to judge.
    pub address: BTreeMap<String, String>,
}

/// Reads the file at `path`, if there is one, and the environment of this process.
///
/// # Errors
/// Every problem found, one a line.
pub fn load(path: Option<&Path>) -> Result<Config, String> {
    let asked = env::Asked::default();
    let lookup = |name: &str| asked.lookup(name);
    let mut config = read(path, &lookup)?;
    config.warnings.extend(asked.misspelt(env::names_of_process()));
    Ok(config)
}

fn read(path: Option<&Path>, lookup: env::Lookup<'_>) -> Result<Config, String> {
    let Some(path) = path else { return resolve(file::File::default(), lookup) };
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let file = file::parse(&text).map_err(|error| format!("{shown}: {error}"))?;
    resolve(file, lookup)
        .map_err(|problems| problems.lines().map(|line| format!("{shown}: {line}")).collect::<Vec<_>>().join("\n"))
}
