//! Lanes: which replica pumps a row. A lane says nothing about routing.

use std::fmt;

use md5::{Digest, Md5};

use crate::RowId;

/// The number of lanes, and so the ceiling on replicas of one outbox. Not configuration (rows.R12).
pub const LANES: u8 = 128;

/// One of the [`LANES`] lanes, 0 to 127.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lane(u8);

impl Lane {
    /// The lane with this number, unless it is out of range.
    #[must_use]
    pub const fn new(number: u8) -> Option<Lane> {
        if number < LANES { Some(Lane(number)) } else { None }
    }

    /// The lane of an ordering key: the first byte of its MD5, cut to seven bits. Every store and
    /// every database-side default computes the same.
    #[must_use]
    pub fn of_key(key: &str) -> Lane {
        Lane(Md5::digest(key.as_bytes())[0] & (LANES - 1))
    }

    /// The lane of a row without an ordering key: that of its id as the stores print it.
    #[must_use]
    pub fn of_id(id: RowId) -> Lane {
        Lane::of_key(&id.to_string())
    }

    /// 0 to 127.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of lanes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LaneSet(u128);

impl LaneSet {
    /// No lane.
    pub const EMPTY: LaneSet = LaneSet(0);
    /// All lanes.
    pub const ALL: LaneSet = LaneSet(u128::MAX);

    /// Whether it holds no lane.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many lanes it holds.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether it holds `lane`.
    #[must_use]
    pub const fn contains(self, lane: Lane) -> bool {
        self.0 >> lane.0 & 1 == 1
    }

    /// Adds `lane`.
    pub const fn insert(&mut self, lane: Lane) {
        self.0 |= 1 << lane.0;
    }

    /// Removes `lane`.
    pub const fn remove(&mut self, lane: Lane) {
        self.0 &= !(1 << lane.0);
    }

    /// Lanes in either set.
    #[must_use]
    pub const fn union(self, other: LaneSet) -> LaneSet {
        LaneSet(self.0 | other.0)
    }

    /// Lanes in both sets.
    #[must_use]
    pub const fn intersection(self, other: LaneSet) -> LaneSet {
        LaneSet(self.0 & other.0)
    }

    /// Lanes of this set that are not in `other`.
    #[must_use]
    pub const fn difference(self, other: LaneSet) -> LaneSet {
        LaneSet(self.0 & !other.0)
    }

    /// The lanes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Lane> {
        (0..LANES).map(Lane).filter(move |lane| self.contains(*lane))
    }
}

impl FromIterator<Lane> for LaneSet {
    fn from_iter<I: IntoIterator<Item = Lane>>(lanes: I) -> LaneSet {
        let mut set = LaneSet::EMPTY;
        lanes.into_iter().for_each(|lane| set.insert(lane));
        set
    }
}

impl fmt::Debug for LaneSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Lane::number)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_06_key_a_is_in_lane_12_as_in_every_database() {
        assert_eq!(Lane::of_key("a").number(), 12);
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let mut set: LaneSet = [Lane(0), Lane(127), Lane(5)].into_iter().collect();
        set.remove(Lane(5));
        assert_eq!(set.iter().map(Lane::number).collect::<Vec<_>>(), [0, 127]);
        assert_eq!(LaneSet::ALL.len(), u32::from(LANES));
        assert_eq!(LaneSet::ALL.difference(set).len(), 126);
        assert!(Lane::new(LANES).is_none());
    }
}
