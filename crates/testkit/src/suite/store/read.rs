//! Reading pages: what is in them, in which order, within which bounds.

use std::collections::BTreeMap;

use posthaste_core::{
    Body, Lane, LaneSet, Row, Seq, Status,
    port::{Page, ReadRequest},
};

use super::scene::{Scene, blob, event, everything, lane, numbered};
use crate::suite::case::cases;

cases![Scene;
    port_l1_only_committed_rows_that_are_undelivered,
    port_l1_only_rows_behind_the_cursor,
    port_l1_each_lane_has_its_own_cursor needs ManyLanes,
    port_l1_a_lane_that_was_not_asked_for_is_left_out,
    port_l1_only_lanes_that_were_asked_for needs ManyLanes,
    port_l1_decision_03_rows_that_are_not_due_are_read,
    port_l2_a_prefix_of_each_lane_whatever_the_limits,
    port_l2_rows_of_a_lane_ascend,
    port_l3_at_most_per_lane_rows_of_a_lane,
    port_l3_per_lane_counts_each_lane_on_its_own needs ManyLanes,
    port_l3_at_most_max_rows_in_all,
    port_l3_at_most_max_bytes_of_bodies,
    port_l3_the_first_row_comes_even_if_it_is_over_the_budget,
    port_l3_a_body_over_max_body_is_not_read,
    port_l4_more_says_whether_rows_are_left,
    port_l4_more_names_the_lanes_that_have_rows_left needs ManyLanes,
    port_l4_pages_end_to_end_hold_every_row_once,
    port_l_an_empty_outbox_is_an_empty_page,
    port_l_the_clock_is_the_databases_and_goes_on,
];

async fn port_l1_only_committed_rows_that_are_undelivered(scene: &Scene) {
    let events: Vec<_> = (0..5).map(numbered).collect();
    let ids: Vec<_> = scene.commit(&events).await.iter().map(|row| row.id).collect();
    scene.claim(ids[1]).await;
    scene.fail(ids[2]).await;
    scene.invalidate(ids[3]).await;
    scene.mark(&[ids[4]]).await;
    let mut open = scene.begin().await;
    let _ = open.enqueue(&[event("open")]).await.expect("enqueue");
    let rows = scene.undelivered().await;
    let found: Vec<_> = rows.iter().map(|row| (row.id, row.status)).collect();
    open.rollback().await;
    assert_eq!(found, [(ids[0], Status::Pending), (ids[1], Status::Processing), (ids[2], Status::Failed)]);
}

async fn port_l1_only_rows_behind_the_cursor(scene: &Scene) {
    let all = one_key(scene, 4).await;
    for (n, row) in all.iter().enumerate() {
        let page = scene.page(ReadRequest { from: vec![(row.lane, row.seq)], ..everything() }).await;
        assert_eq!(page.rows, all[n + 1..], "behind row {n}");
    }
}

async fn port_l1_each_lane_has_its_own_cursor(scene: &Scene) {
    scene.insert(&[3, 9, 3, 9, 3], b"x").await;
    let all = scene.undelivered().await;
    let from = vec![(lane(3), all[2].seq), (lane(9), all[1].seq)];
    let page = scene.page(ReadRequest { from, ..everything() }).await;
    assert_eq!(seqs(&page.rows), [all[3].seq, all[4].seq]);
    let from = vec![(lane(3), all[4].seq), (lane(9), 0)];
    let page = scene.page(ReadRequest { from, ..everything() }).await;
    assert_eq!(seqs(&page.rows), [all[1].seq, all[3].seq]);
}

async fn port_l1_a_lane_that_was_not_asked_for_is_left_out(scene: &Scene) {
    let all = one_key(scene, 2).await;
    let mut request = everything();
    request.from.retain(|(lane, _)| *lane != all[0].lane);
    let page = scene.page(request).await;
    assert_eq!((page.rows, page.more), (vec![], LaneSet::EMPTY));
}

