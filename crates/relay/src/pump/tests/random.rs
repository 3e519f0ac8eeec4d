//! Random histories: writers, crashes, outages and lost answers in any order. Nothing is lost,
//! nothing uncommitted is sent, and the order of a key holds at every single send.

use std::time::Duration;

use posthaste_core::{Class, Failure, LANES, Lane, Status};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

use super::model::World;
use crate::settings::{Bounds, Settings};

const KEYS: [Option<&str>; 5] = [None, None, Some("a"), Some("b"), Some("c")];

fn settings() -> Settings {
    // Small bounds, so that every one of them is met.
    let bounds = Bounds { in_flight: 12, unmarked: 24, held: 4, waiting_per_key: 2, bytes: 16 << 10 };
    Settings { batch: 6, mark_batch: 4, interval: Duration::from_secs(1), bounds, ..Settings::default() }
}

struct Faults {
    crashes: bool,
    outages: bool,
    failures: bool,
    /// The first target answers once in a while only, and no full pass helps.
    slow: bool,
    /// Operators retry and discard rows, and the lanes are lost and won again.
    hands: bool,
}

const HOUR: Duration = Duration::from_secs(3600);

fn history(seed: u64, routes: &[&str], faults: &Faults) -> World {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut settings = settings();
    if faults.slow {
        settings.interval = HOUR;
    }
    let mut world = World::new(settings, routes);
    world.database.tells_behind = seed / 8 % 2 == 1;
    world.database.lanes = if faults.slow { 2 } else { 0 };
    for _ in 0..if faults.slow { 1500 } else { 600 } {
        world.pull();
        act(&mut world, &mut random, routes, faults);
    }
    for transaction in world.database.open.clone() {
        world.step += 1;
        world.database.commit(transaction, world.step);
    }
    world.settle_down();
    world
}

fn act(world: &mut World, random: &mut SmallRng, routes: &[&str], faults: &Faults) {
    world.step += 1;
    let step = world.step;
    match random.random_range(0..30) {
        0..4 if world.database.open.len() < 4 => {
            world.database.begin();
        }
        0..9 if !world.database.open.is_empty() => {
            let transaction = world.database.open[random.random_range(0..world.database.open.len())];
            let delayed = random.random_bool(0.1);
            let due = world.now + if delayed { Duration::from_millis(300) } else { Duration::ZERO };
            let key = KEYS[random.random_range(0..KEYS.len())];
            world.database.insert(transaction, key, due, step);
        }
        9..13 if !world.database.open.is_empty() => {
            let transaction = world.database.open[random.random_range(0..world.database.open.len())];
            if random.random_bool(0.2) {
                world.database.rollback(transaction);
            } else {
                world.database.commit(transaction, step);
                world.wake();
            }
        }
        13 => world.execute_read(),
        14..17 => world.finish_read(),
        17..20 if !world.batches.is_empty() => answer(world, random, faults),
        20..22 => world.finish_mark(),
        22 => world.finish_settle(),
        23 => world.finish_probe(),
        24 | 25 => world.now += Duration::from_millis(random.random_range(1..400)),
        26 if faults.crashes && random.random_bool(0.3) => crash(world, random),
        27 if faults.outages => {
            let target = routes[random.random_range(0..routes.len())].into();
            if !world.down.remove(&target) {
                world.down.insert(target);
            }
        }
        29 if faults.hands => operate(world, random),
        28 if faults.outages => world.database.down = random.random_bool(0.3),
        _ => {}
    }
}

/// Something is done to the outbox while the pump runs.
fn operate(world: &mut World, random: &mut SmallRng) {
    if random.random_bool(0.2) {
        // The lanes of three replicas, of which this one has those of any number.
        let whose: [bool; 3] = std::array::from_fn(|_| random.random_bool(0.7));
        let mine = (0..LANES).filter(|lane| whose[usize::from(lane % 3)]).filter_map(Lane::new);
        return world.own_only(mine.collect());
    }
    let rows: Vec<_> = world.database.rows.values().filter(|stored| stored.committed.is_some()).collect();
    let of_interest = |status| matches!(status, Status::Failed | Status::Invalid | Status::Pending);
    let rows: Vec<_> =
        rows.into_iter().map(|stored| &stored.row).filter(|row| of_interest(row.status)).map(|row| row.id).collect();
    if rows.is_empty() {
        return;
    }
    let id = rows[random.random_range(0..rows.len())];
    if random.random_bool(0.3) {
        world.database.discard(id);
    } else {
        world.database.retry(id, world.now, world.step);
        world.state.rewind();
    }
}

/// Some of what was in flight has reached its target.
fn crash(world: &mut World, random: &mut SmallRng) {
    let in_flight: Vec<_> = world.batches.iter().flat_map(|batch| batch.parts.clone()).collect();
    for part in in_flight {
        if random.random_bool(0.5) {
            world.deliver(part.row, &part.route);
        }
    }
    world.crash();
}

