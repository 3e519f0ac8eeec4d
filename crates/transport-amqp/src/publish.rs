//! A batch: published without waiting in between, then every confirmation awaited, then judged.

use std::{
    collections::{BTreeSet, HashMap},
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::future::poll_immediate;
use lapin::{Channel, Confirmation, PublisherConfirm, options::BasicPublishOptions};
use posthaste_core::{Failure, Message};
use tokio::time::{Instant, timeout_at};

use crate::{
    channels::{Channels, Lease},
    classify::{Fate, Returned, judge},
    connection::Connection,
    declare,
    properties::Outgoing,
};

type Answer = Result<(), Failure>;
type Publishing<'a> = Pin<Box<dyn Future<Output = Result<PublisherConfirm, lapin::Error>> + Send + 'a>>;

/// One answer a message, in order, within `deadline`.
///
/// Dropping the future closes the channel; any subset of the batch may have been delivered.
pub(crate) async fn publish(channels: &Channels, batch: &[Message], deadline: Duration) -> Vec<Answer> {
    let deadline = Instant::now() + deadline;
    let rendered: Vec<Result<Outgoing, Failure>> = batch.iter().map(Outgoing::of).collect();
    let wanted: BTreeSet<&str> = rendered.iter().flatten().map(|outgoing| outgoing.exchange.as_str()).collect();
    if wanted.is_empty() {
        return rendered.into_iter().map(|rendered| rendered.map(drop)).collect();
    }
    let (lease, refused) = match declare::lease_with(channels, &wanted, deadline).await {
        Ok(leased) => leased,
        Err(failure) => return rendered.into_iter().map(|rendered| rendered.and(Err(failure.clone()))).collect(),
    };
    let frame_max = lease.connection.frame_max();
    let (mut verdicts, mut sent, mut bodies) = (Vec::with_capacity(batch.len()), Vec::new(), Vec::new());
    for (rendered, message) in rendered.into_iter().zip(batch) {
        let checked = rendered.and_then(|outgoing| check(outgoing, &refused, frame_max));
        verdicts.push(checked.map(|outgoing| {
            sent.push(outgoing);
            bodies.push(message.body().map_or(&[][..], |body| &body[..]));
        }));
    }
    let mut answers = send(lease, sent, &bodies, deadline).await.into_iter();
    verdicts.into_iter().map(|verdict| verdict.and_then(|()| answers.next().unwrap_or_else(unjudged))).collect()
}

fn check(outgoing: Outgoing, refused: &HashMap<String, Failure>, frame_max: usize) -> Result<Outgoing, Failure> {
    if let Some(failure) = refused.get(outgoing.exchange.as_str()) {
        return Err(failure.clone());
    }
    outgoing.fits(frame_max).map(|()| outgoing)
}

/// The judgement has one answer a message, so this is never asked; if it were, sending again is right.
fn unjudged() -> Answer {
    Err(Failure::lost("no judgement"))
}

async fn send(lease: Lease, mut sent: Vec<Outgoing>, bodies: &[&[u8]], deadline: Instant) -> Vec<Answer> {
    let heard = lease.connection.heard();
    let mut flight = Flight::start(&lease, &mut sent, bodies);
    if timeout_at(deadline, flight.land()).await.is_err() {
        flight.sweep().await;
    }
    let (fates, returned) = flight.end();
    finish(lease, &sent, &fates, heard);
    judge(&sent, &fates, &returned)
}

/// What becomes of the channel and the connection after a batch.
fn finish(lease: Lease, sent: &[Outgoing], fates: &[Fate], heard: u64) {
    let connection = &lease.connection;
    if fates.iter().all(|fate| matches!(fate, Fate::Acked | Fate::Nacked)) {
        return lease.give_back();
    }
    // If an exchange is gone, it is asserted again before its next use.
    sent.iter().for_each(|outgoing| connection.set_declared(outgoing.exchange.as_str(), false));
    // One queue may never confirm while others do: that costs the channel. If nothing at all was heard
    // meanwhile, it is the connection that hangs.
    let unanswered = fates.iter().any(|fate| matches!(fate, Fate::Unanswered));
    if unanswered && connection.heard() == heard {
        connection.give_up();
    }
}

/// Where a message of the batch is.
enum Stage<'a> {
    Writing(Publishing<'a>),
    Waiting(PublisherConfirm),
    Landed(Fate),
}

/// A batch under way on one channel.
///
/// If it ends, or is dropped, before every message is written whole, the connection is given up: lapin
/// would write the rest after closing the channel, which the broker answers by closing the connection.
struct Flight<'a> {
    connection: &'a Connection,
    stages: Vec<Stage<'a>>,
    returned: Returned,
}