async fn port_l1_only_lanes_that_were_asked_for(scene: &Scene) {
    scene.insert(&[0, 5, 127, 64], b"x").await;
    let from = vec![(lane(127), 0), (lane(5), 0), (lane(6), 0)];
    let page = scene.page(ReadRequest { from, ..everything() }).await;
    let mut lanes: Vec<u8> = page.rows.iter().map(|row| row.lane.number()).collect();
    lanes.sort_unstable();
    assert_eq!(lanes, [5, 127]);
    let none = scene.page(ReadRequest { from: vec![], ..everything() }).await;
    assert_eq!((none.rows, none.more), (vec![], LaneSet::EMPTY));
}

async fn port_l1_decision_03_rows_that_are_not_due_are_read(scene: &Scene) {
    let hour = std::time::Duration::from_secs(3600);
    let before = scene.now().await;
    let id = scene.commit_one(event("later").key("k").delay(hour)).await;
    scene.commit(&[event("sooner").key("k")]).await;
    let rows = scene.undelivered().await;
    let after = scene.now().await;
    assert_eq!((rows.len(), rows[0].id), (2, id));
    assert!(rows[0].due_at.since(before) >= hour && rows[0].due_at.since(after) <= hour, "{}", rows[0].due_at);
}

async fn port_l2_a_prefix_of_each_lane_whatever_the_limits(scene: &Scene) {
    let lanes: Vec<u8> = (0..48).map(|n| [0, 7, 7, 90, 127][n % 5]).collect();
    for chunk in lanes.chunks(8) {
        scene.insert(chunk, &vec![b'x'; chunk[0] as usize]).await;
    }
    let all = scene.undelivered().await;
    let gone: Vec<_> = all.iter().step_by(7).map(|row| row.id).collect();
    scene.mark(&gone).await;
    let left = scene.undelivered().await;
    assert_eq!(seqs(&left), scene.truth().await);
    let cursors = [0, all[5].seq, all[20].seq, all[47].seq];
    for (n, cursor) in cursors.into_iter().enumerate() {
        for (per_lane, max_rows, max_bytes) in
            [(1, 100, 1 << 20), (3, 5, 1 << 20), (50, 7, 300), (4, 50, 1), (50, 1, 0)]
        {
            let from = [0, 7, 90, 127].map(|number| (lane(number), if number == 7 { 0 } else { cursor })).to_vec();
            let request = ReadRequest { from, per_lane, max_rows, max_bytes, max_body: 1 << 20 };
            let page = scene.page(request.clone()).await;
            assert_legal(&page, &request, &left, &format!("cursor {n}, {request:?}"));
        }
    }
}

/// Holds a page against the clauses L1 to L4, `left` being all undelivered rows.
fn assert_legal(page: &Page, request: &ReadRequest, left: &[Row], context: &str) {
    let mut more = LaneSet::EMPTY;
    let mut rest: Vec<&Row> = page.rows.iter().collect();
    for (lane, cursor) in &request.from {
        let due: Vec<Seq> =
            left.iter().filter(|row| row.lane == *lane && row.seq > *cursor).map(|row| row.seq).collect();
        let got: Vec<Seq> = page.rows.iter().filter(|row| row.lane == *lane).map(|row| row.seq).collect();
        rest.retain(|row| row.lane != *lane);
        assert!(due.starts_with(&got), "L2, lane {lane}: {got:?} is no prefix of {due:?}; {context}");
        assert!(got.len() <= request.per_lane as usize, "L3, lane {lane}: {} rows; {context}", got.len());
        if got.len() < due.len() {
            more.insert(*lane);
        }
    }
    assert!(rest.is_empty(), "L1: rows of lanes that were not asked for: {rest:?}; {context}");
    assert!(page.rows.len() <= request.max_rows as usize, "L3: {} rows; {context}", page.rows.len());
    let bytes: u64 = page.rows.iter().map(|row| row.body.len() as u64).sum();
    let with_bytes = page.rows.iter().filter(|row| !row.body.is_empty()).count();
    assert!(bytes <= request.max_bytes || with_bytes == 1, "L3: {bytes} bytes; {context}");
    assert_eq!(page.more, more, "L4; {context}");
    assert!(!page.rows.is_empty() || more.is_empty(), "a page brings at least one row; {context}");
}

