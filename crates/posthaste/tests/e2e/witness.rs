//! What relays say while the tests run: their warnings and their metrics, by outbox.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError, atomic::AtomicU64},
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use posthaste::OutboxName;
use tracing::{Event, Level, Subscriber, field, span};

static WARNINGS: Mutex<Vec<Warning>> = Mutex::new(Vec::new());
static METERS: Mutex<BTreeMap<String, Arc<AtomicU64>>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Warning {
    outbox: String,
    text: String,
}

/// Listens from now on. Repeating it is harmless.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(Witness).expect("no other subscriber in the tests");
        metrics::set_global_recorder(Witness).expect("no other recorder in the tests");
    });
}

/// The warnings about an outbox so far.
pub fn warnings(outbox: &OutboxName) -> Vec<String> {
    let outbox = outbox.to_string();
    lock(&WARNINGS).iter().filter(|warning| warning.outbox == outbox).map(|warning| warning.text.clone()).collect()
}

/// A counter of an outbox, added up over the labels that are not named.
pub fn counted(name: &str, outbox: &OutboxName, label: &str) -> u64 {
    let wanted = [format!("{name},"), format!(",outbox={outbox},"), format!(",{label},")];
    let meters = lock(&METERS);
    let matching = meters.iter().filter(|(key, _)| wanted.iter().all(|part| key.contains(part)));
    matching.map(|(_, meter)| meter.load(std::sync::atomic::Ordering::Relaxed)).sum()
}

/// A gauge of an outbox; not a number where it is not known.
pub fn gauge(name: &str, outbox: &OutboxName) -> f64 {
    f64::from_bits(counted(name, outbox, &format!("outbox={outbox}")))
}

fn meter(key: &Key) -> Arc<AtomicU64> {
    let labels: String = key.labels().map(|label| format!("{}={},", label.key(), label.value())).collect();
    // The label `outbox` is between commas, whether it is the first one or not.
    lock(&METERS).entry(format!("{},,{labels}", key.name())).or_default().clone()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Witness;

impl Subscriber for Witness {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("posthaste")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut warning = Warning::default();
        event.record(&mut warning);
        lock(&WARNINGS).push(warning);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl field::Visit for Warning {
    fn record_debug(&mut self, field: &field::Field, value: &dyn Debug) {
        match field.name() {
            "outbox" => self.outbox = format!("{value:?}").trim_matches('"').to_owned(),
            "message" => self.text = format!("{value:?}"),
            _ => {}
        }
    }
}

impl metrics::Recorder for Witness {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(meter(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(meter(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
