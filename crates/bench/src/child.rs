//! A relay in a process of its own: this program again, told so by its first argument.

use std::{
    io::{BufRead as _, Read as _},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use posthaste_relay::Settings;
use posthaste_store_postgres::{PostgresStore, Settings as StoreSettings};

use crate::{Result, ours, queue, scene::Outbox};

const MARK: &str = "as-relay";

pub(crate) fn is_one() -> bool {
    std::env::args().nth(1).is_some_and(|first| first == MARK)
}

/// A running relay; it is stopped in an orderly way when this is dropped.
pub(crate) struct RelayProcess(Child);

impl RelayProcess {
    /// Starts it and waits until it has read its outbox once.
    pub(crate) fn start(outbox: &Outbox, rabbitmq: &str, queue: &str) -> Result<RelayProcess> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([MARK, &outbox.url, outbox.name.as_str(), rabbitmq, queue]);
        let mut child = RelayProcess(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let output = child.0.stdout.take().ok_or("the relay has no output")?;
        let mut line = String::new();
        std::io::BufReader::new(output).read_line(&mut line)?;
        if line == "ready\n" { Ok(child) } else { Err("the relay did not start".into()) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Relays until the standard input ends.
#[tokio::main]
pub(crate) async fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let [url, outbox, rabbitmq, queue] = &arguments[..] else { return Err("four arguments are needed".into()) };
    let outbox = outbox.parse()?;
    let store = PostgresStore::new(url, posthaste_core::OutboxName::clone(&outbox), StoreSettings::default())?;
    let relay = ours::start(&outbox, Arc::new(store), queue::target(rabbitmq, queue)?, Settings::default())?;
    for (_, mut progress) in relay.progress() {
        progress.wait_for(|progress| progress.passes > 0).await?;
    }
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    relay.stop().await;
    Ok(())
}
