//! `retry` and `discard`: by ids, or all that filters leave, in bounded batches.
//!
//! A batch is a list of ids, so that none is left out or met twice while statuses and places change.

use std::collections::BTreeSet;

use posthaste_core::{
    Result, RowId, Seq, Status,
    port::{By, Filter, OperateReport, Selection, Store},
};
use serde::Serialize;

use crate::{
    args::Operate,
    exit::{Done, Fault, say},
    output::Out,
    setup::{IfEmpty, Setup},
};

/// Rows changed in one transaction.
const BATCH: u32 = 500;
/// Rows looked up at once.
const PAGE: u32 = 20 * BATCH;

/// Statuses that may be changed. Pending rows come first: what `retry` makes of the others is
/// pending too, and is not met again.
const CHANGEABLE: [Status; 3] = [Status::Pending, Status::Failed, Status::Invalid];

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Retry,
    Discard,
}

/// `{"matched","changed"}`
#[derive(Serialize)]
pub struct Counts {
    pub matched: u64,
    pub changed: u64,
}

pub async fn run(action: Action, args: &Operate, out: &mut Out) -> Result<Done, Fault> {
    let filter = args.which.filter();
    check(args, &filter)?;
    let store = Setup::read(&args.at.place)?.open_single(&args.at, IfEmpty::Refuse).await?;
    let by = By { who: operator(), why: args.reason.clone() };
    let job = Job { action, store: store.as_ref(), by, dry_run: args.dry_run };
    let (counts, all_there) = if args.all { (job.matching(&filter).await?, true) } else { job.ids(&args.ids).await? };
    write(action, &counts, args, out)?;
    Ok(if all_there { Done::Clean } else { Done::WithFindings })
}

fn check(args: &Operate, filter: &Filter) -> Result<(), Fault> {
    if !args.ids.is_empty() && *filter != Filter::default() {
        return Err(Fault::usage("ids and filters exclude each other").hint("give ids, or --all with filters"));
    }
    match filter.status {
        Some(status) if !CHANGEABLE.contains(&status) => {
            let error = format!("rows that are {status} can't be changed");
            Err(Fault::usage(error).hint("--status takes pending, failed or invalid here"))
        }
        _ => Ok(()),
    }
}

struct Job<'a> {
    action: Action,
    store: &'a dyn Store,
    by: By,
    dry_run: bool,
}

impl Job<'_> {
    /// Answers also whether all ids were there and could be changed.
    async fn ids(&self, ids: &[RowId]) -> Result<(Counts, bool)> {
        let mut good = Vec::new();
        let wanted: BTreeSet<RowId> = ids.iter().copied().collect();
        for id in &wanted {
            match self.store.get(*id).await?.map(|row| row.status) {
                None => say(&format!("error: no row has the id {id}")),
                Some(status) if !CHANGEABLE.contains(&status) => say(&format!("error: row {id} is {status}")),
                Some(_) => good.push(*id),
            }
        }
        let mut counts = Counts { matched: 0, changed: 0 };
        self.batches(&good, &mut counts).await?;
        Ok((counts, good.len() == wanted.len()))
    }

    async fn matching(&self, filter: &Filter) -> Result<Counts> {
        let mut counts = Counts { matched: 0, changed: 0 };
        if self.dry_run {
            counts.matched = self.store.count(&Selection::Matching(filter.clone())).await?;
            return Ok(counts);
        }
        for status in CHANGEABLE.into_iter().filter(|status| filter.status.is_none_or(|wanted| wanted == *status)) {
            self.with_status(&Filter { status: Some(status), ..filter.clone() }, &mut counts).await?;
        }
        Ok(counts)
    }

    async fn with_status(&self, filter: &Filter, counts: &mut Counts) -> Result<()> {
        let mut after: Seq = 0;
        loop {
            let rows = self.store.list(filter, after, PAGE).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.seq;
            let ids: Vec<RowId> = rows.iter().map(|row| row.id).collect();
            self.batches(&ids, counts).await?;
            if rows.len() < PAGE as usize {
                return Ok(());
            }
        }
    }

    async fn batches(&self, ids: &[RowId], counts: &mut Counts) -> Result<()> {
        for batch in ids.chunks(BATCH as usize) {
            self.batch(batch.to_vec(), counts).await?;
        }
        Ok(())
    }

    async fn batch(&self, ids: Vec<RowId>, counts: &mut Counts) -> Result<()> {
        let selection = Selection::Ids(ids);
        let report = match (self.dry_run, self.action) {
            (true, _) => OperateReport { matched: self.store.count(&selection).await?, changed: 0 },
            (false, Action::Retry) => self.store.retry(&selection, &self.by, BATCH).await?,
            (false, Action::Discard) => self.store.discard(&selection, &self.by, BATCH).await?,
        };
        counts.matched += report.matched;
        counts.changed += report.changed;
        Ok(())
    }
}

fn write(action: Action, counts: &Counts, args: &Operate, out: &mut Out) -> Result<(), Fault> {
    if args.json {
        return out.json(counts);
    }
    let Counts { matched, changed } = counts;
    out.line(&match (args.dry_run, action) {
        (true, Action::Retry) => format!("{matched} rows would be retried"),
        (true, Action::Discard) => format!("{matched} rows would be discarded"),
        (false, Action::Retry) => format!("{changed} rows are due now"),
        (false, Action::Discard) => format!("{changed} rows are discarded"),
    })
}

/// Who does this, for the record.
fn operator() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    variable("POSTHASTE_OPERATOR").unwrap_or_else(|| {
        let user = variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(|| "unknown".to_owned());
        let host = host().or_else(|| variable("HOSTNAME")).unwrap_or_else(|| "localhost".to_owned());
        format!("{user}@{host}")
    })
}
