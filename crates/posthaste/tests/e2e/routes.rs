//! One row, several routes; targets that fail in every way; over a real database.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use posthaste::{Event, MessageId, RouteKey, RowId, Settings, Status, port::TransportCapabilities, route::Route};
use posthaste_core::{Class, Failure};
use posthaste_testkit::scripted::{Answer, Scripted};

use crate::{
    bench::{PATIENCE, event, events},
    desk::{Desk, Plan, route, says, until_health},
};

fn typed(event_type: &str, n: usize) -> Event {
    Event { event_type: event_type.to_owned(), ..event(n) }
}

/// What a scripted target waits for; not for ever.
async fn soon<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, wait).await.expect("the target gets what it is to get")
}

fn down() -> Answer {
    Answer::Fail(Failure::new(Class::Transient, "down"))
}

/// Two targets, each with a route of its own for every event.
fn both(good: &Arc<Scripted>, other: &Arc<Scripted>) -> Plan {
    let plan = Plan::default().target("good", good.target()).target("other", other.target());
    plan.route(route("to good", "*", "good")).route(route("to other", "*", "other"))
}

fn ids(messages: &[posthaste::Message]) -> Vec<MessageId> {
    let mut ids: Vec<MessageId> = messages.iter().map(|message| message.id).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r58_a_dead_target_delays_only_itself() {
    let Some(desk) = Desk::new().await else { return };
    let (good, dead) = (Scripted::new(), Scripted::new());
    dead.answer_all(down());
    dead.answer_probe(Err(Failure::new(Class::Transient, "down")));
    let relay = desk.start(both(&good, &dead), Settings::default());
    let rows = desk.enqueue(&events(0..200)).await;
    soon(good.received(200)).await;
    let outstanding = Some(vec![RouteKey::from("to other")]);
    for id in [rows[0], rows[199]] {
        let row = desk.until_row(id, "the row shows what is left", |row| row.outstanding == outstanding).await;
        assert_eq!((row.status, row.attempts), (Status::Pending, 0));
    }
    assert!(says(&relay.health(), "target other is paused"));
    dead.answer_all(Answer::Confirm);
    dead.answer_probe(Ok(()));
    soon(dead.received(200)).await;
    desk.until_published(200).await;
    relay.stop().await;
    assert_eq!((good.taken().len(), dead.taken().len()), (200, 200), "a route is served twice");
    desk.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tw_05_rows_r20_a_row_that_cannot_be_rendered_is_not_sent_at_all() {
    let Some(desk) = Desk::new().await else { return };
    let (plain, made) = (Scripted::new(), Scripted::new());
    let broken = Arc::new(AtomicBool::new(true));
    let payload = {
        let broken = Arc::clone(&broken);
        move |row: &posthaste::Row| {
            let fails = row.event_type == "bad" && broken.load(SeqCst);
            if fails { Err("no such member".to_owned()) } else { Ok(Bytes::from_static(b"{}")) }
        }
    };
    let rendered = Route { payload: Some(Arc::new(payload)), ..route("made", "*", "made") };
    let plan = Plan::default().target("plain", plain.target()).target("made", made.target());
    let relay = desk.start(plan.route(route("plain", "*", "plain")).route(rendered), Settings::default());
    let rows = desk.enqueue(&[typed("good", 1), typed("bad", 2), typed("good", 3)]).await;
    let bad = desk.until_row(rows[1], "the reason is recorded", |row| row.last_error.is_some()).await;
    assert_eq!((bad.status, bad.attempts), (Status::Failed, 0));
    assert!(bad.last_error.unwrap().starts_with("render: route made: payload: no such member"));
    desk.until("the others are published", |status| status.published == 2).await;
    assert_eq!((plain.taken().len(), made.taken().len()), (2, 2), "a sibling was sent");
    broken.store(false, SeqCst);
    soon(plain.received(3)).await;
    soon(made.received(3)).await;
    desk.until_published(3).await;
    relay.stop().await;
    desk.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lw_08_lw_10_decision_05_a_type_without_a_route_waits_and_is_named() {
    let Some(desk) = Desk::new().await else { return };
    let orders = Scripted::new();
    let plan = || Plan::default().target("t", orders.target());
    let relay = desk.start(plan().route(route("orders", "order.*", "t")), Settings::default());
    let rows = desk.enqueue(&[typed("invoice.made", 1), typed("order.placed", 2)]).await;
    soon(orders.received(1)).await;
    let row = desk.until_row(rows[0], "a note is made", |row| row.last_error.is_some()).await;
    assert_eq!((row.status, row.attempts), (Status::Pending, 0));
    assert!(row.last_error.unwrap().starts_with("deferred: "));
    assert_eq!(desk.status().await.deferred_types, ["invoice.made"]);
    assert_eq!(relay.progress()[0].1.borrow().deferred.get("invoice.made"), Some(&1));
    relay.stop().await;
    assert_eq!(orders.taken().len(), 1);
    let relay = desk.start(plan().route(route("all", "*", "t")), Settings::default());
    assert_eq!(soon(orders.received(2)).await[1].row.id, rows[0]);
    desk.until_published(2).await;
    assert!(desk.status().await.deferred_types.is_empty());
    relay.stop().await;
    desk.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_021_no_session_waits_in_a_transaction_while_a_target_hangs() {
    let Some(desk) = Desk::new().await else { return };
    let (hung, quick) = (Scripted::new(), Scripted::new());
    hung.shut();
    let plan = || {
        let plan = Plan::default().target("hung", hung.target()).target("quick", quick.target());
        plan.route(route("hung", "t1", "hung")).route(route("quick", "t2", "quick"))
    };
    let relays = [desk.start(plan(), Settings::default()), desk.start(plan(), Settings::default())];
    desk.enqueue(&[typed("t1", 0)]).await;
    soon(hung.begun(1)).await;
    for n in 0..100 {
        desk.enqueue(&[typed("t2", n)]).await;
        let sessions = format!("posthaste%{}%", desk.outbox);
        let old = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE $1
            AND state LIKE 'idle in transaction%' AND clock_timestamp() - state_change > interval '1 second'";
        assert_eq!(desk.client.query_one(old, &[&sessions]).await.unwrap().get::<_, i64>(0), 0);
    }
    soon(quick.received(100)).await;
    desk.until("they are marked", |status| status.published == 100).await;
    assert_eq!(hung.in_flight(), 1);
    hung.open();
    desk.until_published(101).await;
    for relay in relays {
        relay.stop().await;
    }
    assert_eq!((hung.taken().len(), quick.taken().len()), (1, 100));
    desk.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_084_each_class_of_failure_costs_its_own_row_only() {
    let Some(desk) = Desk::new().await else { return };
    let scripted = Scripted::new();
    let rows: Vec<RowId> = (0..20).map(|_| RowId::generate()).collect();
    let (refused, shaky, tries) = (rows[0], rows[1], std::sync::atomic::AtomicU32::new(0));
    scripted.answer(move |message| match message.row.id {
        id if id == refused => Answer::Fail(Failure::new(Class::Permanent, "never")),
        id if id == shaky && tries.fetch_add(1, SeqCst) < 2 => down(),
        _ => Answer::Confirm,
    });
    let batch: Vec<Event> = rows.iter().enumerate().map(|(n, id)| event(n).id(*id).key(format!("k{n}"))).collect();
    desk.enqueue(&batch).await;
    let relay = desk.start(Plan::all_to(scripted.target()), Settings::default());
    desk.until("all are settled", |status| (status.published, status.invalid) == (19, 1)).await;
    relay.stop().await;
    let (dead, late) = (desk.row(refused).await, desk.row(shaky).await);
    assert_eq!(
        (dead.status, dead.attempts, dead.last_error.as_deref()),
        (Status::Invalid, 1, Some("permanent: never"))
    );
    assert_eq!((late.status, late.attempts), (Status::Published, 0));
    let tried = |id| scripted.publications().iter().filter(|one| one.message.row.id == id).count();
    assert_eq!((tried(refused), tried(shaky)), (1, 3));
    assert!(rows[2..].iter().all(|id| tried(*id) == 1), "the others go in the first pass");
    desk.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_098_a_row_that_nothing_can_be_done_with_holds_up_no_other() {
    let Some(desk) = Desk::new().await else { return };
    let (good, panics) = (Scripted::new(), Scripted::new());
    panics.answer_all(Answer::Panic);
    let plan = Plan::default().target("good", good.target()).target("panics", panics.target());
    let plan = plan.route(route("good", "good", "good")).route(route("panics", "panics", "panics"));
    let unknown = desk.enqueue(&[typed("unknown", 0)]).await[0];
    desk.sql(
        r#"INSERT INTO "{t}" (id, type, body, headers)
        VALUES ('00000000-0000-7000-8000-000000000001', 'good', '{}', '"not a map"')"#,
    )
    .await;
    let unparsable: RowId = "00000000-0000-7000-8000-000000000001".parse().unwrap();
    let panicking = desk.enqueue(&[typed("panics", 0)]).await[0];
    desk.enqueue(&(0..47).map(|n| typed("good", n)).collect::<Vec<_>>()).await;
    let relay = desk.start(plan, Settings::default());
    assert_eq!(ids(&soon(good.received(47)).await).len(), 47);
    let status = |id| desk.until_row(id, "the reason is recorded", |row| row.last_error.is_some());
    let (unknown, unparsable, panicking) = (status(unknown).await, status(unparsable).await, status(panicking).await);
    assert_eq!((unknown.status, unparsable.status), (Status::Pending, Status::Invalid));
    assert!(unparsable.last_error.as_deref().is_some_and(|why| why.contains("headers")), "{unparsable:?}");
    assert!(panicking.last_error.as_deref().is_some_and(|why| why.contains("panicked")), "{panicking:?}");
    desk.until("the good ones are marked", |status| status.published == 47).await;
    assert!(relay.health().recovers());
    relay.stop().await;
    assert_eq!(good.publications().len(), 47, "sent more than once");
    desk.clear().await;
}

/// A target that takes no more than this at once.
fn narrow() -> Arc<Scripted> {
    Scripted::with(TransportCapabilities { max_batch: 5, concurrency: 2, max_body: None })
}

#[tokio::test(flavor = "multi_thread")]
async fn report_101_a_slow_target_takes_nothing_from_a_quick_one() {
    let Some(desk) = Desk::new().await else { return };
    let (slow, quick) = (narrow(), narrow());
    slow.shut();
    let plan = Plan::default().target("slow", slow.target()).target("quick", quick.target());
    let plan = plan.route(route("slow", "slow", "slow")).route(route("quick", "quick", "quick"));
    let batch = |of: &'static str, count| (0..count).map(move |n| typed(of, n)).collect::<Vec<_>>();
    desk.enqueue(&batch("slow", 200)).await;
    desk.enqueue(&batch("quick", 50)).await;
    let relay = desk.start(plan, Settings { publish_timeout: Duration::from_secs(600), ..Settings::default() });
    soon(quick.received(50)).await;
    assert!(slow.taken().is_empty() && slow.most_in_flight() <= 10);
    slow.open();
    desk.until_published(250).await;
    relay.stop().await;
    desk.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_101_a_slow_target_with_a_long_backlog_takes_nothing_from_a_quick_one() {
    let Some(desk) = Desk::new().await else { return };
    let (slow, quick) = (Scripted::new(), Scripted::new());
    slow.shut();
    let plan = Plan::default().target("slow", slow.target()).target("quick", quick.target());
    let plan = plan.route(route("slow", "slow", "slow")).route(route("quick", "quick", "quick"));
    let batch = |of: &'static str, count| (0..count).map(move |n| typed(of, n)).collect::<Vec<_>>();
    desk.enqueue(&batch("slow", 5000)).await;
    desk.enqueue(&batch("quick", 50)).await;
    let relay = desk.start(plan, Settings { publish_timeout: Duration::from_secs(600), ..Settings::default() });
    soon(quick.received(50)).await;
    assert!(slow.taken().is_empty());
    slow.open();
    desk.until_published(5050).await;
    relay.stop().await;
    desk.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r58_a_target_that_is_paused_is_told_by_name_and_forgotten_when_it_works() {
    let Some(desk) = Desk::new().await else { return };
    let (good, flaky) = (Scripted::new(), Scripted::new());
    flaky.answer_all(down());
    let relay = desk.start(both(&good, &flaky), Settings::default());
    desk.enqueue(&events(0..5)).await;
    until_health(&relay, "it is named", |health| says(health, "target other is paused")).await;
    assert!(!says(&relay.health(), "target good"));
    flaky.answer_all(Answer::Confirm);
    desk.until_published(5).await;
    assert_eq!(ids(&good.taken()).len(), 5);
    until_health(&relay, "all is well", |health| health.reasons().is_empty()).await;
    relay.stop().await;
    assert_eq!(good.taken().len(), 5, "a healthy route pays for the other");
    desk.clear().await;
}
