//! Names that need care work in every command, and never meet each other.

use std::time::Duration;

use posthaste_core::{
    OutboxName, RowId, Status,
    port::{Filter, PruneRequest, SchemaState, Selection},
};

use super::scene::{Scene, by, event};
use crate::suite::case::cases;

cases![Scene;
    report_145_names_with_capitals_work,
    report_145_names_with_hyphens_work,
    report_145_names_with_reserved_words_work,
    report_145_names_with_spaces_work,
    report_145_names_with_dots_work,
    report_145_names_of_the_greatest_length_do_not_meet,
    report_145_names_that_differ_in_case_do_not_meet,
];

/// `prefix` and enough random digits that parallel runs don't meet.
fn unique(prefix: &str) -> String {
    let id = RowId::generate().uuid().simple().to_string();
    format!("{prefix}{}", &id[20..])
}

fn named(name: &str) -> OutboxName {
    name.parse().expect("a valid name")
}

/// Everything that can be done to an outbox, once.
async fn full_life(scene: &Scene) {
    let rows = scene.commit(&[event("a").key("k"), event("b"), event("c"), event("d")]).await;
    scene.insert(&[3], b"x").await;
    assert_eq!(scene.undelivered().await.len(), 5);
    scene.mark(&[rows[0].id]).await;
    scene.invalidate(rows[1].id).await;
    let status = scene.store.status().await.expect("status");
    assert_eq!((status.pending, status.invalid), (3, 1));
    assert_eq!(scene.store.list(&Filter::default(), 0, 10).await.expect("list").len(), 5);
    let ids = |n: usize| Selection::Ids(vec![rows[n].id]);
    assert_eq!(scene.store.retry(&ids(1), &by(), 10).await.expect("retry").changed, 1);
    assert_eq!(scene.store.discard(&ids(2), &by(), 10).await.expect("discard").changed, 1);
    scene.place.age(scene.seq(rows[0].id).await, Duration::from_secs(60)).await;
    let request = PruneRequest { status: Status::Published, older_than: Duration::from_secs(30) };
    assert_eq!(scene.store.prune(&request, 10).await.expect("prune"), 1);
    let held = scene.store.try_hold("relay").await.expect("try_hold").expect("free");
    held.release().await;
    scene.store.wakeups().arm().await.expect("arm");
    scene.store.migrate().await.expect("migrate");
    assert_eq!(scene.store.schema().await.expect("schema"), SchemaState::Current);
    assert_eq!(scene.undelivered().await.len(), 3);
}

async fn report_145_names_with_capitals_work(scene: &Scene) {
    full_life(&scene.another(named(&unique("Outbox"))).await).await;
}

async fn report_145_names_with_hyphens_work(scene: &Scene) {
    full_life(&scene.another(named(&unique("my-schema-"))).await).await;
}

async fn report_145_names_with_reserved_words_work(scene: &Scene) {
    full_life(&scene.another(named(&format!("{} order", unique("select ")))).await).await;
}

async fn report_145_names_with_spaces_work(scene: &Scene) {
    full_life(&scene.another(named(&unique("a b "))).await).await;
}

async fn report_145_names_with_dots_work(scene: &Scene) {
    full_life(&scene.another(named(&unique("1.public.x."))).await).await;
}

/// Both outboxes are there, and each holds only its own rows.
async fn apart(scene: &Scene, first: &str, second: &str) {
    let (first, second) = (scene.another(named(first)).await, scene.another(named(second)).await);
    let id = first.commit_one(event("first")).await;
    assert_eq!(second.undelivered().await, []);
    full_life(&second).await;
    let rows = first.undelivered().await;
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
    full_life(&scene.another(named(&unique("third-"))).await).await;
}

async fn report_145_names_of_the_greatest_length_do_not_meet(scene: &Scene) {
    let stem = format!("{:x<39}", unique("long-"));
    apart(scene, &format!("{stem}a"), &format!("{stem}b")).await;
}

async fn report_145_names_that_differ_in_case_do_not_meet(scene: &Scene) {
    let name = unique("case-");
    apart(scene, &format!("{name}-a"), &format!("{name}-A")).await;
}
