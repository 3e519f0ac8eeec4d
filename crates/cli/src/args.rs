//! The command line: what can be written, and the help that teaches it.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use posthaste_core::{OutboxName, RowId, Status, port::Filter};

use crate::{
    ask::RelayAddress,
    config::duration::{self, Bare},
};

/// A transactional outbox: events are rows written in the transaction that changes the state, a
/// relay delivers them right after the commit, and whatever fails is recovered from the database.
#[derive(Parser)]
#[command(name = "posthaste", version, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 done but with findings
or failures, 2 wrong usage or configuration, 3 a service is unreachable.

Examples:
  posthaste enqueue --store sqlite:app.db --type order.placed --key 42 --body '{\"total\":10}'
  posthaste relay --store sqlite:app.db --to stdout: --until-empty
  posthaste status --store sqlite:app.db
  posthaste explain 0190163d-8694-739b-aea5-966c26f8ad91 --store sqlite:app.db

Begin with `posthaste demo`, then `posthaste migrate --help` and `posthaste enqueue --help`.";

const RETRY_EXAMPLES: &str = "\
Who and why is recorded in the outbox's log; who is $POSTHASTE_OPERATOR, else USER@HOST.

Examples:
  posthaste retry --all --status invalid --type 'order.*' --store sqlite:app.db --reason 'exchange is back'
  posthaste retry 0190163d-8694-739b-aea5-966c26f8ad91 --store sqlite:app.db";

const DISCARD_EXAMPLES: &str = "\
Who and why is recorded in the outbox's log; who is $POSTHASTE_OPERATOR, else USER@HOST.

Examples:
  posthaste discard --all --status invalid --key 42 --store sqlite:app.db --dry-run
  posthaste discard 0190163d-8694-739b-aea5-966c26f8ad91 --store sqlite:app.db --reason 'duplicate of 17'";

#[derive(Subcommand)]
pub enum Command {
    /// Show the main job with nothing installed: commit, publish, lose the broker, recover
    Demo(Demo),
    Migrate(Migrate),
    Enqueue(Box<Enqueue>),
    Status(StatusArgs),
    List(List),
    /// Show a row with its body
    #[command(
        after_help = "Example:\n  posthaste show 0190163d-8694-739b-aea5-966c26f8ad91 --store sqlite:app.db --json"
    )]
    Show(One),
    /// Say why a row has not been delivered yet, and what would change that
    #[command(after_help = "Example:\n  posthaste explain 0190163d-8694-739b-aea5-966c26f8ad91 --store sqlite:app.db")]
    Explain(Explain),
    /// Make rows due now with no attempts counted; dead letters are delivered again
    #[command(after_help = RETRY_EXAMPLES)]
    Retry(Operate),
    /// Delete undelivered rows and dead letters for good
    #[command(after_help = DISCARD_EXAMPLES)]
    Discard(Operate),
    Prune(Prune),
    Relay(Box<Relay>),
    Doctor(Doctor),
}

