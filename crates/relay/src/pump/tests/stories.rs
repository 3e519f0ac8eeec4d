//! Single stories, one promise each.

use std::time::Duration;

use posthaste_core::{Class, Failure, LaneSet, RouteKey, RowId, Status};

use super::model::World;
use crate::{
    pump::cause::Cause,
    settings::{Bounds, Settings},
};

const HOUR: Duration = Duration::from_secs(3600);

/// Marks only when asked to, and makes full passes only at the start.
fn patient() -> Settings {
    Settings { mark_delay: HOUR, mark_batch: 100_000, interval: HOUR, ..Settings::default() }
}

fn in_flight(world: &World) -> Vec<RowId> {
    world.batches.iter().flat_map(|batch| &batch.parts).map(|part| part.row).collect()
}

fn status(world: &World, id: RowId) -> Status {
    world.database.row(id).status
}

#[test]
fn rows_r22_r30_what_is_confirmed_in_one_interval_is_marked_by_one_write() {
    let mut world = World::new(patient(), &["r"]);
    (0..500).for_each(|_| {
        world.enqueue(None);
    });
    world.run();
    assert_eq!((world.delivered.len(), world.undelivered()), (500, 500), "sent and not marked yet");
    world.now += HOUR;
    world.pull();
    assert_eq!(world.marks.len(), 1);
    assert_eq!(world.marks[0].0.len(), 500);
    world.run();
    assert_eq!(world.undelivered(), 0);
}

#[test]
fn decision_10_marks_are_written_when_enough_wait_or_the_first_waited_long_enough() {
    let mut world = World::new(Settings { mark_batch: 10, interval: HOUR, ..Settings::default() }, &["r"]);
    (0..9).for_each(|_| {
        world.enqueue(None);
    });
    world.run();
    assert_eq!(world.undelivered(), 9);
    world.now += Duration::from_millis(250);
    world.run();
    assert_eq!(world.undelivered(), 0, "after mark_delay");
    (0..10).for_each(|_| {
        world.enqueue(None);
    });
    world.wake();
    world.run();
    assert_eq!(world.undelivered(), 0, "after mark_batch");
}

#[test]
fn rows_r25_what_is_in_flight_or_not_yet_marked_is_not_sent_again() {
    let mut world = World::new(patient(), &["r"]);
    (0..20).for_each(|_| {
        world.enqueue(None);
    });
    world.pull();
    while world.batches.is_empty() {
        world.finish_read();
        world.pull();
    }
    let before = in_flight(&world).len();
    world.state.rewind();
    while !world.state.is_idle() {
        world.pull();
        world.finish_read();
    }
    assert!(in_flight(&world).len() >= before);
    world.run();
    world.state.rewind();
    world.run();
    assert!(world.copies.values().all(|copies| *copies == 1));
    assert_eq!(world.delivered.len(), 20);
}

#[test]
fn rows_r31_a_mark_that_fails_is_tried_again_and_nothing_is_sent_twice() {
    let mut world = World::new(Settings::default(), &["r"]);
    world.enqueue(None);
    world.run();
    world.database.down = true;
    world.now += Duration::from_millis(250);
    world.run();
    assert_eq!(world.undelivered(), 1);
    world.now += Duration::from_secs(20);
    world.run();
    world.settle_down();
    assert!(world.copies.values().all(|copies| *copies == 1));
}

#[test]
fn rows_r32_report_035_a_read_that_fails_is_tried_again_ever_more_slowly() {
    let mut world = World::new(Settings::default(), &["r"]);
    world.enqueue(None);
    world.database.down = true;
    let mut reads = 0;
    let end = Duration::from_secs(30);
    while world.now < end {
        world.pull();
        reads += world.reads.len();
        if !world.finish_something() {
            world.now = world.state.next_deadline().max(world.now + Duration::from_millis(1)).min(end);
        }
    }
    assert!((2..40).contains(&reads), "{reads} reads in 30 s");
    world.settle_down();
}

