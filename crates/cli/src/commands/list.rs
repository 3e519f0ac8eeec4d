//! `list`: rows, oldest first, read page by page.

use posthaste_core::{Row, Seq};

use crate::{
    args::List,
    exit::{Done, Fault},
    output::{Out, RowJson, Table},
    setup::{IfEmpty, Setup},
};

/// Rows of the first page. Each page is twice the one before: the first line comes soon, and a long
/// list takes few reads, which may each cost a sort.
const FIRST_PAGE: u32 = 1_000;
/// Most rows a page.
const LARGEST_PAGE: u32 = 16_000;

pub async fn run(args: &List, out: &mut Out) -> Result<Done, Fault> {
    let store = Setup::read(&args.at.place)?.open_single(&args.at, IfEmpty::Refuse).await?;
    let filter = args.which.filter();
    let mut table = Table::new(&["ID", "STATUS", "ATTEMPTS", "CREATED", "TYPE", "KEY", "LAST ERROR"]);
    let (mut after, mut left): (Seq, u64) = (0, args.limit.unwrap_or(u64::MAX));
    let mut page = FIRST_PAGE;
    while left > 0 {
        let limit = u32::try_from(left).unwrap_or(u32::MAX).min(page);
        let rows = store.list(&filter, after, limit).await?;
        write(&rows, args.json, &mut table, out)?;
        let read = rows.len() as u64;
        let Some(last) = rows.last().filter(|_| read == u64::from(limit)) else { break };
        after = last.seq;
        left -= read;
        page = (page * 2).min(LARGEST_PAGE);
    }
    if !args.json {
        table.write(out)?;
    }
    Ok(Done::Clean)
}

fn write(rows: &[Row], json: bool, table: &mut Table, out: &mut Out) -> Result<(), Fault> {
    if json {
        rows.iter().try_for_each(|row| out.json(&RowJson::from(row)))?;
        return out.flush();
    }
    if rows.is_empty() {
        return Ok(());
    }
    for row in rows {
        table.row([
            row.id.to_string(),
            row.status.to_string(),
            row.attempts.to_string(),
            row.created_at.to_string(),
            row.event_type.clone(),
            row.key.clone().unwrap_or_default(),
            row.last_error.clone().unwrap_or_default(),
        ]);
    }
    table.write(out)?;
    out.flush()
}
