//! A transport that answers from a script, for tests of the relay.
//!
//! It keeps every publication in the order in which it began, tells what the broker behind it
//! would hold, and can hold publications back until they are released. Tests wait on it by
//! events, never by time.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join_all;
use posthaste_core::{
    AddressTemplate, Failure, Message, RowId,
    port::{Target, Transport, TransportCapabilities},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

/// What the script says to one message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Taken and confirmed.
    Confirm,
    /// Not taken: this failure.
    Fail(Failure),
    /// Taken, but the connection is lost before the confirmation: this failure.
    TakeAndFail(Failure),
    /// Taken, but never answered: `no_answer` once the deadline has passed.
    Silence,
    /// The transport panics.
    Panic,
}

/// How a publication stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Begun, not answered.
    InFlight,
    /// Answered so.
    Answered(Answer),
    /// The caller gave it up, or its deadline passed while it was held back.
    GivenUp,
}

/// One message of one call of `publish`.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The message.
    pub message: Message,
    /// Which call brought it, from 0.
    pub call: usize,
    /// How it stands.
    pub progress: Progress,
}

impl Publication {
    /// Whether the broker holds it, confirmed or not.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(self.progress, Progress::Answered(Answer::Confirm | Answer::TakeAndFail(_) | Answer::Silence))
    }
}

type Script = Arc<dyn Fn(&Message) -> Answer + Send + Sync>;

/// The scripted transport. Confirms everything until told otherwise.
pub struct Scripted {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

struct State {
    script: Script,
    capabilities: TransportCapabilities,
    publications: Vec<Publication>,
    calls: usize,
    in_flight: usize,
    most_in_flight: usize,
    shut: bool,
    /// Publications held back, in the order in which they began.
    held: VecDeque<usize>,
    /// How many of them may go on.
    released: usize,
    closed: usize,
    probe: Result<(), Failure>,
}

impl Default for Scripted {
    fn default() -> Scripted {
        let state = State {
            script: Arc::new(|_| Answer::Confirm),
            capabilities: TransportCapabilities { max_batch: 100, concurrency: 4, max_body: None },
            publications: Vec::new(),
            calls: 0,
            in_flight: 0,
            most_in_flight: 0,
            shut: false,
            held: VecDeque::new(),
            released: 0,
            closed: 0,
            probe: Ok(()),
        };
        Scripted { state: Mutex::new(state), changed: watch::Sender::new(()) }
    }
}

impl Scripted {
    /// A transport that confirms everything, 100 a batch, 4 batches at once.
    #[must_use]
    pub fn new() -> Arc<Scripted> {
        Arc::default()
    }

    /// The same with these capabilities.
    #[must_use]
    pub fn with(capabilities: TransportCapabilities) -> Arc<Scripted> {
        let scripted = Scripted::default();
        scripted.state().capabilities = capabilities;
        Arc::new(scripted)
    }

    /// The target that it is the transport of.
    #[must_use]
    pub fn target(self: &Arc<Self>) -> Target {
        let transport: Arc<dyn Transport> = self.clone();
        Target { label: "scripted:".to_owned(), address: AddressTemplate::default(), transport }
    }

    /// Answers by this script from now on.
    pub fn answer(&self, script: impl Fn(&Message) -> Answer + Send + Sync + 'static) {
        self.state().script = Arc::new(script);
    }

    /// Answers everything so from now on.
    pub fn answer_all(&self, answer: Answer) {
        self.answer(move |_| answer.clone());
    }

    /// Answers messages of this row so from now on; all others as before.
    pub fn answer_row(&self, row: RowId, answer: Answer) {
        self.refine(move |message| (message.row.id == row).then(|| answer.clone()));
    }

    /// Answers messages of this type so from now on; all others as before.
    pub fn answer_type(&self, event_type: &str, answer: Answer) {
        let event_type = event_type.to_owned();
        self.refine(move |message| (message.row.event_type == event_type).then(|| answer.clone()));
    }

    fn refine(&self, exception: impl Fn(&Message) -> Option<Answer> + Send + Sync + 'static) {
        let before = Arc::clone(&self.state().script);
        self.answer(move |message| exception(message).unwrap_or_else(|| before(message)));
    }

    /// Answers probes so from now on.
    pub fn answer_probe(&self, answer: Result<(), Failure>) {
        self.state().probe = answer;
    }

    /// Holds back every publication that begins from now on, until it is released.
    pub fn shut(&self) {
        let mut state = self.state();
        state.shut = true;
        state.released = 0;
    }