#[test]
fn report_035_nothing_that_waits_for_an_answer_keeps_the_pump_spinning() {
    let mut world = World::new(Settings::default(), &["r"]);
    (0..10).for_each(|_| {
        world.enqueue(None);
    });
    world.database.down = true;
    world.run();
    world.now = world.state.next_deadline().max(world.now + Duration::from_millis(1));
    world.pull();
    assert_eq!(world.reads.len(), 1, "a read that does not end");
    for _ in 0..5 {
        let deadline = world.state.next_deadline();
        assert!(deadline > world.now, "asked to be called again at once");
        world.now = deadline;
        world.pull();
    }
}

#[test]
fn rows_r35_r36_without_lanes_nothing_is_read_and_with_them_at_once() {
    let mut world = World::new(patient(), &["r"]);
    world.enqueue(None);
    world.run();
    world.state.own(LaneSet::EMPTY);
    world.enqueue(None);
    world.wake();
    world.pull();
    assert!(world.reads.is_empty(), "read without owning a lane");
    world.now += HOUR;
    world.run();
    assert_eq!(world.undelivered(), 1, "what was confirmed before is marked all the same");
    world.state.own(LaneSet::ALL);
    world.run();
    assert_eq!(world.delivered.len(), 2);
}

#[test]
fn rows_r23_r34_publications_in_flight_are_bounded() {
    let bounds = Bounds { in_flight: 10, ..Bounds::default() };
    let mut world = World::new(Settings { bounds, ..Settings::default() }, &["r"]);
    (0..200).for_each(|_| {
        world.enqueue(None);
    });
    loop {
        world.pull();
        assert!(in_flight(&world).len() <= 10);
        if !world.finish_something() {
            break;
        }
    }
    assert_eq!(world.delivered.len(), 200);
}

#[test]
fn rows_r34_confirmed_and_unmarked_rows_are_bounded_while_marks_fail() {
    let bounds = Bounds { unmarked: 30, in_flight: 10, ..Bounds::default() };
    let mut world = World::new(Settings { bounds, batch: 10, ..Settings::default() }, &["r"]);
    (0..200).for_each(|_| {
        world.enqueue(None);
    });
    for _ in 0..2_000 {
        world.pull();
        world.marks.clear();
        if !world.batches.is_empty() {
            world.answer(0, |_, _| Ok(()));
        } else if !world.reads.is_empty() {
            world.finish_read();
        }
    }
    assert!(world.delivered.len() <= 30 + 10, "{} sent and none marked", world.delivered.len());
}

#[test]
fn tw_01_a_wake_up_during_a_read_is_not_lost() {
    let mut world = World::new(patient(), &["r"]);
    world.run();
    world.wake();
    world.pull();
    world.execute_read();
    world.enqueue(None);
    world.wake();
    world.finish_read();
    world.run();
    assert_eq!(world.delivered.len(), 1);
}

#[test]
fn tw_03_a_publication_without_an_answer_is_sent_again() {
    let mut world = World::new(Settings::default(), &["r"]);
    let id = world.enqueue(None);
    while world.batches.is_empty() {
        world.pull();
        world.finish_read();
    }
    world.answer(0, |_, _| Err(Failure::no_answer("deadline")));
    world.settle_down();
    assert_eq!(world.database.row(id).attempts, 0);
    assert_eq!(status(&world, id), Status::Published);
}

#[test]
fn decision_04_after_a_loss_rows_go_one_by_one_until_the_culprit_is_known() {
    let mut world = World::new(Settings::default(), &["r"]);
    let ids: Vec<RowId> = (0..10).map(|_| world.enqueue(None)).collect();
    let culprit = ids[3];
    let (mut rounds, mut most_lost) = (0, 0);
    while status(&world, culprit) != Status::Failed {
        world.pull();
        if let Some(batch) = world.batches.first() {
            let poisoned = batch.parts.iter().any(|part| part.row == culprit);
            most_lost = most_lost.max(if poisoned && rounds > 0 { batch.parts.len() } else { 0 });
            rounds += usize::from(poisoned);
            world.answer(0, |_, _| if poisoned { Err(Failure::lost("channel closed")) } else { Ok(()) });
        } else if !world.finish_something() {
            world.now = world.state.next_deadline().max(world.now + Duration::from_millis(1));
        }
        assert!(rounds < 50, "the culprit is never found");
    }
    assert_eq!(world.database.row(culprit).attempts, 1);
    world.settle_down();
    for id in ids {
        assert!(id == culprit || world.database.row(id).attempts == 0, "an innocent row was counted");
    }
    assert!(most_lost <= 8, "{most_lost} rows were in flight with the suspect");
}

