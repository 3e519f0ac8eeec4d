//! How much of what a pump holds may be for one target, so that a slow one leaves room for the others.
//!
//! Once a row has found no room, none does until half of it is free: rows of a key must not overtake
//! one that was passed over. Those are read again then.

/// The rows under way to one target, and the most there may be.
pub(crate) struct Room {
    most_rows: usize,
    most_bytes: usize,
    rows: usize,
    bytes: usize,
    full: bool,
    catching_up: bool,
}

impl Room {
    /// Room for a target that has the pump for itself: the pump's own bounds are enough.
    pub(crate) fn unlimited() -> Room {
        Room::new(usize::MAX, usize::MAX)
    }

    pub(crate) fn new(most_rows: usize, most_bytes: usize) -> Room {
        Room { most_rows, most_bytes, rows: 0, bytes: 0, full: false, catching_up: false }
    }

    /// Whether a row of so many bytes may go under way. One always may alone.
    pub(crate) fn admits(&mut self, bytes: usize) -> bool {
        let fits = self.rows < self.most_rows && self.bytes.saturating_add(bytes) <= self.most_bytes;
        self.full |= !fits && self.rows > 0;
        self.catching_up &= !self.full;
        !self.full
    }

    pub(crate) fn enter(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes;
    }

    pub(crate) fn leave(&mut self, bytes: usize) {
        self.rows = self.rows.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Nothing is under way.
    pub(crate) fn clear(&mut self) {
        (self.rows, self.bytes) = (0, 0);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Whether what was passed over is to be read again now: half of the room is free.
    pub(crate) fn relieve(&mut self) -> bool {
        if !self.full || self.rows > self.most_rows / 2 || self.bytes > self.most_bytes / 2 {
            return false;
        }
        (self.full, self.catching_up) = (false, true);
        true
    }

    /// Whether rows that were passed over for want of room are being read again.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.catching_up
    }

    /// Everything has been read.
    pub(crate) fn caught_up(&mut self) {
        self.catching_up = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_101_a_room_that_was_full_takes_nothing_until_half_of_it_is_free() {
        let mut room = Room::new(4, 1000);
        for _ in 0..4 {
            assert!(room.admits(1));
            room.enter(1);
        }
        assert!(!room.admits(1) && room.is_full());
        room.leave(1);
        assert!(!room.relieve() && !room.admits(1), "a later row would overtake the one that was passed over");
        room.leave(1);
        assert!(room.relieve() && room.is_catching_up() && room.admits(1));
    }

    #[test]
    fn decision_21_a_row_larger_than_the_room_goes_alone() {
        let mut room = Room::new(4, 10);
        assert!(room.admits(100));
        room.enter(100);
        assert!(!room.admits(1) && !room.relieve());
        room.leave(100);
        assert!(room.relieve() && room.admits(100));
    }
}