async fn port_l2_rows_of_a_lane_ascend(scene: &Scene) {
    for n in 0..4 {
        scene.commit(&(0..25).map(|m| numbered(n * 25 + m).key("k")).collect::<Vec<_>>()).await;
    }
    let page = scene.page(everything()).await;
    assert_eq!(page.rows.len(), 100);
    assert!(page.rows.windows(2).all(|pair| pair[0].seq < pair[1].seq), "{:?}", seqs(&page.rows));
}

async fn port_l3_at_most_per_lane_rows_of_a_lane(scene: &Scene) {
    let all = one_key(scene, 5).await;
    let page = scene.page(ReadRequest { per_lane: 3, ..everything() }).await;
    assert_eq!(page.rows, all[..3], "as many as may come");
    assert_eq!(page.more, LaneSet::from_iter([all[0].lane]));
}

async fn port_l3_per_lane_counts_each_lane_on_its_own(scene: &Scene) {
    scene.insert(&[1, 1, 1, 2, 1, 2], b"x").await;
    let page = scene.page(ReadRequest { per_lane: 2, ..everything() }).await;
    let counts = count_by_lane(&page.rows);
    assert_eq!(counts, BTreeMap::from([(lane(1), 2), (lane(2), 2)]));
    assert_eq!(page.more, LaneSet::from_iter([lane(1)]));
}

async fn port_l3_at_most_max_rows_in_all(scene: &Scene) {
    scene.insert(&[1, 2, 3, 4, 1, 2, 3, 4], b"x").await;
    let request = ReadRequest { max_rows: 3, ..everything() };
    let page = scene.page(request.clone()).await;
    assert_eq!(page.rows.len(), 3, "as many as may come");
    assert_legal(&page, &request, &scene.undelivered().await, "max_rows 3");
}

async fn port_l3_at_most_max_bytes_of_bodies(scene: &Scene) {
    scene.insert(&[1, 1, 1, 1, 1], &[b'x'; 100]).await;
    let request = ReadRequest { max_bytes: 250, ..everything() };
    let page = scene.page(request.clone()).await;
    assert!((1..=2).contains(&page.rows.len()), "{} rows of 100 bytes in 250", page.rows.len());
    assert_legal(&page, &request, &scene.undelivered().await, "max_bytes 250");
    let exact = scene.page(ReadRequest { max_bytes: 500, ..everything() }).await;
    assert_eq!((exact.rows.len(), exact.more), (5, LaneSet::EMPTY), "a budget may be used up");
}

async fn port_l3_the_first_row_comes_even_if_it_is_over_the_budget(scene: &Scene) {
    let rows = scene.commit(&[blob(vec![b'x'; 5000]).key("k"), blob("y").key("k"), blob("z").key("k")]).await;
    let page = scene.page(ReadRequest { max_bytes: 100, ..everything() }).await;
    assert_eq!(page.rows[0].body.len(), 5000);
    assert!(page.rows.iter().skip(1).all(|row| row.body.is_empty()), "alone");
    assert_eq!(page.more, LaneSet::from_iter([rows[0].lane]));
}

async fn port_l3_a_body_over_max_body_is_not_read(scene: &Scene) {
    let rows = scene.commit(&[blob(vec![1; 2001]).key("k"), blob(vec![1; 2000]).key("k"), blob("x").key("k")]).await;
    let page = scene.page(ReadRequest { max_body: 2000, ..everything() }).await;
    assert_eq!(page.rows.len(), 3, "it does not hide the rows after it");
    assert_eq!((page.rows[0].id, &page.rows[0].body), (rows[0].id, &Body::TooLarge(2001)));
    assert_eq!(page.rows[1].body.len(), 2000, "as large as it may be");
    assert!(page.more.is_empty());
}

async fn port_l4_more_says_whether_rows_are_left(scene: &Scene) {
    let all = one_key(scene, 4).await;
    let (first, left) = (all[0].lane, LaneSet::from_iter([all[0].lane]));
    let more = async |from: Seq, per_lane: u32, max_rows: u32| {
        scene.page(ReadRequest { from: vec![(first, from)], per_lane, max_rows, ..everything() }).await.more
    };
    assert_eq!(more(0, 3, 100).await, left);
    assert_eq!(more(0, 4, 100).await, LaneSet::EMPTY, "all came");
    assert_eq!(more(0, 100, 3).await, left);
    assert_eq!(more(0, 100, 4).await, LaneSet::EMPTY, "all came");
    assert_eq!(more(all[0].seq, 3, 100).await, LaneSet::EMPTY);
    scene.mark(&[all[3].id]).await;
    assert_eq!(more(0, 3, 100).await, LaneSet::EMPTY, "a published row is not left");
    assert_eq!(scene.page(ReadRequest { max_bytes: 2, ..everything() }).await.more, left);
}