#[test]
fn decision_16_a_dead_target_delays_only_itself_and_nothing_of_it_stays_in_memory() {
    let mut world = World::new(Settings { interval: HOUR, ..Settings::default() }, &["dead", "live"]);
    world.down.insert("dead".into());
    for n in 0..500 {
        world.enqueue((n % 2 == 0).then_some("k"));
    }
    for _ in 0..5_000 {
        world.pull();
        if !world.finish_something() {
            world.now =
                world.state.next_deadline().max(world.now + Duration::from_millis(1)).min(Duration::from_secs(5));
        }
    }
    let live = RouteKey::from("live");
    assert_eq!(world.delivered.keys().filter(|(_, route)| *route == live).count(), 500);
    assert!(world.state.work.len() <= 1, "{} rows wait in memory for a dead target", world.state.work.len());
    assert!(world.database.rows.values().all(|stored| stored.row.attempts == 0));
    world.settle_down();
    assert!(world.copies.values().all(|copies| *copies == 1), "a row was repeated on the live route");
}

#[test]
fn report_084_a_refused_row_is_dead_at_once_a_busy_one_is_sent_again_and_the_others_pass() {
    let mut world = World::new(Settings::default(), &["r"]);
    let ids: Vec<RowId> = (0..6).map(|_| world.enqueue(None)).collect();
    let mut busy = 0;
    for _ in 0..200 {
        world.pull();
        if !world.batches.is_empty() {
            world.answer(0, |id, _| match () {
                () if *id == ids[0] => Err(Failure::new(Class::Permanent, "refused")),
                () if *id == ids[1] && busy < 2 => {
                    busy += 1;
                    Err(Failure::new(Class::Transient, "busy"))
                }
                () => Ok(()),
            });
        } else if !world.finish_something() {
            world.now += Duration::from_millis(50);
        }
    }
    assert_eq!((status(&world, ids[0]), world.database.row(ids[0]).attempts), (Status::Invalid, 1));
    assert_eq!((status(&world, ids[1]), world.database.row(ids[1]).attempts), (Status::Published, 0));
    assert!(ids[2..].iter().all(|id| status(&world, *id) == Status::Published));
}

#[test]
fn product_5_nothing_later_of_a_key_goes_before_a_failed_row_is_settled() {
    let mut world = World::new(Settings::default(), &["r"]);
    let first = world.enqueue(Some("k"));
    let second = world.enqueue(Some("k"));
    for _ in 0..100 {
        world.pull();
        assert!(!in_flight(&world).contains(&second) || status(&world, first) == Status::Invalid);
        if !world.batches.is_empty() {
            let answer = |id: &RowId, _: &RouteKey| {
                if *id == first { Err(Failure::new(Class::Permanent, "refused")) } else { Ok(()) }
            };
            world.answer(0, answer);
        } else if !world.finish_something() {
            world.now += Duration::from_millis(50);
        }
    }
    assert_eq!(status(&world, second), Status::Published);
}

#[test]
fn rows_r47_deferring_leaves_everything_to_the_interval() {
    let mut world = World::new(Settings { defer: true, ..Settings::default() }, &["r"]);
    world.run();
    world.enqueue(None);
    world.state.wake(LaneSet::ALL, Cause::Immediate);
    world.state.wake(LaneSet::ALL, Cause::Wake);
    world.run();
    assert!(world.delivered.is_empty());
    world.now += Settings::default().interval;
    world.run();
    assert_eq!(world.delivered.len(), 1);
}

