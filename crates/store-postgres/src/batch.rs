//! One call of enqueue, apart from the driver that carries it out: ids, columns, and what becomes
//! of an id that is present already.

use std::collections::{BTreeMap, HashMap};

use posthaste_core::{
    Error, ErrorKind, Event, Lane, RowId,
    cloudevents::TRACE_HEADERS,
    event::Limits,
    port::{EnqueueError, Enqueued, Receipt},
};

/// Events on their way into the table.
pub(crate) struct Batch<'a> {
    events: &'a [Event],
    ids: Vec<RowId>,
    /// The first event of the call with the same id.
    twins: Vec<Option<usize>>,
    answers: Vec<Option<Enqueued>>,
    rounds: u32,
}

impl<'a> Batch<'a> {
    /// What is there of ids that could not be written.
    pub(crate) const PRESENT: &'static str = r#"SELECT id::text, lane, type, ordering_key, tenant, content_type,
        headers::text, body FROM "{t}" WHERE id = ANY($1::text[]::uuid[])"#;
    /// Takes back what this call has written.
    pub(crate) const UNDO: &'static str = r#"DELETE FROM "{t}" WHERE id = ANY($1::text[]::uuid[])"#;
    /// A row that meets one of its id, which then is gone again: how often before giving up.
    const ROUNDS: u32 = 5;

    /// Checks the events and gives them ids.
    pub(crate) fn new(events: &'a [Event], limits: Limits) -> Result<Batch<'a>, EnqueueError> {
        let mut first = HashMap::new();
        let (mut ids, mut twins) = (Vec::with_capacity(events.len()), vec![None; events.len()]);
        for (index, event) in events.iter().enumerate() {
            event.check(limits).map_err(|error| EnqueueError::Event { index, error })?;
            let id = event.id.unwrap_or_else(RowId::generate);
            ids.push(id);
            if event.id.is_none() {
                continue;
            }
            match first.get(&id) {
                Some(&twin) if same_event(&events[twin], event) => twins[index] = Some(twin),
                Some(_) => return Err(EnqueueError::Conflict { index, id }),
                None => _ = first.insert(id, index),
            }
        }
        Ok(Batch { events, ids, twins, answers: vec![None; events.len()], rounds: 0 })
    }

    /// The statement that writes these columns. A single row has one that is half as dear to plan, or
    /// hardly planned at all; a row that nobody can have written before needs no arbiter, and its
    /// writer no right to read.
    pub(crate) fn insert(&self, columns: &Columns<'_>) -> String {
        self.insert_rows(columns.is_single())
    }

    /// The same for one row, or for columns.
    pub(crate) fn insert_rows(&self, single: bool) -> String {
        let (one, all) = (include_str!("../sql/insert_one.sql"), include_str!("../sql/insert.sql"));
        let supplied = self.events.iter().any(|event| event.id.is_some());
        let arbiter = if supplied { "ON CONFLICT (id) DO NOTHING RETURNING id::text" } else { "" };
        match (single, supplied) {
            (true, false) => include_str!("../sql/enqueue_one.sql").to_owned(),
            (true, true) => format!("{one}{arbiter}"),
            (false, _) => format!("{all}{arbiter}"),
        }
    }

    /// What is to be written now; `None` once everything has its answer.
    pub(crate) fn next_round(&mut self, doing: &str) -> Result<Option<Columns<'a>>, EnqueueError> {
        let open: Vec<usize> = self.open().collect();
        if open.is_empty() {
            return Ok(None);
        }
        self.rounds += 1;
        if self.rounds > Batch::ROUNDS {
            let why = "another transaction keeps writing and deleting a row of the same id";
            return Err(Error::new(ErrorKind::Conflict, doing).because(why).into());
        }
        let mut columns = Columns::default();
        for index in open {
            columns.push(self.ids[index], &self.events[index]);
        }
        Ok(Some(columns))
    }

    /// Notes which supplied ids were written; all others were, or the statement had failed.
    pub(crate) fn wrote(&mut self, returned: &[String]) {
        let open: Vec<usize> = self.open().collect();
        for index in open {
            let id = self.ids[index];
            if self.events[index].id.is_none() || returned.contains(&id.to_string()) {
                self.answers[index] = Some(Enqueued { id, lane: self.events[index].lane(id), existing: false });
            }
        }
    }

