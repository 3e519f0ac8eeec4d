//! Repairing: retry, discard, prune. Each is one statement that also writes down who and why.

use async_trait::async_trait;
use posthaste_core::{
    Result, Status,
    port::{By, Operate, OperateReport, PruneRequest, Selection},
};
use tokio_postgres::types::Type;

use crate::{
    PostgresStore,
    connect::Typed,
    inspect::{Matching, matches},
    settle::without_nul,
};

#[async_trait]
impl Operate for PostgresStore {
    async fn retry(&self, selection: &Selection, by: &By, limit: u32) -> Result<OperateReport> {
        self.change("retrying rows", include_str!("../sql/retry.sql"), selection, by, limit).await
    }

    async fn discard(&self, selection: &Selection, by: &By, limit: u32) -> Result<OperateReport> {
        self.change("discarding rows", include_str!("../sql/discard.sql"), selection, by, limit).await
    }

    async fn count(&self, selection: &Selection) -> Result<u64> {
        let sql = r#"SELECT count(*) FROM "{t}" WHERE $1::bigint IS NULL
            AND status IN ('pending', 'failed', 'invalid') AND {matches}"#;
        let matching = Matching::selected(selection);
        let mut parameters: Vec<Typed<'_>> = vec![(&None::<i64>, Type::INT8)];
        parameters.extend(matching.parameters());
        let rows = self.look("counting rows", &matches(sql), &parameters).await?;
        Ok(first_count(&rows))
    }

    async fn prune(&self, request: &PruneRequest, limit: u32) -> Result<u64> {
        let sql = format!(
            r#"WITH old AS (SELECT id FROM "{{t}}" WHERE {} LIMIT $2 FOR UPDATE SKIP LOCKED),
            gone AS (DELETE FROM "{{t}}" AS o USING old WHERE o.id = old.id RETURNING 1) SELECT count(*) FROM gone"#,
            old(request.status)
        );
        let age = micros(request);
        let parameters: [Typed<'_>; 2] = [(&age, Type::INT8), (&i64::from(limit), Type::INT8)];
        Ok(first_count(&self.look("pruning rows", &sql, &parameters).await?))
    }

    async fn count_prunable(&self, request: &PruneRequest) -> Result<u64> {
        let sql = format!(r#"SELECT count(*) FROM (SELECT 1 FROM "{{t}}" WHERE {}) AS old"#, old(request.status));
        Ok(first_count(&self.look("counting old rows", &sql, &[(&micros(request), Type::INT8)]).await?))
    }
}

impl PostgresStore {
    async fn change(
        &self,
        doing: &str,
        sql: &str,
        selection: &Selection,
        by: &By,
        limit: u32,
    ) -> Result<OperateReport> {
        let matching = Matching::selected(selection);
        let (limit, who, why) = (i64::from(limit), without_nul(&by.who), without_nul(&by.why));
        let mut parameters: Vec<Typed<'_>> = vec![(&limit, Type::INT8)];
        parameters.extend(matching.parameters());
        parameters.extend([(&who as _, Type::TEXT), (&why as _, Type::TEXT)]);
        let rows = self.look(doing, &matches(sql), &parameters).await?;
        let count = |column| rows.first().map_or(0, |row| u64::try_from(row.get::<_, i64>(column)).unwrap_or(0));
        Ok(OperateReport { matched: count(0), changed: count(1) })
    }
}

/// Which rows are old, in the order of an index that finds them without a scan. Nothing but
/// `published` and `invalid` is ever pruned.
fn old(status: Status) -> &'static str {
    match status {
        Status::Published => {
            "status = 'published' AND published_at < clock_timestamp() - $1 * interval '1 microsecond' \
             ORDER BY published_at, seq"
        }
        Status::Invalid => {
            "status = 'invalid' AND created_at < clock_timestamp() - $1 * interval '1 microsecond' ORDER BY seq"
        }
        Status::Pending | Status::Processing | Status::Failed => "$1 IS NULL ORDER BY seq",
    }
}

fn micros(request: &PruneRequest) -> i64 {
    // A thousand years is as good as for ever, and within what a timestamp can hold.
    const FOR_EVER: i64 = 1000 * 366 * 86_400 * 1_000_000;
    i64::try_from(request.older_than.as_micros()).unwrap_or(FOR_EVER).min(FOR_EVER)
}

fn first_count(rows: &[tokio_postgres::Row]) -> u64 {
    rows.first().map_or(0, |row| u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
}
