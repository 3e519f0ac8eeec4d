//! Asks a relay, at its `--http` address, what it knows about a row.

use std::{fmt, str::FromStr, time::Duration};

use posthaste_core::{OutboxName, Row};
use posthaste_relay::route::TypePattern;
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{exit::Fault, explain::RelaySays, http::PausedJson, setup::called, wiring::RouteJson};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const MOST_ANSWER: u64 = 1 << 20;

/// Where a relay serves its status: `HOST:PORT` or `http://HOST:PORT/`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelayAddress(String);

impl FromStr for RelayAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<RelayAddress, String> {
        let address = text.strip_prefix("http://").unwrap_or(text);
        let address = address.split_once('/').map_or(address, |(address, _)| address);
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
        match port {
            Some(Ok(_)) => Ok(RelayAddress(address.to_owned())),
            _ => Err("write HOST:PORT, as the relay was given with --http".to_owned()),
        }
    }
}

impl fmt::Display for RelayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What of a relay's `/status` matters here.
#[derive(Deserialize)]
struct Status {
    relay: Vec<OutboxJson>,
    routes: Vec<RouteJson>,
}

#[derive(Deserialize)]
struct OutboxJson {
    outbox: String,
    owns_lanes: bool,
    paused: Vec<PausedJson>,
}

/// Asks the relay at `address` about `row` of `outbox`.
///
/// # Errors
/// It does not answer, or does not pump the outbox.
pub async fn ask(address: &RelayAddress, outbox: &OutboxName, row: &Row) -> Result<RelaySays, Fault> {
    let unreachable = |why: String| Fault::Failed {
        code: 3,
        error: format!("the relay at {address} does not answer: {why}"),
        hint: Some("--relay takes the address that the relay was given with --http".to_owned()),
    };
    let asked = tokio::time::timeout(PATIENCE, get_status(address)).await;
    let body = asked.map_err(|_| unreachable("no answer in time".to_owned()))?;
    let body = body.map_err(|error| unreachable(error.to_string()))?;
    let status: Status =
        serde_json::from_str(&body).map_err(|_| unreachable("that is no relay's status".to_owned()))?;
    says(address, &status, outbox, row).ok_or_else(|| {
        let pumped: Vec<&str> = status.relay.iter().map(|entry| entry.outbox.as_str()).collect();
        let error = format!("the relay at {address} does not pump {}", called(outbox));
        Fault::usage(error).hint(format!("it pumps: {}", pumped.join(", ")))
    })
}

/// A paused target matters only to the rows that a route leads there.
fn says(address: &RelayAddress, status: &Status, outbox: &OutboxName, row: &Row) -> Option<RelaySays> {
    let mine = status.relay.iter().find(|entry| entry.outbox == outbox.to_string())?;
    let leads_there = |target: &str| status.routes.iter().any(|route| route.target == target && waits_for(row, route));
    let paused = mine.paused.iter().find(|paused| leads_there(&paused.target));
    Some(RelaySays {
        name: address.to_string(),
        owns_lane: mine.owns_lanes,
        in_flight: false,
        paused: paused.map(|paused| {
            (paused.target.clone(), paused.why.clone().unwrap_or_else(|| "the relay's log says why".to_owned()))
        }),
    })
}

fn waits_for(row: &Row, route: &RouteJson) -> bool {
    let asked_for = row.outstanding.as_ref().is_none_or(|keys| keys.iter().any(|key| key.as_str() == route.route));
    asked_for && route.pattern.parse().is_ok_and(|pattern: TypePattern| pattern.matches(&row.event_type))
}

async fn get_status(address: &RelayAddress) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(&address.0).await?;
    stream.write_all(b"GET /status HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(MOST_ANSWER).read_to_string(&mut answer).await?;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn an_address_may_be_what_the_relay_printed() {
        for (text, address) in [
            ("127.0.0.1:9100", Some("127.0.0.1:9100")),
            ("http://127.0.0.1:9100", Some("127.0.0.1:9100")),
            ("http://relay.internal:80/status", Some("relay.internal:80")),
            ("[::1]:9100", Some("[::1]:9100")),
            ("localhost", None),
            (":9100", None),
            ("https://localhost:9100", None),
            ("localhost:99999", None),
        ] {
            assert_eq!(text.parse::<RelayAddress>().ok().map(|parsed| parsed.0).as_deref(), address, "{text}");
        }
    }

    fn paused(row: &Row, target: &str) -> Option<String> {
        let status = format!(
            r#"{{"relay":[{{"outbox":"outbox","owns_lanes":true,"paused":[{{"target":"{target}","why":"refused"}}]}}],"routes":[
                {{"route":"a","match":"order.*","target":"rabbit"}},
                {{"route":"b","match":"*","target":"partner"}},
                {{"route":"c","match":"invoice.*","target":"books"}}]}}"#
        );
        let status: Status = serde_json::from_str(&status).unwrap();
        let address = "h:1".parse().unwrap();
        says(&address, &status, &OutboxName::unnamed(), row).unwrap().paused.map(|(target, _)| target)
    }

    #[test]
    fn report_021_a_paused_target_is_named_only_to_the_rows_that_wait_for_it() {
        let row = Row { event_type: "order.placed".into(), outstanding: None, ..sample::row() };
        assert_eq!(paused(&row, "rabbit").as_deref(), Some("rabbit"));
        assert_eq!(paused(&row, "partner").as_deref(), Some("partner"));
        assert_eq!(paused(&row, "books"), None, "no route leads this type there");
        let half = Row { outstanding: Some(vec!["a".into()]), ..row };
        assert_eq!(paused(&half, "partner"), None, "its route is confirmed already");
        assert_eq!(paused(&half, "rabbit").as_deref(), Some("rabbit"));
    }
}
