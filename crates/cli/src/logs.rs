//! Logs go to stderr, beside the talk.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::exit::Fault;

/// lapin logs every returned message with its body, which is not its business.
const DEFAULT: &str = "warn,posthaste_relay=info,lapin=off";

/// Starts logging by `filter`, else by `RUST_LOG`, else warnings and what relays do.
pub fn start(filter: Option<&str>) -> Result<(), Fault> {
    let from_env = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let chosen = filter.map(str::to_owned).or(from_env).unwrap_or_else(|| DEFAULT.to_owned());
    let filter =
        EnvFilter::try_new(&chosen).map_err(|error| Fault::usage(format!("log filter {chosen:?}: {error}")))?;
    let colours = std::io::stderr().is_terminal();
    // A second start in one process (tests) keeps the first.
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).try_init();
    Ok(())
}