impl<'a> Flight<'a> {
    /// Hands every message to lapin, in order, without waiting for any.
    fn start(lease: &'a Lease, sent: &mut [Outgoing], bodies: &[&'a [u8]]) -> Flight<'a> {
        // Nobody is to be woken for each of them: whoever waits asks again.
        let mut first_poll = Context::from_waker(Waker::noop());
        let stage = |(outgoing, body): (&mut Outgoing, &&'a [u8])| {
            let mut publishing = write(&lease.channel, outgoing, body);
            match publishing.as_mut().poll(&mut first_poll) {
                Poll::Pending => Stage::Writing(publishing),
                Poll::Ready(written) => after_writing(written),
            }
        };
        let stages = sent.iter_mut().zip(bodies).map(stage).collect();
        Flight { connection: &lease.connection, stages, returned: Returned::new() }
    }

    /// Waits for every message to land. Cancellation keeps what has landed.
    ///
    /// The last first: when it has landed most others have, and the task is woken once for all of them.
    async fn land(&mut self) {
        for at in (0..self.stages.len()).rev() {
            if let Stage::Writing(publishing) = &mut self.stages[at] {
                self.stages[at] = after_writing(publishing.await);
            }
        }
        for at in (0..self.stages.len()).rev() {
            if let Stage::Waiting(confirm) = &mut self.stages[at] {
                let confirmed = confirm.await;
                self.record(at, confirmed);
            }
        }
    }

    /// Takes in what has landed already, without waiting. The return of a message may have come with the
    /// confirmation of another that was looked at before, so it looks again until nothing is new.
    async fn sweep(&mut self) {
        let mut news = true;
        while std::mem::take(&mut news) {
            for at in 0..self.stages.len() {
                if let Stage::Writing(publishing) = &mut self.stages[at]
                    && let Some(written) = poll_immediate(publishing).await
                {
                    self.stages[at] = after_writing(written);
                }
                if let Stage::Waiting(confirm) = &mut self.stages[at]
                    && let Some(confirmed) = poll_immediate(confirm).await
                {
                    self.record(at, confirmed);
                    news = true;
                }
            }
        }
    }

    fn record(&mut self, at: usize, confirmed: Result<Confirmation, lapin::Error>) {
        let (fate, returned) = match confirmed {
            Ok(Confirmation::Ack(returned)) => (Fate::Acked, returned),
            Ok(Confirmation::Nack(returned)) => (Fate::Nacked, returned),
            // Confirmations are on wherever channels are made; without one, nothing is known.
            Ok(Confirmation::NotRequested) => (Fate::Unanswered, None),
            Err(error) => (Fate::Lost(error), None),
        };
        if matches!(fate, Fate::Acked | Fate::Nacked) {
            self.connection.hear();
        }
        if let Some(message) = returned {
            let id = message.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default();
            self.returned.insert(id, (message.reply_code, message.reply_text.to_string()));
        }
        self.stages[at] = Stage::Landed(fate);
    }

    fn end(mut self) -> (Vec<Fate>, Returned) {
        let fate = |stage: &Stage<'_>| match stage {
            Stage::Writing(_) => Fate::Unwritten(None),
            Stage::Waiting(_) => Fate::Unanswered,
            Stage::Landed(fate) => fate.clone(),
        };
        (self.stages.iter().map(fate).collect(), std::mem::take(&mut self.returned))
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if self.stages.iter().any(|stage| matches!(stage, Stage::Writing(_))) {
            self.connection.give_up();
        }
    }
}

fn after_writing<'a>(written: Result<PublisherConfirm, lapin::Error>) -> Stage<'a> {
    match written {
        Ok(confirm) => Stage::Waiting(confirm),
        Err(error) => Stage::Landed(Fate::Unwritten(Some(error))),
    }
}

/// Ends once the message is written whole. Takes the properties out of `outgoing`.
fn write<'a>(channel: &'a Channel, outgoing: &mut Outgoing, body: &'a [u8]) -> Publishing<'a> {
    // Mandatory: without a queue for it, the message comes back instead of being dropped.
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let (exchange, routing_key) = (outgoing.exchange.clone(), outgoing.routing_key.clone());
    let properties = std::mem::take(&mut outgoing.properties);
    Box::pin(channel.basic_publish(exchange, routing_key, options, body, properties))
}