/// The demo.
#[derive(Args)]
pub struct Demo {
    /// The counts as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Where an outbox is.
#[derive(Args)]
pub struct Place {
    /// The database: sqlite:FILE or postgres://USER@HOST/DB [env: POSTHASTE_STORE]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// A configuration file (YAML); `store` and `outboxes` are taken from it unless given here
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Where one outbox is.
#[derive(Args)]
pub struct Single {
    #[command(flatten)]
    pub place: Place,
    /// The outbox; without it the one in --config, else the unnamed one
    #[arg(long, value_name = "NAME")]
    pub outbox: Option<OutboxName>,
}

/// Where outboxes are.
#[derive(Args)]
pub struct Several {
    #[command(flatten)]
    pub place: Place,
    /// An outbox, may be repeated; without it those in --config, else the unnamed one
    #[arg(long = "outbox", value_name = "NAME")]
    pub outboxes: Vec<OutboxName>,
}

/// Create or upgrade the schema of an outbox; safe when many run at once
#[derive(Args)]
#[command(after_help = "\
Examples:
  posthaste migrate --store postgres://app@localhost/shop --outbox orders
  posthaste migrate --store postgres://app@localhost/shop --print | less")]
pub struct Migrate {
    #[command(flatten)]
    pub at: Several,
    /// Print the SQL that creates the schema from nothing; connect to nothing
    #[arg(long)]
    pub print: bool,
}

/// Enqueue one event, or a stream of them, and print the ids of the rows
#[derive(Args)]
#[command(after_help = "\
With --ndjson each line is a JSON object with the members type, key, tenant,
priority, headers, id, delay, content_type, and either body (any JSON value, sent
with its own text) or body_base64 (null for no body). Lines are written in batches
of up to 1000, each in one transaction; a bad line is named by its number, and
nothing of its batch is written. One id a line is printed, in the order of the
lines; `existing` after it says that the row was there already.

Examples:
  posthaste enqueue --store sqlite:app.db --type order.placed --key 42 --body '{\"total\":10}'
  posthaste enqueue --store sqlite:app.db --type report --delay 1h --file report.pdf
  printf '{\"type\":\"a\",\"body\":1}\\n' | posthaste enqueue --store sqlite:app.db --ndjson -")]
pub struct Enqueue {
    #[command(flatten)]
    pub at: Single,
    /// The event's type, such as order.placed
    #[arg(long = "type", value_name = "TYPE", required_unless_present = "ndjson")]
    pub event_type: Option<String>,
    /// The ordering key: equal keys are delivered in order
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// The tenant the event belongs to
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// The priority; has no effect where lanes own rows
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// A header, may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// An id of your own: the same id and content again changes nothing
    #[arg(long, value_name = "UUID")]
    pub id: Option<RowId>,
    /// Not delivered before this long from now, such as 5s
    #[arg(long, value_name = "DURATION", value_parser = delay)]
    pub delay: Option<Duration>,
    /// The body; JSON if it parses as JSON, else text
    #[arg(long, value_name = "TEXT", conflicts_with = "file", required_unless_present_any = ["file", "ndjson"])]
    pub body: Option<String>,
    /// A file with the body, byte for byte; - for stdin
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The media type of the body, instead of the one that is guessed
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// A file with one event a line; - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "event_type", "key", "tenant", "priority", "headers", "id", "delay", "body", "file", "content_type"
    ])]
    pub ndjson: Option<PathBuf>,
}

/// Show how many rows wait, failed and were delivered, and who delivers them
#[derive(Args)]
#[command(after_help = "\
Examples:
  posthaste status --store postgres://app@localhost/shop --outbox orders --outbox invoices
  posthaste status --config posthaste.yaml --json
  posthaste status --store sqlite:app.db --watch")]
pub struct StatusArgs {
    #[command(flatten)]
    pub at: Several,
    /// One JSON object a line for each outbox
    #[arg(long)]
    pub json: bool,
    /// Show it again every two seconds
    #[arg(long)]
    pub watch: bool,
}

/// A target beside the configuration.
#[derive(Args)]
pub struct To {
    /// The one target of all events, instead of the routes in --config
    #[arg(long = "to", id = "to", value_name = "URL")]
    pub url: Option<String>,
    /// Private addresses that a webhook of --to may reach, such as 127.0.0.0/8; may be repeated
    #[arg(long, value_name = "CIDR", requires = "to")]
    pub allow_net: Vec<String>,
    /// The environment variable with the secret that signs the webhooks of --to
    #[arg(long, value_name = "VAR", requires = "to")]
    pub secret_env: Option<String>,
}