    /// Lets `count` of those held back, or of those that will be, go on to their answers: the
    /// first that began comes first.
    pub fn release(&self, count: usize) {
        self.state().released += count;
        self.changed.send_replace(());
    }

    /// Lets all go on, and holds back none from now on.
    pub fn open(&self) {
        self.state().shut = false;
        self.changed.send_replace(());
    }

    /// All publications in the order in which they began.
    #[must_use]
    pub fn publications(&self) -> Vec<Publication> {
        self.state().publications.clone()
    }

    /// The messages that the broker holds, in the order in which their publications began.
    #[must_use]
    pub fn taken(&self) -> Vec<Message> {
        let state = self.state();
        state.publications.iter().filter(|one| one.is_taken()).map(|one| one.message.clone()).collect()
    }

    /// Waits until `count` publications have begun.
    pub async fn begun(&self, count: usize) -> Vec<Publication> {
        self.until(|state| state.publications.len() >= count).await;
        self.publications()
    }

    /// Waits until the broker holds `count` messages.
    pub async fn received(&self, count: usize) -> Vec<Message> {
        self.until(|state| state.publications.iter().filter(|one| one.is_taken()).count() >= count).await;
        self.taken()
    }

    /// Waits until nothing is in flight.
    pub async fn idle(&self) {
        self.until(|state| state.in_flight == 0).await;
    }

    async fn until(&self, holds: impl Fn(&State) -> bool) {
        let mut changed = self.changed.subscribe();
        while !holds(&self.state()) {
            changed.changed().await.expect("the sender lives in self");
        }
    }

    /// Publications begun and not answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state().in_flight
    }

    /// The most that ever were in flight at once.
    #[must_use]
    pub fn most_in_flight(&self) -> usize {
        self.state().most_in_flight
    }

    /// Calls of `publish`.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.state().calls
    }

    /// Calls of `close`.
    #[must_use]
    pub fn closed(&self) -> usize {
        self.state().closed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_call(&self, batch: &[Message]) -> Vec<InFlight<'_>> {
        let mut state = self.state();
        let first = state.publications.len();
        let call = state.calls;
        state.calls += 1;
        for message in batch {
            let message = message.clone();
            state.publications.push(Publication { message, call, progress: Progress::InFlight });
        }
        state.in_flight += batch.len();
        state.most_in_flight = state.most_in_flight.max(state.in_flight);
        drop(state);
        self.changed.send_replace(());
        (first..first + batch.len()).map(|number| InFlight { scripted: self, number }).collect()
    }

    /// Waits until the publication need not be held back any longer.
    async fn pass(&self, number: usize) {
        let mut changed = self.changed.subscribe();
        while !self.state().may_pass(number) {
            changed.changed().await.expect("the sender lives in self");
        }
        self.changed.send_replace(());
    }

    async fn answer_one(&self, one: InFlight<'_>, message: &Message, until: Instant) -> Result<(), Failure> {
        if timeout_at(until, self.pass(one.number)).await.is_err() {
            return Err(Failure::no_answer("held back past the deadline"));
        }
        let script = Arc::clone(&self.state().script);
        let answer = script(message);
        one.record(Progress::Answered(answer.clone()));
        match answer {
            Answer::Confirm => Ok(()),
            Answer::Fail(failure) | Answer::TakeAndFail(failure) => Err(failure),
            Answer::Silence => {
                sleep_until(until).await;
                Err(Failure::no_answer("silent, as the script says"))
            }
            Answer::Panic => panic!("as the script says"),
        }
    }
}

impl State {
    fn may_pass(&mut self, number: usize) -> bool {
        if !self.shut {
            return true;
        }
        if !self.held.contains(&number) {
            self.held.push_back(number);
        }
        if self.released == 0 || self.held.front() != Some(&number) {
            return false;
        }
        self.released -= 1;
        self.held.pop_front();
        true
    }
}

#[async_trait]
impl Transport for Scripted {
    fn capabilities(&self) -> TransportCapabilities {
        self.state().capabilities
    }

    async fn publish(&self, batch: Vec<Message>, deadline: Duration) -> Vec<Result<(), Failure>> {
        let until = Instant::now() + deadline;
        let begun = self.begin_call(&batch);
        join_all(begun.into_iter().zip(&batch).map(|(one, message)| self.answer_one(one, message, until))).await
    }

    async fn probe(&self, _deadline: Duration) -> Result<(), Failure> {
        self.state().probe.clone()
    }

    async fn close(&self) {
        self.state().closed += 1;
        self.changed.send_replace(());
    }
}

