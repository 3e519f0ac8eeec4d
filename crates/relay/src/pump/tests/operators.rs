//! What happens to rows under a running pump: an operator's hand, a lost lane, a crowd of rows that are
//! not due. No key may stay shut, and nothing may go out of order, for any of it.

use std::time::Duration;

use posthaste_core::{Class, Failure, Lane, LaneSet, RowId, Status};

use super::model::World;
use crate::settings::{Bounds, Settings};

const HOUR: Duration = Duration::from_secs(3600);

/// A row that is due later, in a transaction of its own.
fn enqueue_for(world: &mut World, key: Option<&str>, due: Duration) -> RowId {
    world.step += 1;
    let transaction = world.database.begin();
    let id = world.database.insert(transaction, key, due, world.step);
    world.database.commit(transaction, world.step);
    id
}

/// Lanes are read in the order of their numbers.
fn key_of_lane(lane: u8) -> String {
    (0..).map(|n| n.to_string()).find(|key| Lane::of_key(key).number() == lane).expect("every lane has keys")
}

fn run_for(world: &mut World, time: Duration) {
    let end = world.now + time;
    while world.now < end {
        world.run();
        world.now = world.state.next_deadline().max(world.now + Duration::from_millis(1)).min(end);
    }
    world.run();
}

fn delivered(world: &World, id: RowId) -> bool {
    world.delivered.keys().any(|(row, _)| *row == id)
}

#[test]
fn tw_11_what_was_in_flight_when_its_lane_was_lost_is_not_sent_again() {
    let failures = [Failure::lost("cut"), Failure::no_answer("silent"), Failure::new(Class::Transient, "busy")];
    for failure in failures {
        let mut world = World::new(Settings::default(), &["r"]);
        let id = world.enqueue(Some("k"));
        while world.batches.is_empty() {
            world.pull();
            world.finish_read();
        }
        world.own(false);
        world.answer(0, |_, _| Err(failure.clone()));
        run_for(&mut world, Duration::from_secs(60));
        assert!(!delivered(&world, id), "{failure:?}: its lane is another relay's");
        assert!(world.state.work.is_empty());
        world.own(true);
        world.settle_down();
        assert!(delivered(&world, id));
    }
}

#[test]
fn tw_11_what_was_being_read_when_its_lane_was_lost_is_not_sent() {
    let mut world = World::new(Settings::default(), &["r"]);
    world.enqueue(None);
    world.pull();
    world.execute_read();
    world.own(false);
    world.finish_read();
    world.run();
    assert!(world.delivered.is_empty());
    world.own(true);
    world.settle_down();
    assert_eq!(world.delivered.len(), 1);
}

#[test]
fn decision_03_a_delayed_row_that_was_discarded_holds_its_key_back_no_longer() {
    let mut world = World::new(Settings::default(), &["r"]);
    let delayed = enqueue_for(&mut world, Some("k"), HOUR);
    let later = world.enqueue(Some("k"));
    run_for(&mut world, Duration::from_secs(20));
    assert!(!delivered(&world, later));
    world.database.discard(delayed);
    run_for(&mut world, Duration::from_secs(120));
    assert!(delivered(&world, later), "its key is still shut by a row that is gone");
}

#[test]
fn decision_03_a_row_there_was_no_room_to_remember_shuts_its_key_no_longer_than_it_is_there() {
    let bounds = Bounds { held: 1, ..Bounds::default() };
    let mut world = World::new(Settings { bounds, ..Settings::default() }, &["r"]);
    enqueue_for(&mut world, Some(&key_of_lane(0)), HOUR);
    let delayed = enqueue_for(&mut world, Some("k"), Duration::from_secs(30));
    let later = world.enqueue(Some("k"));
    run_for(&mut world, Duration::from_secs(10));
    assert!(!delivered(&world, later));
    world.database.discard(delayed);
    run_for(&mut world, Duration::from_secs(120));
    assert!(delivered(&world, later));
}

#[test]
fn decision_03_a_lane_that_had_too_many_delayed_rows_goes_on_once_there_is_room() {
    let bounds = Bounds { held: 1, ..Bounds::default() };
    let mut world = World::new(Settings { bounds, ..Settings::default() }, &["r"]);
    enqueue_for(&mut world, Some(&key_of_lane(0)), Duration::from_secs(20));
    enqueue_for(&mut world, Some("a"), HOUR);
    // Another key of the same lane.
    let waits = world.enqueue(Some(&key_of_lane(Lane::of_key("a").number())));
    run_for(&mut world, Duration::from_secs(10));
    assert!(!delivered(&world, waits), "a row that there is no room for may be of any key");
    run_for(&mut world, Duration::from_secs(120));
    assert!(delivered(&world, waits), "there has been room for long");
}

#[test]
fn product_5_a_row_refused_by_one_route_and_discarded_while_another_is_paused_leaves_its_key() {
    let mut world = World::new(Settings::default(), &["refuses", "paused"]);
    world.down.insert("paused".into());
    (0..200).for_each(|_| {
        world.enqueue(None);
    });
    run_for(&mut world, Duration::from_secs(10));
    let refused = world.enqueue(Some("k"));
    let later = world.enqueue(Some("k"));
    for _ in 0..2_000 {
        world.pull();
        if !world.batches.is_empty() {
            world.answer(
                0,
                |id, _| {
                    if *id == refused { Err(Failure::new(Class::Permanent, "refused")) } else { Ok(()) }
                },
            );
        } else if !world.finish_something() {
            world.now = world.state.next_deadline().max(world.now + Duration::from_millis(1));
        }
    }
    world.database.discard(refused);
    run_for(&mut world, Duration::from_secs(180));
    assert!(delivered(&world, later), "its key is shut by a row that is gone");
}

