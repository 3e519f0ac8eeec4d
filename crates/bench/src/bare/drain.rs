//! Read, send, mark, all three overlapped: the reader is a page ahead, the marker merges whatever
//! is confirmed meanwhile into one statement.

use std::{io::Write as _, path::Path, sync::Arc};

use tokio::{
    sync::{Mutex, mpsc},
    task::JoinSet,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::publish;
use crate::{
    Result,
    scene::{Outbox, connect},
    watched::Count,
};

/// Rows of a read.
const PAGE: usize = 500;
/// Most rows of a mark.
const MOST_MARKED: usize = 2_000;
/// Channels that publish at once, each with one batch in flight.
const CHANNELS: usize = 8;
/// Messages of a batch.
const BATCH: usize = 250;

pub(super) const ID: usize = 2;
pub(super) const TYPE: usize = 3;
pub(super) const CONTENT_TYPE: usize = 4;
pub(super) const BODY: usize = 5;

type Rows = Vec<Row>;

/// Reads and marks; sends nothing.
pub(crate) async fn to_nothing(outbox: &Outbox, count: Arc<Count>) -> Result<()> {
    let (pages, mut read) = mpsc::channel::<Rows>(2);
    let (confirmed, to_mark) = mpsc::channel::<Vec<Uuid>>(8);
    let mut stages = JoinSet::new();
    stages.spawn(reader(outbox.url.clone(), outbox.table.clone(), pages));
    stages.spawn(mark_all(outbox.url.clone(), outbox.table.clone(), to_mark));
    stages.spawn(async move {
        while let Some(rows) = read.recv().await {
            count.confirm(rows.len());
            confirmed.send(ids(&rows)).await?;
        }
        Ok(())
    });
    join(stages).await
}

/// To a file: a line a row, synced once a page.
pub(crate) async fn to_file(outbox: &Outbox, path: &Path, count: Arc<Count>) -> Result<()> {
    let (pages, mut read) = mpsc::channel::<Rows>(2);
    let (confirmed, to_mark) = mpsc::channel::<Vec<Uuid>>(8);
    let mut stages = JoinSet::new();
    stages.spawn(reader(outbox.url.clone(), outbox.table.clone(), pages));
    stages.spawn(mark_all(outbox.url.clone(), outbox.table.clone(), to_mark));
    let mut file = std::fs::File::create(path)?;
    stages.spawn_blocking(move || {
        while let Some(rows) = read.blocking_recv() {
            let mut lines = Vec::new();
            for row in &rows {
                lines.extend_from_slice(row.get::<_, &[u8]>(BODY));
                lines.push(b'\n');
            }
            file.write_all(&lines)?;
            file.sync_data()?;
            count.confirm(rows.len());
            confirmed.blocking_send(ids(&rows))?;
        }
        Ok(())
    });
    join(stages).await
}

/// To a queue: persistent, mandatory, confirmed.
pub(crate) async fn to_queue(outbox: &Outbox, rabbitmq: &str, queue: &str, count: Arc<Count>) -> Result<()> {
    let (batches, read) = mpsc::channel::<Rows>(CHANNELS);
    let (confirmed, to_mark) = mpsc::channel::<Vec<Uuid>>(CHANNELS);
    let mut stages = JoinSet::new();
    stages.spawn(reader(outbox.url.clone(), outbox.table.clone(), batches));
    stages.spawn(mark_all(outbox.url.clone(), outbox.table.clone(), to_mark));
    let connection = Arc::new(publish::connect(rabbitmq).await?);
    let read = Arc::new(Mutex::new(read));
    for _ in 0..CHANNELS {
        let (read, confirmed, count, queue) = (read.clone(), confirmed.clone(), count.clone(), queue.to_owned());
        let connection = connection.clone();
        stages.spawn(async move {
            let channel = publish::channel(&connection).await?;
            loop {
                // the lock is only for taking turns at the channel
                let Some(rows) = read.lock().await.recv().await else { return Ok(()) };
                publish::all(&channel, &queue, &rows).await?;
                count.confirm(rows.len());
                confirmed.send(ids(&rows)).await?;
            }
        });
    }
    drop(confirmed);
    join(stages).await
}

async fn reader(url: String, table: String, out: mpsc::Sender<Rows>) -> Result<()> {
    let client = connect(&url).await?;
    client.batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off").await?;
    let sql = format!(
        "SELECT lane, seq, id, type, content_type, body FROM \"{table}\" \
         WHERE (lane, seq) > ($1::smallint, $2::bigint) AND status IN ('pending', 'processing', 'failed') \
         ORDER BY lane, seq LIMIT {PAGE}"
    );
    let read = client.prepare(&sql).await?;
    let (mut lane, mut seq) = (0_i16, 0_i64);
    loop {
        let mut rows = client.query(&read, &[&lane, &seq]).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        (lane, seq) = (last.get(0), last.get(1));
        while !rows.is_empty() {
            let rest = rows.split_off(rows.len().min(BATCH));
            out.send(rows).await?;
            rows = rest;
        }
    }
}

/// Marks whatever is confirmed, until nothing more can be.
pub(super) async fn mark_all(url: String, table: String, mut confirmed: mpsc::Receiver<Vec<Uuid>>) -> Result<()> {
    let client = connect(&url).await?;
    let sql = format!(
        "UPDATE \"{table}\" SET status = 'published', published_at = clock_timestamp() \
         WHERE id = ANY($1) AND status <> 'published'"
    );
    let mark = client.prepare(&sql).await?;
    while let Some(mut ids) = confirmed.recv().await {
        while ids.len() < MOST_MARKED
            && let Ok(more) = confirmed.try_recv()
        {
            ids.extend(more);
        }
        ids.sort_unstable();
        client.execute(&mark, &[&ids]).await?;
    }
    Ok(())
}

fn ids(rows: &[Row]) -> Vec<Uuid> {
    rows.iter().map(|row| row.get(ID)).collect()
}

async fn join(mut stages: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = stages.join_next().await {
        ended??;
    }
    Ok(())
}