/// A publication under way; dropped without an answer, it was given up.
struct InFlight<'a> {
    scripted: &'a Scripted,
    number: usize,
}

impl InFlight<'_> {
    fn record(&self, progress: Progress) {
        self.scripted.state().publications[self.number].progress = progress;
        self.scripted.changed.send_replace(());
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.scripted.state();
        state.in_flight -= 1;
        state.held.retain(|number| *number != self.number);
        let publication = &mut state.publications[self.number];
        if publication.progress == Progress::InFlight {
            publication.progress = Progress::GivenUp;
        }
        drop(state);
        self.scripted.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::{Address, Body, Class, Event, Lane, RouteKey, Row, Status, Timestamp};

    use super::*;

    fn message(event_type: &str) -> Message {
        let Event { headers, content_type, .. } = Event::tombstone(event_type);
        let id = RowId::generate();
        let at = Timestamp::from_micros(0);
        let row = Row {
            id,
            seq: 1,
            lane: Lane::of_id(id),
            event_type: event_type.to_owned(),
            key: None,
            tenant: None,
            priority: 0,
            headers,
            content_type,
            body: Body::Null,
            due_at: at,
            status: Status::Pending,
            attempts: 0,
            last_error: None,
            outstanding: None,
            created_at: at,
            published_at: None,
            defect: None,
        };
        let route = RouteKey::single();
        let address = Address::default();
        let id = row.id.message_id(&route);
        Message { id, route, row: row.into(), source: "/posthaste/test".into(), address, payload: None }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn each_message_is_answered_by_the_script() {
        let scripted = Scripted::new();
        let batch: Vec<Message> = ["good", "bad", "lost", "silent"].map(message).into();
        let refused = Failure::new(Class::Permanent, "refused");
        let lost = Failure::lost("gone");
        scripted.answer_type("bad", Answer::Fail(refused.clone()));
        scripted.answer_type("lost", Answer::TakeAndFail(lost.clone()));
        scripted.answer_row(batch[3].row.id, Answer::Silence);
        let answers = scripted.publish(batch, LONG).await;
        assert_eq!(answers[..3], [Ok(()), Err(refused), Err(lost)]);
        assert_eq!(answers[3].as_ref().map_err(|failure| failure.class), Err(Class::Transient));
        let taken: Vec<String> = scripted.taken().iter().map(|message| message.row.event_type.clone()).collect();
        assert_eq!(taken, ["good", "lost", "silent"]);
    }

    #[tokio::test]
    async fn publications_held_back_go_on_one_by_one_in_their_order() {
        let scripted = Scripted::new();
        scripted.shut();
        let publishing = tokio::spawn({
            let scripted = Arc::clone(&scripted);
            async move { scripted.publish(["a", "b", "c"].map(message).into(), LONG).await }
        });
        scripted.begun(3).await;
        assert_eq!((scripted.in_flight(), scripted.taken().len()), (3, 0));
        scripted.release(1);
        assert_eq!(scripted.received(1).await[0].row.event_type, "a");
        scripted.release(1);
        assert_eq!(scripted.received(2).await[1].row.event_type, "b");
        scripted.open();
        assert_eq!(publishing.await.expect("the task"), vec![Ok(()); 3]);
        assert_eq!((scripted.in_flight(), scripted.most_in_flight(), scripted.calls()), (0, 3, 1));
    }

    #[tokio::test]
    async fn what_the_caller_gives_up_is_not_taken() {
        let scripted = Scripted::new();
        scripted.shut();
        tokio::select! {
            _ = scripted.publish(vec![message("a")], LONG) => unreachable!("it is held back"),
            begun = scripted.begun(1) => assert_eq!(begun[0].progress, Progress::InFlight),
        }
        scripted.idle().await;
        scripted.open();
        assert_eq!(scripted.publications()[0].progress, Progress::GivenUp);
        assert_eq!(scripted.publish(vec![message("b")], LONG).await, [Ok(())]);
        assert_eq!(scripted.taken().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn held_back_past_the_deadline_there_is_no_answer() {
        let scripted = Scripted::new();
        scripted.shut();
        let answers = scripted.publish(vec![message("a")], LONG).await;
        assert!(answers[0].is_err());
        assert_eq!(scripted.in_flight(), 0);
    }

    #[tokio::test]
    #[should_panic(expected = "as the script says")]
    async fn it_panics_if_the_script_says_so() {
        let scripted = Scripted::new();
        scripted.answer_all(Answer::Panic);
        let _ = scripted.publish(vec![message("a")], LONG).await;
    }
}