    /// Ids that are present already, if any.
    pub(crate) fn missing(&self) -> Option<Vec<String>> {
        let ids: Vec<String> = self.open().map(|index| self.ids[index].to_string()).collect();
        (!ids.is_empty()).then_some(ids)
    }

    /// Compares what is present with what was to be written.
    pub(crate) fn meet(&mut self, present: &[Present]) -> Result<(), EnqueueError> {
        let open: Vec<usize> = self.open().collect();
        for index in open {
            let id = self.ids[index];
            let Some(row) = present.iter().find(|row| row.id == id.to_string()) else { continue };
            if !row.is(&self.events[index]) {
                return Err(EnqueueError::Conflict { index, id });
            }
            let lane = u8::try_from(row.lane).ok().and_then(Lane::new);
            let lane = lane.unwrap_or_else(|| self.events[index].lane(id));
            self.answers[index] = Some(Enqueued { id, lane, existing: true });
        }
        Ok(())
    }

    /// The ids that this call wrote.
    pub(crate) fn written(&self) -> Vec<String> {
        let new = self.answers.iter().flatten().filter(|answer| !answer.existing);
        new.map(|answer| answer.id.to_string()).collect()
    }

    /// The answers in the order of the events.
    pub(crate) fn receipt(self) -> Receipt {
        let answer = |index: usize| match self.twins[index] {
            Some(twin) => self.answers[twin].map(|first| Enqueued { existing: true, ..first }),
            None => self.answers[index],
        };
        Receipt::new((0..self.events.len()).filter_map(answer).collect())
    }

    fn open(&self) -> impl Iterator<Item = usize> {
        (0..self.events.len()).filter(|&index| self.twins[index].is_none() && self.answers[index].is_none())
    }
}

/// Events as the columns of the insert.
#[derive(Default)]
pub(crate) struct Columns<'a> {
    pub(crate) ids: Vec<String>,
    pub(crate) lanes: Vec<i16>,
    pub(crate) types: Vec<&'a str>,
    pub(crate) keys: Vec<Option<&'a str>>,
    pub(crate) tenants: Vec<Option<&'a str>>,
    pub(crate) priorities: Vec<i32>,
    pub(crate) headers: Vec<String>,
    pub(crate) content_types: Vec<&'a str>,
    pub(crate) bodies: Vec<Option<&'a [u8]>>,
    pub(crate) delays: Vec<i64>,
}

impl<'a> Columns<'a> {
    pub(crate) fn is_single(&self) -> bool {
        self.ids.len() == 1
    }

    fn push(&mut self, id: RowId, event: &'a Event) {
        self.ids.push(id.to_string());
        self.lanes.push(i16::from(event.lane(id).number()));
        self.types.push(&event.event_type);
        self.keys.push(event.key.as_deref());
        self.tenants.push(event.tenant.as_deref());
        self.priorities.push(event.priority);
        self.headers.push(serde_json::Value::from_iter(event.headers.clone()).to_string());
        self.content_types.push(&event.content_type);
        self.bodies.push(event.body.as_deref());
        self.delays.push(i64::try_from(event.delay.as_micros()).unwrap_or(i64::MAX / 2));
    }
}

/// A row that is in the table under an id that was to be written.
pub(crate) struct Present {
    pub(crate) id: String,
    pub(crate) lane: i16,
    pub(crate) event_type: String,
    pub(crate) key: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) content_type: String,
    pub(crate) headers: String,
    pub(crate) body: Option<Vec<u8>>,
}

impl Present {
    fn is(&self, event: &Event) -> bool {
        let Ok(headers) = serde_json::from_str::<BTreeMap<String, String>>(&self.headers) else { return false };
        self.event_type == event.event_type
            && self.key == event.key
            && self.tenant == event.tenant
            && self.content_type == event.content_type
            && self.body.as_deref() == event.body.as_deref()
            && own_headers(&headers).eq(own_headers(&event.headers))
    }
}

fn same_event(a: &Event, b: &Event) -> bool {
    (&a.event_type, &a.key, &a.tenant, &a.content_type, &a.body)
        == (&b.event_type, &b.key, &b.tenant, &b.content_type, &b.body)
        && own_headers(&a.headers).eq(own_headers(&b.headers))
}

/// A repeated request has a trace of its own and is the same event all the same.
fn own_headers(headers: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    headers.iter().filter(|(name, _)| !TRACE_HEADERS.contains(&name.as_str()))
}