/// Which rows.
#[derive(Args)]
pub struct Which {
    /// Rows with this status: pending, processing, failed, published or invalid
    #[arg(long, value_name = "STATUS")]
    pub status: Option<Status>,
    /// Rows of this type; * stands for any characters
    #[arg(long = "type", value_name = "GLOB")]
    pub event_type: Option<String>,
    /// Rows with this ordering key
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Rows of this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

impl Which {
    /// The filter.
    pub fn filter(&self) -> Filter {
        Filter {
            status: self.status,
            event_type: self.event_type.clone(),
            key: self.key.clone(),
            tenant: self.tenant.clone(),
        }
    }
}

/// List rows, oldest first, without their bodies
#[derive(Args)]
#[command(after_help = "\
Examples:
  posthaste list --store sqlite:app.db --status invalid
  posthaste list --store sqlite:app.db --type 'order.*' --limit 20 --json")]
pub struct List {
    #[command(flatten)]
    pub at: Single,
    #[command(flatten)]
    pub which: Which,
    /// At most this many rows; all of them without it
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// One row.
#[derive(Args)]
pub struct One {
    /// The row's id
    #[arg(value_name = "ID")]
    pub id: RowId,
    #[command(flatten)]
    pub at: Single,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// A row to explain.
#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    pub one: One,
    /// The --http address of a relay, to ask it which targets it has paused; such as 127.0.0.1:9100
    #[arg(long, value_name = "HOST:PORT")]
    pub relay: Option<RelayAddress>,
}

/// Rows to change.
#[derive(Args)]
pub struct Operate {
    /// Ids of rows
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub ids: Vec<RowId>,
    #[command(flatten)]
    pub at: Single,
    /// All undelivered and invalid rows that the filters leave
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub which: Which,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// Only count the rows
    #[arg(long)]
    pub dry_run: bool,
    /// {"matched","changed"} as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Delete old rows that were delivered, or old dead letters
#[derive(Args)]
#[command(after_help = "\
Examples:
  posthaste prune --store sqlite:app.db --older-than 7d
  posthaste prune --store sqlite:app.db --status invalid --older-than 30d --dry-run")]
pub struct Prune {
    #[command(flatten)]
    pub at: Single,
    /// Older than this; the configured retention (a day) without it
    #[arg(long, value_name = "DURATION", value_parser = delay)]
    pub older_than: Option<Duration>,
    /// published or invalid
    #[arg(long, value_name = "STATUS", default_value = "published")]
    pub status: Status,
    /// Only count the rows
    #[arg(long)]
    pub dry_run: bool,
    /// {"matched","changed"} as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Connect to everything, and say what is wrong and what to do
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 all is well, 1 there are warnings, 2 something must be changed, 3 a
service can't be reached.

Examples:
  posthaste doctor --config posthaste.yaml
  posthaste doctor --store postgres://app@localhost/shop --to 'amqp://localhost/%2f'")]
pub struct Doctor {
    #[command(flatten)]
    pub at: Several,
    #[command(flatten)]
    pub to: To,
    /// One JSON object a line for each finding
    #[arg(long)]
    pub json: bool,
}

/// Deliver: read the rows of outboxes, publish them, mark them; until it is stopped
#[derive(Args)]
#[command(after_help = "\
One relay at a time pumps an outbox; a second one waits and takes over at once when
the first ends. A database or broker that is down delays events and loses none.
SIGTERM and Ctrl-C stop it in an orderly way: what is in flight gets 10 s, and what
was confirmed is marked. A second signal ends it at once.

Targets: stdout:  file:PATH  sqlite:FILE  amqp(s)://HOST/VHOST?exchange=E&routing_key=T
  http(s)://HOST/PATH. {type}, {key} and {tenant} may stand in routing key and path.

With --until-empty it ends with 0 once nothing is left to deliver, with 1 if rows
became invalid, only rows that no route takes are left, or a signal came before that,
and with 3 on --timeout.

Examples:
  posthaste relay --store sqlite:app.db --to stdout:
  posthaste relay --store postgres://app@localhost/shop --to 'amqp://localhost/%2f?exchange=orders' --http 127.0.0.1:9100
  posthaste relay --config posthaste.yaml
  posthaste relay --store sqlite:app.db --to file:out.ndjson --until-empty")]
pub struct Relay {
    #[command(flatten)]
    pub at: Several,
    #[command(flatten)]
    pub to: To,
    /// End once nothing is left to deliver
    #[arg(long, conflicts_with = "once", group = "ending")]
    pub until_empty: bool,
    /// Read everything once, deliver what can be delivered, and end
    #[arg(long, group = "ending")]
    pub once: bool,
    /// With --until-empty or --once: give up after this long, with 3
    #[arg(long, value_name = "DURATION", value_parser = delay, requires = "ending")]
    pub timeout: Option<Duration>,
    /// Serve /metrics, /health/live, /health/ready, /status and a page, such as 127.0.0.1:9100
    #[arg(long, value_name = "ADDR")]
    pub http: Option<std::net::SocketAddr>,
    /// The name that operators see; made up without it
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// What to log, such as info or posthaste_relay=debug [env: RUST_LOG]
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
}

fn delay(text: &str) -> Result<Duration, String> {
    duration::parse(text, Bare::Seconds)
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
