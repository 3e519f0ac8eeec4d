//! The pump's task over a transport that panics.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use posthaste_core::{
    Class, Failure, LaneSet, Message, Proof, Result, RowRef, Timestamp,
    port::{
        Armed, Lanes, Marked, Page, ReadRequest, Settled, Settlement, Transport, TransportCapabilities, Wake, Wakeups,
    },
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::model::{Database, routes_to};
use crate::{
    pump::{Progress, Pump, Wires},
    settings::Settings,
};

/// A store over the model.
struct Store(Mutex<Database>);

#[async_trait]
impl Lanes for Store {
    async fn read(&self, request: ReadRequest) -> Result<Page> {
        let page = self.0.lock().unwrap().read(&request, Duration::ZERO);
        Ok(Page { proof: Proof::Ordered, now: Timestamp::from_micros(0), ..page })
    }

    async fn mark(&self, rows: &[RowRef]) -> Result<Marked> {
        Ok(self.0.lock().unwrap().mark(rows))
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let mut database = self.0.lock().unwrap();
        Ok(settlements.iter().map(|settlement| database.settle(settlement, Duration::ZERO)).collect())
    }

    fn wakeups(&self) -> Arc<dyn Wakeups> {
        Arc::new(Silent)
    }
}

struct Silent;

#[async_trait]
impl Wakeups for Silent {
    async fn arm(&self) -> Result<Armed> {
        Ok(Armed::Yes)
    }

    async fn disarm(&self) -> Result<()> {
        Ok(())
    }

    async fn next(&self) -> Wake {
        std::future::pending().await
    }
}

/// Panics at its first publication and at its first probe; in between it asks for a pause.
#[derive(Default)]
struct Clumsy {
    published: AtomicU32,
    probed: AtomicU32,
}

#[async_trait]
impl Transport for Clumsy {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { max_batch: 1, concurrency: 1, max_body: None }
    }

    async fn publish(&self, batch: Vec<Message>, _: Duration) -> Vec<std::result::Result<(), Failure>> {
        match self.published.fetch_add(1, SeqCst) {
            0 => panic!("a publication"),
            1 => vec![Err(Failure::new(Class::Transient, "busy").retry_after(Some(Duration::from_millis(1))))],
            _ => batch.iter().map(|_| Ok(())).collect(),
        }
    }

    async fn probe(&self, _: Duration) -> std::result::Result<(), Failure> {
        assert_ne!(self.probed.fetch_add(1, SeqCst), 0, "a probe");
        Ok(())
    }

    async fn close(&self) {}
}

#[tokio::test]
async fn lw_04_a_transport_that_panics_delays_its_target_and_never_stops_it() {
    let mut database = Database::default();
    let transaction = database.begin();
    database.insert(transaction, None, Duration::ZERO, 1);
    database.commit(transaction, 1);
    let routes = Arc::new(routes_to(&["r"]));
    let transport: Arc<dyn Transport> = Arc::new(Clumsy::default());
    let store = Arc::new(Store(Mutex::new(database)));
    let transports = HashMap::from([("r".into(), transport)]);
    let pump = Pump { store: store.clone(), routes, transports, settings: Settings::default(), seed: 7 };
    let (_owned, owned_changed) = watch::channel(LaneSet::ALL);
    let (progress, mut seen) = watch::channel(Progress::default());
    let stop = CancellationToken::new();
    let waker = Arc::default();
    let wires = Wires {
        owned: Arc::new(|| LaneSet::ALL),
        owned_changed,
        stop: stop.clone(),
        waker,
        pulse: Arc::new(crate::pulse::Pulse::new(Duration::from_secs(5))),
        progress,
        listening: watch::channel(true).0,
        observe: Arc::new(|_| ()),
    };
    let task = tokio::spawn(pump.run(wires));
    let delivered = |_: &Progress| {
        let database = store.0.lock().unwrap();
        database.rows.values().all(|stored| !stored.row.status.is_undelivered())
    };
    tokio::time::timeout(Duration::from_secs(60), seen.wait_for(delivered)).await.expect("it stands still").unwrap();
    stop.cancel();
    task.await.unwrap();
}
