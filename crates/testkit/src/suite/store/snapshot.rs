//! The proof that comes with a page: from which transactions rows behind it may still appear.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use posthaste_core::{
    LaneSet, Proof, RowId, Seq, Snapshot,
    port::{Page, ReadRequest},
};
use tokio::{sync::watch, task::JoinSet};

use super::{
    Place,
    scene::{Scene, event, everything, numbered},
};
use crate::{mark_ids, suite::case::cases};

cases![Scene;
    port_l5_decision_02_an_open_writer_is_seen_in_progress needs Snapshots,
    port_l5_decision_02_an_empty_page_sees_open_writers_too needs Snapshots,
    port_l5_decision_02_a_late_row_stands_behind_the_cursor needs ConcurrentWriters,
    port_l5_rows_appear_behind_a_page_only_from_writers_it_saw,
    port_m_the_transaction_that_marks_ends_with_it,
];

async fn port_l5_decision_02_an_open_writer_is_seen_in_progress(scene: &Scene) {
    let mut late = scene.begin().await;
    let _ = late.enqueue(&[event("late").key("k")]).await.expect("enqueue");
    let number = late.transaction().await.expect("a store with concurrent writers has snapshots");
    scene.commit(&[event("soon").key("k")]).await;
    let page = scene.page(everything()).await;
    assert_eq!(page.rows.len(), 1);
    assert!(snapshot(&page).sees_in_progress(number), "{number} in {:?}", page.proof);
    assert!(snapshot(&page).xmin <= number, "{number} in {:?}", page.proof);
    late.commit().await;
    let page = scene.page(everything()).await;
    assert_eq!(page.rows.len(), 2);
    assert!(!snapshot(&page).sees_in_progress(number), "{number} in {:?}", page.proof);
}

async fn port_l5_decision_02_an_empty_page_sees_open_writers_too(scene: &Scene) {
    let mut late = scene.begin().await;
    let _ = late.enqueue(&[event("late")]).await.expect("enqueue");
    let number = late.transaction().await.expect("a store with concurrent writers has snapshots");
    let page = scene.page(everything()).await;
    assert_eq!((page.rows.len(), page.more), (0, LaneSet::EMPTY));
    assert!(snapshot(&page).sees_in_progress(number), "{number} in {:?}", page.proof);
    late.rollback().await;
    let page = scene.page(everything()).await;
    assert!(!snapshot(&page).sees_in_progress(number), "{number} in {:?}", page.proof);
}

async fn port_l5_decision_02_a_late_row_stands_behind_the_cursor(scene: &Scene) {
    let mut late = scene.begin().await;
    let early = late.enqueue(&[event("late").key("k")]).await.expect("enqueue").rows()[0];
    let soon = scene.commit(&[event("soon").key("k")]).await[0];
    let first = scene.page(everything()).await;
    assert_eq!(first.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [soon.id]);
    late.commit().await;
    scene.commit(&[event("last").key("k")]).await;
    let next = ReadRequest { from: vec![(soon.lane, first.rows[0].seq)], ..everything() };
    let page = scene.page(next).await;
    let late = scene.seq(early.id).await;
    match &page.proof {
        Proof::Ordered => panic!("two wrote at once, and rows did not become visible in order"),
        Proof::Snapshot(snapshot) => assert!(first.proof.snapshot() != Some(snapshot), "{snapshot:?}"),
        Proof::Behind(behind) => {
            let mut expected = vec![(early.lane, late), (soon.lane, first.rows[0].seq)];
            expected.sort_unstable();
            let mut behind = behind.clone();
            behind.sort_unstable();
            assert_eq!(behind, expected);
        }
    }
}

fn snapshot(page: &Page) -> &Snapshot {
    page.proof.snapshot().expect("a store with snapshots gives one with each page")
}

/// What the writers know of each row: the transaction it came from.
type Origins = Arc<Mutex<HashMap<RowId, Option<u64>>>>;

async fn port_l5_rows_appear_behind_a_page_only_from_writers_it_saw(scene: &Scene) {
    let writers = if scene.facts().concurrent_writers { 6 } else { 1 };
    let origins = Origins::default();
    let read = watch::Sender::new(0);
    let mut tasks = JoinSet::new();
    for number in 0..writers {
        let place = Arc::clone(&scene.place);
        tasks.spawn(write(place, number, Arc::clone(&origins), read.subscribe()));
    }
    let mut pages = Vec::new();
    while !tasks.is_empty() {
        pages.push(scene.page(everything()).await);
        read.send_replace(pages.len());
        while let Some(ended) = tasks.try_join_next() {
            ended.expect("a writer");
        }
    }
    pages.push(scene.page(everything()).await);
    assert_late_rows_were_announced(&pages, &origins.lock().unwrap_or_else(PoisonError::into_inner));
    assert_eq!(pages.last().map(|page| page.rows.len()), Some(writers * 30 * 2));
}

/// 30 transactions of two rows each, which stay open while up to three pages are read.
async fn write(place: Arc<dyn Place>, writer: usize, origins: Origins, mut read: watch::Receiver<usize>) {
    for n in 0..30 {
        let mut tx = place.begin().await;
        let events = [numbered(n).key(format!("k{}", writer % 3)), numbered(n)];
        let receipt = tx.enqueue(&events).await.expect("enqueue");
        let number = tx.transaction().await;
        origins.lock().unwrap_or_else(PoisonError::into_inner).extend(receipt.ids().map(|id| (id, number)));
        let until = *read.borrow() + (n * 7 + writer * 3) % 4;
        read.wait_for(|pages| *pages >= until).await.expect("the reader reads on");
        tx.commit().await;
    }
}

/// Every row that appeared at or below a `seq` that an earlier page had in its lane must come from
/// a transaction that this page saw in progress.
fn assert_late_rows_were_announced(pages: &[Page], origins: &HashMap<RowId, Option<u64>>) {
    let mut proofs: Vec<(Option<&Snapshot>, HashMap<u8, Seq>)> = Vec::new();
    let mut seen = HashSet::new();
    for page in pages {
        for row in page.rows.iter().filter(|row| seen.insert(row.id)) {
            let behind = |tops: &HashMap<u8, Seq>| tops.get(&row.lane.number()).is_some_and(|top| row.seq <= *top);
            for (snapshot, _) in proofs.iter().filter(|(_, tops)| behind(tops)) {
                let announced = match snapshot {
                    Some(snapshot) => origins[&row.id].is_some_and(|number| snapshot.sees_in_progress(number)),
                    None => matches!(page.proof, Proof::Behind(_)),
                };
                assert!(announced, "seq {} of {:?} in {snapshot:?}", row.seq, origins[&row.id]);
            }
        }
        let mut tops = HashMap::new();
        for row in &page.rows {
            let top = tops.entry(row.lane.number()).or_insert(row.seq);
            *top = row.seq.max(*top);
        }
        proofs.push((page.proof.snapshot(), tops));
    }
}

async fn port_m_the_transaction_that_marks_ends_with_it(scene: &Scene) {
    let id = scene.commit_one(event("t")).await;
    let marked = mark_ids(scene.store.as_ref(), &[id]).await.expect("mark");
    assert_eq!(marked.transaction.is_some(), scene.facts().snapshots);
    let page = scene.page(everything()).await;
    let sees = |number| page.proof.snapshot().is_some_and(|snapshot| snapshot.sees_in_progress(number));
    assert!(!marked.transaction.is_some_and(sees), "{marked:?} {:?}", page.proof);
}
