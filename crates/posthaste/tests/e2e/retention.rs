//! Old rows go, undelivered ones never do.

use std::time::Duration;

use posthaste::{Settings, Status};
use posthaste_store_postgres::Settings as StoreSettings;
use posthaste_testkit::{scripted::Scripted, service};

use crate::{
    bench::{Bench, events},
    desk::{Desk, Plan, route},
};

/// Rows of two days ago, and a look at how many each statement deletes.
const OLD: &str = r#"
    INSERT INTO "{t}" (type, body, status, created_at, published_at)
        SELECT 't', 'x', 'published', now() - interval '2 days', now() - interval '2 days'
        FROM generate_series(1, 2500);
    INSERT INTO "{t}" (type, body, status, created_at, published_at)
        SELECT 't', 'x', 'published', now() - interval '2 days', now() FROM generate_series(1, 5);
    INSERT INTO "{t}" (type, body, status, created_at)
        SELECT 'unknown', 'x', status, now() - interval '2 days'
        FROM unnest(ARRAY['pending', 'failed', 'invalid']) AS status, generate_series(1, 7);
    CREATE TABLE "{t}_deleted" (count bigint);
    CREATE FUNCTION "{t}_delete"() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO "{t}_deleted" SELECT count(*) FROM gone; RETURN NULL; END $$;
    CREATE TRIGGER count AFTER DELETE ON "{t}" REFERENCING OLD TABLE AS gone
        FOR EACH STATEMENT EXECUTE FUNCTION "{t}_delete"()"#;

#[tokio::test(flavor = "multi_thread")]
async fn rows_r46_report_139_old_published_rows_go_in_batches_and_nothing_else_does() {
    let Some(desk) = Desk::new().await else { return };
    desk.sql(OLD).await;
    let plan = Plan::default().target("nowhere", Scripted::new().target()).route(route("r", "order.*", "nowhere"));
    let relay = desk.start(plan, Settings::default());
    desk.until("the old ones are gone", |status| status.published == 5).await;
    relay.stop().await;
    let status = desk.status().await;
    assert_eq!((status.pending, status.failed, status.invalid), (7, 7, 7));
    let most = desk.number(r#"SELECT max(count) FROM "{t}_deleted""#).await;
    assert!(most <= 1000, "{most} rows in one transaction");
    desk.sql(r#"DROP TABLE "{t}_deleted" CASCADE; DROP FUNCTION "{t}_delete" CASCADE"#).await;
    desk.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_r46_without_retention_a_row_goes_as_soon_as_it_is_published() {
    let (Some(postgres), Some(amqp)) = (service::postgres(), service::rabbitmq()) else { return };
    let bench =
        Bench::with(&postgres, &amqp, StoreSettings { retention: Duration::ZERO, ..StoreSettings::default() }).await;
    let relay = bench.relay(Settings { retention: Duration::ZERO, ..Settings::default() });
    bench.enqueue(&events(0..500)).await;
    bench.receive(500).await;
    bench.until("nothing is left", |status| status.pending + status.published == 0).await;
    assert_eq!(bench.number(r#"SELECT count(*) FROM "{t}""#).await, 0);
    relay.stop().await;
    assert_eq!(bench.queued().await, 0, "sent again");
    bench.tear_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_143_a_dead_letter_stays_until_an_operator_says_otherwise() {
    let Some(desk) = Desk::new().await else { return };
    let scripted = Scripted::new();
    scripted.answer_all(posthaste_testkit::scripted::Answer::Fail(posthaste_core::Failure::new(
        posthaste_core::Class::Permanent,
        "refused",
    )));
    let relay =
        desk.start(Plan::all_to(scripted.target()), Settings { retention: Duration::ZERO, ..Settings::default() });
    let ids = desk.enqueue(&events(0..3)).await;
    desk.until("all are dead letters", |status| status.invalid == 3).await;
    relay.stop().await;
    let row = desk.row(ids[0]).await;
    assert_eq!((row.status, row.last_error.as_deref()), (Status::Invalid, Some("permanent: refused")));
    assert!(!row.body.is_empty());
    desk.clear().await;
}
