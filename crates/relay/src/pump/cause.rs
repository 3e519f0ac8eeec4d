//! What made a row be read, so that every delivery can say which path it took.

/// The path of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Cause {
    /// The process that committed it handed over its receipt.
    Immediate,
    /// The store's wake-up.
    Wake,
    /// A poll while writers were busy.
    Poll,
    /// The interval, a start, or a row that became due.
    Interval,
}

impl Cause {
    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::Immediate => "immediate",
            Cause::Wake => "wake",
            Cause::Poll => "poll",
            Cause::Interval => "interval",
        }
    }
}
