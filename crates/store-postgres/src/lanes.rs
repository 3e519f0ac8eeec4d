//! Reading and marking.
//!
//! A page, its snapshot and its clock come from one statement. It reads nothing but the partial
//! index of undelivered rows and the rows it points to, so its cost does not depend on the backlog.

use std::{pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::TryStreamExt;
use posthaste_core::{
    Error, ErrorKind, Lane, LaneSet, Proof, Result, RowRef, Snapshot,
    port::{Lanes, Marked, Page, ReadRequest, Settled, Settlement, Wakeups},
};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{
    PostgresStore,
    connect::Session,
    error::explain,
    rows::{self, BODY, Instant},
    schema::Names,
    wake::PostgresWakeups,
};

pub(crate) fn read_sql(names: &Names) -> String {
    names.sql(include_str!("../sql/read.sql"))
}

pub(crate) fn mark_sql(names: &Names, retention: Duration) -> String {
    let template =
        if retention.is_zero() { include_str!("../sql/mark_by_deleting.sql") } else { include_str!("../sql/mark.sql") };
    names.sql(template)
}

#[async_trait]
impl Lanes for PostgresStore {
    async fn read(&self, request: ReadRequest) -> Result<Page> {
        let session = self.reading.session(&self.server).await?;
        let doing = format!("reading a page of {}", self.names.table());
        // The page is collected outside of the deadline's error type: both kinds of failure end here.
        let page = session.within(&doing, async { Ok(self.read_page(&session, &request).await) }).await?;
        page.map_err(|failure| failure.explained(&doing))
    }

    async fn mark(&self, rows: &[RowRef]) -> Result<Marked> {
        if rows.is_empty() {
            return Ok(Marked { changed: 0, transaction: None });
        }
        // Two that mark the same rows take their locks in the same order.
        let mut rows: Vec<(Uuid, i64)> = rows.iter().map(|row| (row.id.uuid(), row.seq)).collect();
        rows.sort_unstable();
        let (ids, seqs): (Vec<Uuid>, Vec<i64>) = rows.into_iter().unzip();
        let session = self.settling.session(&self.server).await?;
        let doing = format!("marking rows of {}", self.names.table());
        let work = async {
            let statement = session.prepared(&self.mark_sql).await?;
            session.client.query_one(&statement, &[&ids, &seqs]).await
        };
        let row = session.within(&doing, work).await?;
        let transaction = row.get::<_, &str>(1).parse().ok();
        Ok(Marked { changed: u64::try_from(row.get::<_, i64>(0)).unwrap_or(0), transaction })
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        self.settle_all(settlements).await
    }

    fn wakeups(&self) -> Arc<dyn Wakeups> {
        Arc::new(PostgresWakeups::new(self.server.clone(), self.names.clone()))
    }
}

/// Why a page could not be read.
enum ReadFailure {
    Driver(tokio_postgres::Error),
    Store(Error),
}

impl ReadFailure {
    fn explained(self, doing: &str) -> Error {
        match self {
            ReadFailure::Driver(error) => explain(doing, error),
            ReadFailure::Store(error) => error,
        }
    }
}

impl From<tokio_postgres::Error> for ReadFailure {
    fn from(error: tokio_postgres::Error) -> ReadFailure {
        ReadFailure::Driver(error)
    }
}

impl From<Error> for ReadFailure {
    fn from(error: Error) -> ReadFailure {
        ReadFailure::Store(error)
    }
}

impl PostgresStore {
    /// Rows are converted as they arrive, so that a page is never held twice.
    async fn read_page(&self, session: &Session, request: &ReadRequest) -> Result<Page, ReadFailure> {
        let statement = session.prepared(&self.read_sql).await?;
        let parameters = Parameters::of(request);
        let mut stream = pin!(session.client.query_raw(&statement, parameters.list()).await?);
        let (mut rows, mut end) = (Vec::new(), None);
        while let Some(row) = stream.try_next().await? {
            if row.try_get::<_, Option<Uuid>>(0)?.is_some() {
                rows.push(rows::decode_whole(&row, request.max_body)?);
            } else {
                end = Some(row);
            }
        }
        let end = end.ok_or_else(|| corrupt("a page without its end".to_owned()))?;
        let snapshot: Snapshot = end.try_get::<_, &str>(BODY + 3)?.parse().map_err(corrupt)?;
        let more: Vec<i16> = end.try_get(BODY + 4)?;
        let now = end.try_get::<_, Instant>(BODY + 2)?.0;
        Ok(Page { rows, more: lane_set(&more), now, proof: Proof::Snapshot(snapshot) })
    }
}

fn lane_set(lanes: &[i16]) -> LaneSet {
    lanes.iter().filter_map(|lane| u8::try_from(*lane).ok().and_then(Lane::new)).collect()
}

fn corrupt(what: String) -> Error {
    Error::new(ErrorKind::Corrupt, "reading a page").because(what)
}

/// A read request as the statement's parameters.
struct Parameters {
    lanes: Vec<i16>,
    cursors: Vec<i64>,
    share: i64,
    per_lane: i64,
    max_rows: i64,
    max_body: i64,
    max_bytes: i64,
}

impl Parameters {
    fn of(request: &ReadRequest) -> Parameters {
        let lanes = u32::try_from(request.from.len()).unwrap_or(u32::MAX).max(1);
        Parameters {
            lanes: request.from.iter().map(|(lane, _)| i16::from(lane.number())).collect(),
            cursors: request.from.iter().map(|(_, cursor)| *cursor).collect(),
            share: i64::from(request.max_rows.div_ceil(lanes).min(request.per_lane)),
            per_lane: i64::from(request.per_lane),
            max_rows: i64::from(request.max_rows),
            max_body: i64::try_from(request.max_body).unwrap_or(i64::MAX),
            max_bytes: i64::try_from(request.max_bytes).unwrap_or(i64::MAX),
        }
    }

    fn list(&self) -> [&(dyn ToSql + Sync); 7] {
        [&self.lanes, &self.cursors, &self.share, &self.per_lane, &self.max_rows, &self.max_body, &self.max_bytes]
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::port::Schema;

    use super::*;

    #[test]
    fn every_lane_has_an_equal_share_of_a_page_first() {
        let request = |lanes: u8, per_lane, max_rows| ReadRequest {
            from: (0..lanes).filter_map(Lane::new).map(|lane| (lane, 0)).collect(),
            per_lane,
            max_rows,
            max_bytes: 1,
            max_body: 1,
        };
        let share = |lanes, per_lane, max_rows| Parameters::of(&request(lanes, per_lane, max_rows)).share;
        assert_eq!([share(128, 1000, 1000), share(128, 3, 1000), share(1, 500, 200), share(0, 5, 5)], [8, 3, 200, 5]);
    }

    /// The plan of the read of all lanes from the start, as the session for reading has it.
    async fn plan(store: &PostgresStore) -> String {
        let session = store.reading.session(&store.server).await.unwrap();
        let types = "smallint[], bigint[], bigint, bigint, bigint, bigint, bigint";
        let prepare = format!("PREPARE page({types}) AS {}", store.read_sql);
        session.client.batch_execute(&prepare).await.unwrap();
        let lanes: Vec<String> = (0..128).map(|lane| lane.to_string()).collect();
        let cursors = vec!["0"; 128].join(",");
        let explain = format!(
            "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE page('{{{}}}', '{{{cursors}}}', 2, 1000, 256, 1000, 1000000)",
            lanes.join(",")
        );
        let rows = session.client.query(&explain, &[]).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
    }

    #[tokio::test]
    async fn port_l6_a_page_reads_the_partial_index_in_order_whatever_the_history() {
        let Some(url) = posthaste_testkit::service::postgres() else { return };
        let name = posthaste_testkit::service::outbox_name();
        let store = PostgresStore::new(&url, name.clone(), crate::Settings::default()).unwrap();
        store.migrate().await.unwrap();
        let session = store.looking.session(&store.server).await.unwrap();
        let fill = store.names.sql(
            r#"INSERT INTO "{t}" (type, body, status, published_at)
                 SELECT 't', 'x', 'published', now() FROM generate_series(1, 100000);
               ANALYZE "{t}"; INSERT INTO "{t}" (type, body) SELECT 't', 'x' FROM generate_series(1, 5000)"#,
        );
        session.client.batch_execute(&fill).await.unwrap();
        // The statistics know nothing but history, and thousands of rows wait.
        let plan = plan(&store).await;
        let index = format!("using \"{}_undelivered\"", name.table());
        let index = if plan.contains(&index) { index } else { index.replace('"', "") };
        assert!(plan.contains(&index), "{plan}");
        for costly in ["Sort", "Seq Scan", "Bitmap"] {
            assert!(!plan.contains(costly), "{costly}: {plan}");
        }
        let scans = plan.lines().filter(|line| line.contains(&index) && line.contains("actual rows="));
        let touched = scans.map(|line| {
            let number =
                |after: &str| line.split(after).nth(1).and_then(|rest| rest.split([' ', ')']).next()?.parse().ok());
            number("rows=").unwrap_or(0) * number("loops=").unwrap_or(0)
        });
        let touched: u64 = touched.sum();
        assert!((256..=2 * 256).contains(&touched), "a page's rows, and one more of each lane: {plan}");
        let drop = r#"DROP TABLE "{t}", "{t}_log"; DROP FUNCTION "{t}_lane", "{t}_wake", "{t}_enqueue", "{t}_version""#;
        session.client.batch_execute(&store.names.sql(drop)).await.unwrap();
    }
}
