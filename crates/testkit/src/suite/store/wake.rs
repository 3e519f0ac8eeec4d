//! Wake-ups: a commit after arming is never slept through.

use std::{sync::Arc, time::Duration};

use posthaste_core::{
    Lane, LaneSet,
    port::{Armed, Selection, Wake, Wakeups},
};

use super::scene::{Scene, by, event};
use crate::suite::case::cases;

cases![Scene;
    port_w2_every_commit_after_arming_wakes,
    port_w2_a_plain_insert_wakes_too,
    port_w2_a_writer_under_way_is_not_slept_through,
    port_w2_disarmed_and_armed_again_it_wakes,
    port_w_what_waits_behind_a_discarded_row_is_read_again,
    port_w_a_dropped_wait_loses_nothing,
    port_w_opening_does_no_io,
];

/// Longer than any wake-up takes, shorter than a case may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Arms, reading on as long as a writer is under way.
async fn arm(wakeups: &dyn Wakeups) {
    while wakeups.arm().await.expect("arm") == Armed::WriterUnderWay {
        tokio::task::yield_now().await;
    }
}

/// Waits for a hint that names `lane`; others may come first.
async fn woken(wakeups: &dyn Wakeups, lane: Lane) -> Wake {
    let named = async {
        loop {
            let wake = wakeups.next().await;
            assert!(wake.healthy, "the source broke");
            if wake.lanes.contains(lane) {
                return wake;
            }
        }
    };
    tokio::time::timeout(PATIENCE, named).await.expect("a wake-up after the commit")
}

fn open(scene: &Scene) -> Arc<dyn Wakeups> {
    scene.reopen().wakeups()
}

async fn port_w2_every_commit_after_arming_wakes(scene: &Scene) {
    let wakeups = open(scene);
    for n in 0..20 {
        arm(&*wakeups).await;
        let rows = scene.commit(&[event("t").key(format!("k{n}"))]).await;
        woken(&*wakeups, rows[0].lane).await;
    }
}

async fn port_w2_a_plain_insert_wakes_too(scene: &Scene) {
    let wakeups = open(scene);
    arm(&*wakeups).await;
    scene.insert(&[5, 90], b"x").await;
    let lanes = LaneSet::from_iter(scene.undelivered().await.iter().map(|row| row.lane));
    for lane in lanes.iter() {
        arm(&*wakeups).await;
        scene.insert(&[lane.number()], b"x").await;
        woken(&*wakeups, lane).await;
    }
}

async fn port_w2_a_writer_under_way_is_not_slept_through(scene: &Scene) {
    let wakeups = open(scene);
    for armed_before in [false, true] {
        if !armed_before {
            wakeups.disarm().await.expect("disarm");
        }
        let mut tx = scene.begin().await;
        let receipt = tx.enqueue(&[event("t").key("k")]).await.expect("enqueue");
        let armed = wakeups.arm().await.expect("arm");
        assert!(scene.undelivered().await.is_empty(), "the read between arming and waiting sees nothing");
        tx.commit().await;
        match armed {
            Armed::Yes => {
                woken(&*wakeups, receipt.rows()[0].lane).await;
            }
            // The relay reads on and meets the row before it may sleep.
            Armed::WriterUnderWay => arm(&*wakeups).await,
        }
        let rows = scene.undelivered().await;
        assert_eq!(rows.len(), 1);
        scene.mark(&[rows[0].id]).await;
    }
}

async fn port_w2_disarmed_and_armed_again_it_wakes(scene: &Scene) {
    let wakeups = open(scene);
    for _ in 0..3 {
        wakeups.disarm().await.expect("disarm");
        scene.commit(&[event("t").key("k")]).await;
        arm(&*wakeups).await;
        let rows = scene.commit(&[event("t").key("k")]).await;
        woken(&*wakeups, rows[0].lane).await;
    }
}

async fn port_w_a_dropped_wait_loses_nothing(scene: &Scene) {
    let wakeups = open(scene);
    for _ in 0..3 {
        arm(&*wakeups).await;
        // Given up in the middle of a wait, again and again, while the commit happens.
        let waiting = tokio::spawn({
            let wakeups = Arc::clone(&wakeups);
            async move {
                loop {
                    if let Ok(wake) = tokio::time::timeout(Duration::from_millis(3), wakeups.next()).await {
                        return wake;
                    }
                }
            }
        });
        scene.commit(&[event("t").key("k")]).await;
        let wake = tokio::time::timeout(PATIENCE, waiting).await.expect("a wake-up").expect("the waiting task");
        assert!(wake.healthy);
    }
}

async fn port_w_opening_does_no_io(scene: &Scene) {
    // Nothing is there yet; opening must not mind.
    let bare = scene.bare().await;
    let _wakeups = bare.store.wakeups();
    bare.store.migrate().await.expect("migrate");
}

async fn port_w_what_waits_behind_a_discarded_row_is_read_again(scene: &Scene) {
    let wakeups = open(scene);
    let rows = scene.commit(&[event("first").key("k"), event("second").key("k")]).await;
    scene.fail(rows[0].id).await;
    arm(&*wakeups).await;
    // The first look at the database finds what was there before.
    let quiet = Duration::from_millis(300);
    while tokio::time::timeout(quiet, wakeups.next()).await.is_ok() {
        arm(&*wakeups).await;
    }
    let discarded = scene.store.discard(&Selection::Ids(vec![rows[0].id]), &by(), 10).await.expect("discard");
    assert_eq!(discarded.changed, 1);
    while !woken(&*wakeups, rows[0].lane).await.rewind {
        arm(&*wakeups).await;
    }
}
