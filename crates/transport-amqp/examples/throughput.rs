//! Messages per second through the transport against bare loops over lapin, on the same broker.
//!
//! `cargo run --release -p posthaste-transport-amqp --example throughput -- amqp://localhost [MESSAGES] [ROUNDS]`

use std::{error::Error, sync::Arc, time::Instant};

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions},
    types::{AMQPValue, FieldTable},
};
use posthaste_core::{
    Body, Lane, Message, RouteKey, Row, RowId, Status, Timestamp,
    options::Options,
    port::{Target, Transport},
};

const BATCH: usize = 250;
const CHANNELS: usize = 8;
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);
const QUEUE: &str = "posthaste-throughput";

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "amqp://localhost/%2f".to_owned());
    let messages = arguments.next().map_or(Ok(20_000), |count| count.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(3), |count| count.parse())?;
    let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
    let admin = connection.create_channel().await?;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    admin.queue_declare(QUEUE.into(), durable, FieldTable::default()).await?;
    let target = posthaste_transport_amqp::parse(&url, Options::default())?;
    for _ in 0..rounds {
        measure("lapin, 1 channel ", messages, bare(&connection, messages, 1)).await?;
        admin.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await?;
        measure("lapin, 8 channels", messages, bare(&connection, messages, CHANNELS)).await?;
        admin.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await?;
        let batches = (0..CHANNELS).map(|_| batches(&target, messages / CHANNELS)).collect();
        measure("transport        ", messages, ours(&*target.transport, batches)).await?;
        admin.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await?;
    }
    admin.queue_delete(QUEUE.into(), QueueDeleteOptions::default()).await?;
    Ok(())
}

async fn measure(name: &str, messages: usize, run: impl Future<Output = Outcome>) -> Outcome {
    let (start, cpu) = (Instant::now(), cpu_millis()?);
    run.await?;
    let (took, cpu) = (start.elapsed().as_secs_f64(), cpu_millis()? - cpu);
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let (rate, each) = (messages as f64 / took, cpu as f64 * 1000.0 / messages as f64);
    println!("{name}  {rate:8.0} messages/s  {each:5.1} µs CPU each");
    Ok(())
}

/// User and system time of this process, from ticks of 10 ms.
fn cpu_millis() -> Result<u64, Box<dyn Error + Send + Sync>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(") ").ok_or("no process name")?.1;
    let fields: Vec<&str> = after_name.split(' ').collect();
    Ok((fields[11].parse::<u64>()? + fields[12].parse::<u64>()?) * 10)
}

async fn ours(transport: &dyn Transport, batches: Vec<Vec<Vec<Message>>>) -> Outcome {
    let one = |batches: Vec<Vec<Message>>| async move {
        for batch in batches {
            for answer in transport.publish(batch, DEADLINE).await {
                answer?;
            }
        }
        Ok(())
    };
    join_all(batches.into_iter().map(one)).await.into_iter().collect()
}

async fn bare(connection: &Connection, messages: usize, channels: usize) -> Outcome {
    let one = async || -> Outcome {
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        for _ in 0..messages / channels / BATCH {
            bare_batch(&channel).await?;
        }
        Ok(())
    };
    try_join_all((0..channels).map(|_| one())).await.map(drop)
}

/// As many bytes and headers as the transport sends, made once for all.
async fn bare_batch(channel: &Channel) -> Outcome {
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_delivery_mode(2)
        .with_timestamp(1_767_323_045)
        .with_headers(headers())
        .with_message_id("0190163d-8694-739b-aea5-966c26f8ad91".into())
        .with_type(QUEUE.into());
    let publish = || channel.basic_publish("".into(), QUEUE.into(), options, &[b'x'; 500], properties.clone());
    let confirms = try_join_all((0..BATCH).map(|_| publish())).await?;
    for confirm in confirms {
        confirm.await?;
    }
    Ok(())
}

fn headers() -> FieldTable {
    let id = "0190163d-8694-739b-aea5-966c26f8ad91";
    let values = ["1.0", id, "/bench", QUEUE, "2026-01-02T03:04:05.678000Z", id];
    let names = ["specversion", "id", "source", "type", "time", "rowid"];
    let mut table = FieldTable::default();
    for (name, value) in names.into_iter().zip(values) {
        table.insert(format!("cloudEvents:{name}").into(), AMQPValue::LongString(value.into()));
    }
    table
}

fn batches(target: &Target, messages: usize) -> Vec<Vec<Message>> {
    (0..messages / BATCH).map(|_| (0..BATCH).map(|_| message(target)).collect()).collect()
}

fn message(target: &Target) -> Message {
    let id = RowId::generate();
    let route = RouteKey::single();
    let row = Row {
        id,
        seq: 1,
        lane: Lane::of_id(id),
        event_type: QUEUE.to_owned(),
        key: None,
        tenant: None,
        priority: 0,
        headers: Default::default(),
        content_type: "application/json".to_owned(),
        body: Body::Bytes(Bytes::from_static(&[b'x'; 500])),
        due_at: Timestamp::from_micros(0),
        status: Status::Pending,
        attempts: 0,
        last_error: None,
        outstanding: None,
        created_at: Timestamp::from_micros(1_767_323_045_678_000),
        published_at: None,
        defect: None,
    };
    let address = target.address.fill(&row);
    Message { id: id.message_id(&route), route, source: "/bench".into(), address, payload: None, row: Arc::new(row) }
}