#[test]
fn rows_r53_a_stop_sends_nothing_new_and_marks_what_arrived() {
    let bounds = Bounds { in_flight: 4, ..Bounds::default() };
    let mut world = World::new(Settings { bounds, ..patient() }, &["r"]);
    (0..20).for_each(|_| {
        world.enqueue(None);
    });
    while world.batches.is_empty() {
        world.pull();
        world.finish_read();
    }
    let sent = in_flight(&world).len();
    world.state.stop();
    world.run();
    assert!(world.state.is_drained());
    assert_eq!(world.delivered.len(), sent);
    assert_eq!(world.undelivered(), 20 - sent);
}

#[test]
fn decision_21_what_is_held_in_memory_keeps_to_the_budget() {
    let bounds = Bounds { bytes: 200 << 10, ..Bounds::default() };
    let mut world = World::new(Settings { bounds, batch: 50, ..Settings::default() }, &["r"]);
    for _ in 0..100 {
        let id = world.enqueue(None);
        world.database.fill(id, 30 << 10);
    }
    loop {
        world.pull();
        // A read may bring the budget's worth on top of half a budget, and the rows' own overhead.
        assert!(world.state.bytes <= (300 << 10) + 50 * 1024, "{} bytes are held", world.state.bytes);
        if !world.finish_something() {
            break;
        }
    }
    assert_eq!(world.delivered.len(), 100);
}

#[test]
fn product_5_a_row_of_which_the_database_takes_no_outcome_holds_up_no_other() {
    let settings = Settings { mark_batch: 8, interval: Duration::from_secs(1), ..Settings::default() };
    let mut world = World::new(settings, &["r"]);
    let ids: Vec<RowId> = (0..40).map(|_| world.enqueue(None)).collect();
    world.database.refused.extend([ids[3], ids[20]]);
    while world.batches.is_empty() {
        world.pull();
        world.finish_read();
    }
    // Half are refused by their target for good, among them one of the two.
    while !world.batches.is_empty() {
        world
            .answer(0, |id, _| if ids[20..].contains(id) { Err(Failure::new(Class::Permanent, "no")) } else { Ok(()) });
        world.pull();
    }
    let end = world.now + Duration::from_secs(30);
    while world.now < end {
        world.run();
        world.now = world.state.next_deadline().max(world.now + Duration::from_millis(1));
    }
    let left: Vec<RowId> = ids.iter().copied().filter(|id| status(&world, *id) == Status::Pending).collect();
    assert_eq!(left, [ids[3], ids[20]], "all others are recorded");
    world.database.refused.clear();
    world.settle_down();
    assert_eq!((status(&world, ids[3]), status(&world, ids[20])), (Status::Published, Status::Invalid));
}

#[test]
fn rows_r58_what_one_route_refused_for_good_is_not_sent_to_it_again_while_another_is_paused() {
    let mut world =
        World::new(Settings { interval: Duration::from_secs(1), ..Settings::default() }, &["left", "right"]);
    world.down.insert("left".into());
    let (first, second) = (world.enqueue(Some("k")), world.enqueue(Some("k")));
    let mut refused = 0;
    let end = Duration::from_secs(40);
    while world.now < end {
        world.pull();
        while !world.batches.is_empty() {
            let left = world.batches[0].target.as_str() == "left";
            world.answer(0, |id, _| match id {
                _ if left => Err(Failure::new(Class::Transient, "down")),
                id if *id == first => {
                    refused += 1;
                    Err(Failure::new(Class::Permanent, "never"))
                }
                _ => Ok(()),
            });
            world.pull();
        }
        if !world.finish_something() {
            world.now = world.state.next_deadline().max(world.now + Duration::from_millis(1));
        }
    }
    assert_eq!(refused, 1);
    let right = |id| (id, RouteKey::from("right"));
    assert!(!world.delivered.contains_key(&right(second)), "the first is not invalid yet");
    world.settle_down();
    assert_eq!((status(&world, first), status(&world, second)), (Status::Invalid, Status::Published));
    assert!(!world.delivered.contains_key(&right(first)) && world.delivered.contains_key(&right(second)));
}
