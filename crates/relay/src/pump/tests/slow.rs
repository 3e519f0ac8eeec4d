//! Stories of a target that is slow beside one that is not.

use std::time::Duration;

use posthaste_core::{Class, Failure, Lane, RouteKey, RowId, Status};

use super::model::World;
use crate::settings::{Bounds, Settings};

const HOUR: Duration = Duration::from_secs(3600);

/// A pump in which eight rows fill the room of a target, and no full pass helps. All rows are in one lane.
fn world() -> World {
    let bounds = Bounds { in_flight: 4, ..Bounds::default() };
    let settings = Settings { batch: 10, interval: HOUR, bounds, ..Settings::default() };
    let mut world = World::new(settings, &["quick", "slow"]);
    world.database.lanes = 1;
    world
}

fn enqueue(world: &mut World, count: usize) {
    (0..count).for_each(|_| {
        world.enqueue(None);
    });
    world.wake();
}

/// Runs while the slow target answers nothing; answers how many rows were read.
fn run_without_slow(world: &mut World) -> usize {
    let mut read = 0;
    loop {
        world.pull();
        let quick = world.batches.iter().position(|batch| batch.target.as_str() == "quick");
        if let Some(n) = quick {
            world.answer(n, |_, _| Ok(()));
        } else if !world.reads.is_empty() {
            world.execute_read();
            read += world.reads[0].1.as_ref().map_or(0, |page| page.rows.len());
            world.finish_read();
        } else if !world.settles.is_empty() {
            world.finish_settle();
        } else if !world.marks.is_empty() {
            world.finish_mark();
        } else {
            return read;
        }
    }
}

/// The slow target answers what it has, until it gets what was passed over.
fn relieve(world: &mut World) {
    while world.state.is_idle() {
        world.answer(0, |_, _| Ok(()));
        world.pull();
    }
}

fn delivered(world: &World, route: &str) -> usize {
    world.delivered.keys().filter(|(_, to)| to.as_str() == route).count()
}

#[test]
fn report_101_rows_r58_a_slow_target_delays_no_other_and_is_never_given_more_than_its_room() {
    let mut world = world();
    enqueue(&mut world, 500);
    run_without_slow(&mut world);
    assert_eq!((delivered(&world, "quick"), delivered(&world, "slow")), (500, 0));
    assert_eq!(world.state.progress().in_flight, 4);
    world.settle_down();
    assert_eq!(delivered(&world, "slow"), 500);
    assert!(world.now < HOUR && world.copies.values().all(|copies| *copies == 1));
}

#[test]
fn report_101_what_a_slow_target_left_behind_is_not_read_over_and_over() {
    let mut world = world();
    enqueue(&mut world, 500);
    let mut read = run_without_slow(&mut world);
    while delivered(&world, "slow") < 500 {
        world.answer(0, |_, _| Ok(()));
        read += run_without_slow(&mut world);
    }
    assert!(read < 5 * 500, "{read} rows were read to deliver 500");
}

#[test]
fn decision_02_what_commits_late_is_found_although_all_around_it_was_read() {
    let mut world = world();
    enqueue(&mut world, 50);
    run_without_slow(&mut world);
    let late = world.database.begin();
    world.database.insert(late, None, Duration::ZERO, world.step);
    enqueue(&mut world, 20);
    run_without_slow(&mut world);
    assert_eq!(delivered(&world, "quick"), 70);
    world.database.commit(late, world.step);
    relieve(&mut world);
    run_without_slow(&mut world);
    assert_eq!(delivered(&world, "quick"), 71, "it waits for the slow target");
}

#[test]
fn decision_02_what_was_open_from_the_start_is_found_although_all_around_it_was_read() {
    let mut world = world();
    let late = world.database.begin();
    enqueue(&mut world, 30);
    world.database.insert(late, None, Duration::ZERO, world.step);
    enqueue(&mut world, 50);
    run_without_slow(&mut world);
    assert_eq!(delivered(&world, "quick"), 80);
    world.database.commit(late, world.step);
    relieve(&mut world);
    run_without_slow(&mut world);
    assert_eq!(delivered(&world, "quick"), 81, "it waits for the slow target");
}

#[test]
fn report_101_what_comes_after_the_backlog_is_read_though_the_slow_target_is_full_again() {
    let mut world = world();
    enqueue(&mut world, 50);
    run_without_slow(&mut world);
    relieve(&mut world);
    run_without_slow(&mut world);
    for count in 51..60 {
        enqueue(&mut world, 1);
        run_without_slow(&mut world);
        assert_eq!(delivered(&world, "quick"), count);
    }
}

#[test]
fn decision_03_what_becomes_due_is_found_although_all_around_it_was_read() {
    let mut world = world();
    enqueue(&mut world, 30);
    let writer = world.database.begin();
    world.database.insert(writer, None, Duration::from_secs(1), world.step);
    world.database.commit(writer, world.step);
    enqueue(&mut world, 50);
    run_without_slow(&mut world);
    assert_eq!(delivered(&world, "quick"), 80);
    relieve(&mut world);
    world.now += Duration::from_secs(1);
    run_without_slow(&mut world);
    assert_eq!(delivered(&world, "quick"), 81, "it waits for the slow target");
}

#[test]
fn tw_18_a_long_backlog_of_one_key_is_not_read_over_and_over() {
    let settings = Settings { interval: Duration::from_secs(3600), ..Settings::default() };
    let mut world = World::new(settings, &["r"]);
    for _ in 0..4_000 {
        world.enqueue(Some("hot"));
    }
    // A database that is always quicker than the broker.
    loop {
        world.pull();
        if world.reads.is_empty() {
            if !world.finish_something() {
                break;
            }
        } else {
            world.finish_read();
        }
    }
    assert_eq!(world.delivered.len(), 4_000);
    assert!(world.rows_read <= 12 * 4_000, "{} rows read for 4,000", world.rows_read);
}

#[test]
fn rows_r45_what_lies_behind_a_hot_key_goes_on_when_that_key_has_to_wait() {
    let settings = Settings { interval: Duration::from_secs(3600), ..Settings::default() };
    let mut world = World::new(settings, &["r"]);
    let first = world.enqueue(Some("hot"));
    for _ in 0..600 {
        world.enqueue(Some("hot"));
    }
    let other = (0..).map(|n| format!("other {n}")).find(|key| Lane::of_key(key) == Lane::of_key("hot")).unwrap();
    let behind = world.enqueue(Some(&other));
    for _ in 0..2_000 {
        world.pull();
        let unknown = |id: &RowId, _: &RouteKey| {
            if *id == first { Err(Failure::new(Class::Unknown, "what")) } else { Ok(()) }
        };
        if world.batches.is_empty() {
            if !world.finish_something() {
                break;
            }
        } else {
            world.answer(0, unknown);
        }
    }
    assert_eq!(world.database.row(first).status, Status::Failed);
    assert!(world.delivered.keys().any(|(id, _)| *id == behind), "a row of another key waits for the hot one");
}
