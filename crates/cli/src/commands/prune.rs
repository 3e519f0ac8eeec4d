//! `prune`: deletes old rows in small transactions.

use posthaste_core::{Status, port::PruneRequest};

use super::operate::Counts;
use crate::{
    args::Prune,
    exit::{Done, Fault},
    output::Out,
    setup::{IfEmpty, Setup},
};

/// Rows deleted in one transaction.
const BATCH: u32 = 1_000;

pub async fn run(args: &Prune, out: &mut Out) -> Result<Done, Fault> {
    if !matches!(args.status, Status::Published | Status::Invalid) {
        let error = format!("rows that are {} are never pruned", args.status);
        return Err(Fault::usage(error).hint("--status takes published or invalid here"));
    }
    let setup = Setup::read(&args.at.place)?;
    let store = setup.open_single(&args.at, IfEmpty::Refuse).await?;
    let older_than = args.older_than.unwrap_or(setup.config.outbox.retention);
    let request = PruneRequest { status: args.status, older_than };
    let mut counts = Counts { matched: 0, changed: 0 };
    if args.dry_run {
        counts.matched = store.count_prunable(&request).await?;
    } else {
        loop {
            let deleted = store.prune(&request, BATCH).await?;
            counts.changed += deleted;
            if deleted < u64::from(BATCH) {
                break;
            }
        }
        counts.matched = counts.changed;
    }
    if args.json {
        out.json(&counts)?;
    } else if args.dry_run {
        out.line(&format!("{} {} rows would be deleted", counts.matched, args.status))?;
    } else {
        out.line(&format!("{} {} rows are deleted", counts.changed, args.status))?;
    }
    Ok(Done::Clean)
}
