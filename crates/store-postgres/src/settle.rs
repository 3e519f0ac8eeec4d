//! Recording outcomes other than "published": one statement a batch, conditional on the row being
//! undelivered still.

use std::collections::HashSet;

use posthaste_core::{
    Result, RouteKey, RowId, Status,
    port::{Settled, Settlement},
};
use uuid::Uuid;

use crate::{PostgresStore, schema::Names};

pub(crate) fn settle_sql(names: &Names) -> String {
    names.sql(include_str!("../sql/settle.sql"))
}

impl PostgresStore {
    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let mut answers = Vec::with_capacity(settlements.len());
        let mut rest = settlements;
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(distinct(rest));
            let changed = self.settle_batch(batch).await?;
            let answer = |id| if changed.contains(&id) { Settled::Done } else { Settled::Stale };
            answers.extend(batch.iter().map(|settlement| answer(settlement.id())));
            rest = later;
        }
        Ok(answers)
    }

    async fn settle_batch(&self, batch: &[Settlement]) -> Result<HashSet<RowId>> {
        let columns = Columns::of(batch);
        let session = self.settling.session(&self.server).await?;
        let doing = format!("settling rows of {}", self.names.table());
        let work = async {
            let statement = session.prepared(&self.settle_sql).await?;
            let Columns { ids, statuses, due_in, counted, errors, outstanding } = &columns;
            session.client.query(&statement, &[ids, statuses, due_in, counted, errors, outstanding]).await
        };
        let rows = session.within(doing, work).await?;
        Ok(rows.iter().map(|row| RowId::from(row.get::<_, Uuid>(0))).collect())
    }
}

/// How many settlements from the start are of different rows: one statement changes a row once.
fn distinct(settlements: &[Settlement]) -> usize {
    let mut seen = HashSet::new();
    settlements.iter().take_while(|settlement| seen.insert(settlement.id())).count()
}

/// Settlements as columns: what is `None` leaves the row's own value.
#[derive(Default)]
struct Columns {
    ids: Vec<Uuid>,
    statuses: Vec<Option<&'static str>>,
    due_in: Vec<Option<i64>>,
    counted: Vec<i32>,
    errors: Vec<Option<String>>,
    outstanding: Vec<Option<String>>,
}

impl Columns {
    fn of(settlements: &[Settlement]) -> Columns {
        let mut columns = Columns::default();
        for settlement in settlements {
            columns.push(settlement);
        }
        columns
    }

    fn push(&mut self, settlement: &Settlement) {
        let (mut status, mut wait, mut count, mut reason, mut left) = (None, None, false, None, None);
        match settlement {
            Settlement::Progress { outstanding, .. } => left = Some(outstanding),
            Settlement::Retry { due_in, counted, error, outstanding, .. } => {
                status = Some(Status::Failed.as_str());
                wait = Some(i64::try_from(due_in.as_micros()).unwrap_or(i64::MAX / 2));
                (count, reason, left) = (*counted, Some(error), outstanding.as_ref());
            }
            Settlement::Invalid { counted, error, outstanding, .. } => {
                status = Some(Status::Invalid.as_str());
                (count, reason, left) = (*counted, Some(error), outstanding.as_ref());
            }
            Settlement::Note { error, .. } => reason = Some(error),
        }
        self.ids.push(settlement.id().uuid());
        self.statuses.push(status);
        self.due_in.push(wait);
        self.counted.push(i32::from(count));
        self.errors.push(reason.map(|error| without_nul(error)));
        self.outstanding.push(left.map(|routes| json_list(routes)));
    }
}

/// PostgreSQL has no NUL in a text; what a target answers may hold one.
pub(crate) fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn json_list(routes: &[RouteKey]) -> String {
    serde_json::Value::from_iter(routes.iter().map(RouteKey::as_str)).to_string()
}