async fn port_l4_more_names_the_lanes_that_have_rows_left(scene: &Scene) {
    scene.insert(&[1, 1, 2, 2, 3], b"x").await;
    let more = |page: Page| page.more;
    let exactly_two = more(scene.page(ReadRequest { per_lane: 2, ..everything() }).await);
    assert_eq!(exactly_two, LaneSet::EMPTY);
    let one = more(scene.page(ReadRequest { per_lane: 1, ..everything() }).await);
    assert_eq!(one, LaneSet::from_iter([lane(1), lane(2)]));
    let ids: Vec<_> = scene.undelivered().await.iter().map(|row| row.id).collect();
    scene.mark(&ids[1..2]).await;
    let after_mark = more(scene.page(ReadRequest { per_lane: 1, ..everything() }).await);
    assert_eq!(after_mark, LaneSet::from_iter([lane(2)]), "a published row is not left");
    let from = vec![(lane(1), 0), (lane(3), 0)];
    let asked = more(scene.page(ReadRequest { from, per_lane: 1, ..everything() }).await);
    assert_eq!(asked, LaneSet::EMPTY, "of those asked for");
}

async fn port_l4_pages_end_to_end_hold_every_row_once(scene: &Scene) {
    let lanes: Vec<u8> = (0..120_u8).map(|n| n % 7 * 3 % 7).collect();
    scene.insert(&lanes, &[b'x'; 40]).await;
    let mut cursors: BTreeMap<Lane, Seq> = (0..7).map(|number| (lane(number), 0)).collect();
    let mut seen = Vec::new();
    loop {
        let from = cursors.iter().map(|(lane, cursor)| (*lane, *cursor)).collect();
        let request = ReadRequest { from, per_lane: 4, max_rows: 15, max_bytes: 500, max_body: 100 };
        let page = scene.page(request).await;
        for row in &page.rows {
            let cursor = cursors.entry(row.lane).or_default();
            *cursor = row.seq.max(*cursor);
            seen.push(row.seq);
        }
        if page.more.is_empty() {
            break;
        }
        assert!(!page.rows.is_empty(), "more, but no row");
    }
    seen.sort_unstable();
    assert_eq!(seen, scene.truth().await);
}

async fn port_l_an_empty_outbox_is_an_empty_page(scene: &Scene) {
    let page = scene.page(everything()).await;
    assert_eq!((page.rows, page.more), (vec![], LaneSet::EMPTY));
    assert!(page.now.micros() > 0);
}

async fn port_l_the_clock_is_the_databases_and_goes_on(scene: &Scene) {
    let before = scene.now().await;
    let id = scene.commit_one(event("t")).await;
    let row = scene.get(id).await;
    let after = scene.now().await;
    assert!(before <= row.created_at && row.created_at <= after, "{before} {} {after}", row.created_at);
    assert!(row.due_at <= after, "{} {after}", row.due_at);
}

/// So many rows of one key, as a page has them.
async fn one_key(scene: &Scene, count: usize) -> Vec<Row> {
    scene.commit(&(0..count).map(|n| numbered(n).key("k")).collect::<Vec<_>>()).await;
    scene.undelivered().await
}

/// The `seq` of each row, in order of `seq`.
fn seqs(rows: &[Row]) -> Vec<Seq> {
    let mut seqs: Vec<Seq> = rows.iter().map(|row| row.seq).collect();
    seqs.sort_unstable();
    seqs
}

fn count_by_lane(rows: &[Row]) -> BTreeMap<Lane, usize> {
    rows.iter().fold(BTreeMap::new(), |mut counts, row| {
        *counts.entry(row.lane).or_default() += 1;
        counts
    })
}
