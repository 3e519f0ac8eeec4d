//! Turns: ours, bare, ours, bare.

use crate::Result;

/// The values of one turn, by unit.
pub(crate) type Sample = Vec<(&'static str, f64)>;

/// The turns of both sides.
#[derive(Default)]
pub(crate) struct Pairs {
    ours: Vec<Sample>,
    bare: Vec<Sample>,
}

impl Pairs {
    /// Lets both sides take `reps` turns each.
    pub(crate) async fn measure(
        reps: u32,
        mut ours: impl AsyncFnMut() -> Result<Sample>,
        mut bare: impl AsyncFnMut() -> Result<Sample>,
    ) -> Result<Pairs> {
        let mut pairs = Pairs::default();
        for rep in 1..=reps {
            pairs.ours.push(ours().await?);
            pairs.bare.push(bare().await?);
            eprintln!("  {rep}/{reps} {:?} {:?}", pairs.ours.last(), pairs.bare.last());
        }
        Ok(pairs)
    }

    /// Turns that were taken otherwise.
    pub(crate) fn from(ours: Vec<Sample>, bare: Vec<Sample>) -> Pairs {
        Pairs { ours, bare }
    }

    pub(crate) fn ours(&self, unit: &str) -> Vec<f64> {
        values(&self.ours, unit)
    }

    pub(crate) fn bare(&self, unit: &str) -> Vec<f64> {
        values(&self.bare, unit)
    }
}

fn values(samples: &[Sample], unit: &str) -> Vec<f64> {
    samples.iter().flatten().filter(|(name, _)| *name == unit).map(|(_, value)| *value).collect()
}