fn answer(world: &mut World, random: &mut SmallRng, faults: &Faults) {
    let n = random.random_range(0..world.batches.len());
    if faults.slow && world.batches[n].target.as_str() == "left" && random.random_bool(0.9) {
        return;
    }
    let lost = faults.failures && random.random_bool(0.1);
    let mut arrived = Vec::new();
    world.answer(n, |id, route| {
        if lost {
            if random.random_bool(0.5) {
                arrived.push((*id, route.clone()));
            }
            return Err(Failure::lost("cut"));
        }
        match random.random_range(0..40) {
            0 if faults.failures => Err(Failure::new(Class::Transient, "busy")),
            1 if faults.failures => Err(Failure::new(Class::Unknown, "what")),
            2 if faults.failures => Err(Failure::new(Class::Misrouted, "nowhere")),
            3 if faults.failures => Err(Failure::new(Class::Permanent, "never")),
            _ => Ok(()),
        }
    });
    for (id, route) in arrived {
        world.deliver(id, &route);
    }
}

fn check_all_arrived(world: &World, routes: &[&str], seed: u64) {
    for stored in world.database.rows.values().filter(|stored| stored.committed.is_some()) {
        let row = &stored.row;
        match row.status {
            Status::Published => {
                for route in routes {
                    let there = world.delivered.contains_key(&(row.id, (*route).into()));
                    assert!(there, "seed {seed}: {} is published and never reached {route}", row.id);
                }
            }
            Status::Invalid => assert!(row.last_error.is_some(), "seed {seed}: {} is invalid without a reason", row.id),
            status => panic!("seed {seed}: {} is {status}", row.id),
        }
    }
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let first = std::env::var("POSTHASTE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let base = first.unwrap_or(0);
    (base..base + if first.is_some() { 1 } else { count }).inspect(|seed| println!("POSTHASTE_TEST_SEED={seed}"))
}

#[test]
fn rows_r45_nothing_is_lost_and_order_holds_under_crashes_outages_and_failures() {
    let faults = Faults { crashes: true, outages: true, failures: true, slow: false, hands: false };
    for seed in seeds(150) {
        check_all_arrived(&history(seed, &["r"], &faults), &["r"], seed);
    }
}

#[test]
fn rows_r58_nothing_is_lost_and_order_holds_on_several_routes() {
    let faults = Faults { crashes: true, outages: true, failures: true, slow: false, hands: false };
    for seed in seeds(150) {
        let routes = ["left", "right"];
        check_all_arrived(&history(seed, &routes, &faults), &routes, seed);
    }
}

#[test]
fn report_014_without_faults_everything_arrives_exactly_once() {
    let faults = Faults { crashes: false, outages: false, failures: false, slow: false, hands: false };
    for seed in seeds(100) {
        let world = history(seed, &["left", "right"], &faults);
        check_all_arrived(&world, &["left", "right"], seed);
        assert!(world.copies.values().all(|copies| *copies == 1), "seed {seed}: a duplicate without a fault");
    }
}

#[test]
fn report_101_a_slow_target_costs_no_row_no_order_and_no_copy() {
    let routes = ["left", "middle", "right"];
    for seed in seeds(60) {
        let faults = Faults { crashes: false, outages: seed % 2 == 0, failures: false, slow: true, hands: false };
        let world = history(seed, &routes, &faults);
        check_all_arrived(&world, &routes, seed);
        assert!(world.copies.values().all(|copies| *copies == 1), "seed {seed}: a duplicate");
        assert!(world.now < HOUR, "seed {seed}: rows were found by a full pass only");
    }
}

#[test]
fn report_053_outages_alone_repeat_nothing_and_count_nothing() {
    let faults = Faults { crashes: false, outages: true, failures: false, slow: false, hands: false };
    for seed in seeds(100) {
        let world = history(seed, &["left", "right"], &faults);
        check_all_arrived(&world, &["left", "right"], seed);
        assert!(world.copies.values().all(|copies| *copies == 1), "seed {seed}: a duplicate");
        let counted = world.database.rows.values().any(|stored| stored.row.attempts > 0);
        assert!(!counted, "seed {seed}: an outage was counted");
    }
}

#[test]
fn product_5_nothing_is_lost_and_order_holds_while_operators_retry_and_discard_and_lanes_come_and_go() {
    for seed in seeds(150) {
        let faults =
            Faults { crashes: seed % 3 == 0, outages: seed % 2 == 0, failures: true, slow: false, hands: true };
        let routes: &[&str] = if seed % 4 < 2 { &["r"] } else { &["left", "right"] };
        check_all_arrived(&history(seed, routes, &faults), routes, seed);
    }
}
