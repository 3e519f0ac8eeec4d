//! Figures, as a table for people and as JSON.

use std::fmt;

use serde_json::{Value, json};

use crate::{Plan, rounds::Pairs};

/// What a figure must reach, by the product's own goals.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Must {
    /// The ratio, at least.
    Ratio(f64),
    /// The ratio, at most.
    RatioAtMost(f64),
    /// Our value, at most.
    AtMost(f64),
}

/// One line of the table.
pub(crate) struct Figure {
    name: String,
    unit: &'static str,
    ours: Vec<f64>,
    bare: Vec<f64>,
    must: Option<Must>,
}

impl Figure {
    /// A value of both sides, by its unit.
    pub(crate) fn of(name: impl Into<String>, pairs: &Pairs, unit: &'static str) -> Figure {
        let (ours, bare) = (pairs.ours(unit), pairs.bare(unit));
        Figure { name: name.into(), unit, ours, bare, must: None }
    }

    /// A value of ours alone.
    pub(crate) fn alone(name: impl Into<String>, unit: &'static str, values: Vec<f64>) -> Figure {
        Figure { name: name.into(), unit, ours: values, bare: Vec::new(), must: None }
    }

    pub(crate) fn must(self, must: Must) -> Figure {
        Figure { must: Some(must), ..self }
    }

    /// Whether neither side had this value.
    pub(crate) fn is_empty(&self) -> bool {
        self.ours.is_empty() && self.bare.is_empty()
    }

    /// The median of the ratios of neighbours.
    fn ratio(&self) -> Option<Spread> {
        let ratios = self.ours.iter().zip(&self.bare).map(|(ours, bare)| ours / bare).collect::<Vec<_>>();
        Spread::of(&ratios)
    }

    fn is_met(&self) -> Option<bool> {
        Some(match self.must? {
            Must::Ratio(least) => self.ratio()?.median >= least,
            Must::RatioAtMost(most) => self.ratio()?.median <= most,
            Must::AtMost(most) => Spread::of(&self.ours)?.median <= most,
        })
    }

    fn json(&self) -> Value {
        let must = self.must.map(|must| must.to_string());
        json!({
            "name": self.name, "unit": self.unit, "ours": self.ours, "bare": self.bare,
            "ratio": self.ratio().map(|ratio| ratio.median), "must": must, "met": self.is_met(),
        })
    }
}

/// Median, smallest and largest.
#[derive(Clone, Copy)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Spread> {
        let mut values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Spread { median, least, most })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: f64| match value.abs() {
            size if size >= 100.0 => format!("{value:.0}"),
            size if size >= 10.0 => format!("{value:.1}"),
            size if size >= 0.1 => format!("{value:.2}"),
            _ => format!("{value:.4}"),
        };
        write!(f, "{} [{}–{}]", show(self.median), show(self.least), show(self.most))
    }
}

impl fmt::Display for Must {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Must::Ratio(least) => write!(f, "ratio ≥ {least:.2}"),
            Must::RatioAtMost(most) => write!(f, "ratio ≤ {most:.2}"),
            Must::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

/// All figures of a run.
pub(crate) struct Report {
    plan: Value,
    figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn new(plan: &Plan) -> Report {
        let plan = json!({"rows": plan.rows, "history": plan.history, "reps": plan.reps});
        Report { plan, figures: Vec::new() }
    }

    pub(crate) fn add(&mut self, figures: Vec<Figure>) {
        figures.iter().for_each(|figure| eprintln!("  {figure}"));
        self.figures.extend(figures);
    }

    pub(crate) fn json(&self) -> String {
        let figures: Vec<Value> = self.figures.iter().map(Figure::json).collect();
        json!({"plan": self.plan, "figures": figures}).to_string()
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |spread: Option<Spread>| spread.map_or("–".to_owned(), |spread| spread.to_string());
        let must = self.must.map(|must| must.to_string()).unwrap_or_default();
        let verdict = self.is_met().map_or("", |met| if met { "met" } else { "NOT met" });
        let (ours, bare) = (show(Spread::of(&self.ours)), show(Spread::of(&self.bare)));
        write!(f, "| {} | {} | {ours} | {bare} | {} | {must} | {verdict} |", self.name, self.unit, show(self.ratio()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "median [least–most]; {}", self.plan)?;
        writeln!(f, "| measure | unit | Posthaste | bare | ratio | must | |\n|---|---|---|---|---|---|---|")?;
        self.figures.iter().try_for_each(|figure| writeln!(f, "{figure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_neighbours_not_of_the_whole() {
        let figure = Figure {
            name: String::new(),
            unit: "x",
            ours: vec![1.0, 9.0, 5.0],
            bare: vec![2.0, 10.0, 1.0],
            must: None,
        };
        assert!((figure.ratio().unwrap().median - 0.9).abs() < 1e-9);
        assert_eq!(figure.must(Must::Ratio(0.95)).is_met(), Some(false));
    }
}