#[test]
fn decision_16_a_queue_that_refuses_all_it_gets_does_not_stop_what_goes_elsewhere() {
    let bounds = Bounds { in_flight: 10, ..Bounds::default() };
    let mut world = World::new(Settings { bounds, batch: 10, ..Settings::default() }, &["r"]);
    let refused: Vec<RowId> = (0..100).map(|_| world.enqueue(None)).collect();
    let others: Vec<RowId> = (0..100).map(|_| world.enqueue(None)).collect();
    let end = Duration::from_secs(120);
    while world.now < end && !others.iter().all(|id| delivered(&world, *id)) {
        world.pull();
        if !world.batches.is_empty() {
            let answer = |id: &RowId, _: &_| {
                if refused.contains(id) { Err(Failure::new(Class::Transient, "nack: queue full")) } else { Ok(()) }
            };
            // Something else goes through all the time: the target works.
            world.state.targets.values_mut().for_each(|target| {
                target.breaker.succeed();
            });
            world.answer(0, answer);
        } else if !world.finish_something() {
            world.now = world.state.next_deadline().max(world.now + Duration::from_millis(1));
        }
    }
    assert!(others.iter().all(|id| delivered(&world, *id)), "rows of a full queue fill the memory");
    assert!(refused.iter().all(|id| world.database.row(*id).attempts == 0), "a full queue was counted");
    world.settle_down();
}

#[test]
fn decision_04_a_queue_that_never_confirms_does_not_stop_what_goes_elsewhere() {
    let mut world = World::new(Settings::default(), &["r"]);
    let silent = world.enqueue(None);
    let others: Vec<RowId> = (0..100).map(|_| world.enqueue(None)).collect();
    let end = HOUR;
    while world.now < end && !others.iter().all(|id| delivered(&world, *id)) {
        world.pull();
        if let Some(batch) = world.batches.first() {
            if batch.parts.iter().any(|part| part.row == silent) {
                world.now += Duration::from_secs(30);
            }
            world.answer(0, |id, _| if *id == silent { Err(Failure::no_answer("deadline")) } else { Ok(()) });
        } else if !world.finish_something() {
            world.now = world.state.next_deadline().max(world.now + Duration::from_millis(1));
        }
    }
    assert!(world.now < end, "{} of 100 went", others.iter().filter(|id| delivered(&world, **id)).count());
    assert_eq!((world.database.row(silent).attempts, world.database.row(silent).status.is_undelivered()), (0, true));
    world.settle_down();
    assert_eq!(world.database.row(silent).status, Status::Published);
}

#[test]
fn decision_03_a_crowd_of_delayed_rows_does_not_keep_the_pump_from_the_rows_after_it() {
    let bounds = Bounds { held: 10, ..Bounds::default() };
    let mut world = World::new(Settings { bounds, batch: 10, ..Settings::default() }, &["r"]);
    for _ in 0..2_000 {
        enqueue_for(&mut world, Some("k"), HOUR);
    }
    let others: Vec<RowId> = (0..20).map(|_| world.enqueue(None)).collect();
    // A read takes so long that a full pass takes ten intervals.
    for _ in 0..1_000 {
        world.pull();
        let reads = !world.reads.is_empty();
        if !world.finish_something() {
            world.now = world.state.next_deadline().max(world.now + Duration::from_millis(1));
        } else if reads {
            world.now += Duration::from_millis(250);
        }
    }
    assert!(others.iter().all(|id| delivered(&world, *id)));
    assert!(world.state.progress().passes > 0, "no full pass ever came to its end");
}

#[test]
fn lanes_r41_a_lost_lane_drains_until_what_was_in_flight_is_recorded() {
    let mut world = World::new(Settings { interval: HOUR, ..Settings::default() }, &["r"]);
    let id = world.enqueue(Some(&key_of_lane(5)));
    while world.batches.is_empty() {
        world.pull();
        world.finish_read();
    }
    let rest = LaneSet::ALL.difference(LaneSet::from_iter(Lane::new(5)));
    world.own_only(rest);
    let draining = |world: &mut World| world.state.progress().draining.iter().map(Lane::number).collect::<Vec<_>>();
    assert_eq!(draining(&mut world), [5], "in flight");
    world.answer(0, |_, _| Ok(()));
    assert_eq!(draining(&mut world), [5], "not marked");
    run_for(&mut world, Duration::from_secs(1));
    assert!(draining(&mut world).is_empty());
    assert_eq!(world.database.row(id).status, Status::Published);
}

#[test]
fn product_5_losing_some_lanes_opens_no_key_of_the_others() {
    let mut world = World::new(Settings::default(), &["r"]);
    let (first, second) = (world.enqueue(Some("k")), world.enqueue(Some("k")));
    while world.batches.is_empty() {
        world.pull();
        world.finish_read();
    }
    // Its retry waits to be recorded when other lanes are lost; the second must not go.
    world.answer(0, |_, _| Err(Failure::new(Class::Unknown, "what")));
    let kept = Lane::of_key("k");
    world.own_only(LaneSet::from_iter([kept]));
    run_for(&mut world, Duration::from_millis(100));
    assert!(!delivered(&world, second));
    world.settle_down();
    assert!(delivered(&world, first) && delivered(&world, second));
}
