//! Where rows stand: the relay speaks of ids, the table is addressed by `seq`.
//!
//! An index on the id would cost every commit of the application, so the store remembers the rows
//! that it has read, and looks for the others. A `seq` is used only together with the id.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use posthaste_core::{RowId, RowRef, Seq};
use rusqlite::Connection;

use crate::{rows, tables::Tables};

/// About 6 MB at most; more than a relay has under way and waiting.
const REMEMBERED: usize = 65_536;

/// Where a row stands.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub seq: Seq,
    /// The bytes of the id as it stands in the table.
    pub stored_id: Vec<u8>,
}

/// Which rows to look for.
#[derive(Clone, Copy)]
pub(crate) enum Among {
    /// Those still to be delivered, and the dead letters.
    Changeable,
    /// All.
    Kept,
}

/// The rows that were read and are not delivered yet.
#[derive(Default)]
pub(crate) struct Places {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    places: HashMap<RowId, (Seq, Option<Vec<u8>>)>,
    order: VecDeque<RowId>,
}

impl Places {
    /// Remembers rows.
    pub fn remember(&self, rows: impl Iterator<Item = (RowId, Seq, Option<Vec<u8>>)>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, seq, odd) in rows {
            if known.places.insert(id, (seq, odd)).is_none() {
                known.order.push_back(id);
            }
        }
        while known.order.len() > REMEMBERED {
            let oldest = known.order.pop_front();
            oldest.and_then(|id| known.places.remove(&id));
        }
    }

    /// Forgets rows that are settled for good.
    pub fn forget(&self, rows: &[RowRef]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            if known.places.get(&row.id).is_some_and(|(seq, _)| *seq == row.seq) {
                known.places.remove(&row.id);
            }
        }
    }

    /// The places of `ids`; looks through the table for those that it does not remember. A row
    /// that is not there has none.
    pub fn of(
        &self,
        connection: &Connection,
        tables: &Tables,
        ids: &[RowId],
        among: Among,
    ) -> rusqlite::Result<HashMap<RowId, Place>> {
        let (mut found, missing) = self.remembered(ids);
        if !missing.is_empty() {
            search(connection, tables, &missing, among, &mut found)?;
        }
        Ok(found)
    }

    fn remembered(&self, ids: &[RowId]) -> (HashMap<RowId, Place>, HashSet<RowId>) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut found, mut missing) = (HashMap::with_capacity(ids.len()), HashSet::new());
        for id in ids {
            match known.places.get(id) {
                Some((seq, odd)) => {
                    let stored_id = odd.clone().unwrap_or_else(|| id.to_string().into_bytes());
                    found.insert(*id, Place { seq: *seq, stored_id });
                }
                None => {
                    missing.insert(*id);
                }
            }
        }
        (found, missing)
    }
}

/// Reads ids only, never a body.
fn search(
    connection: &Connection,
    tables: &Tables,
    ids: &HashSet<RowId>,
    among: Among,
    found: &mut HashMap<RowId, Place>,
) -> rusqlite::Result<()> {
    let mut left = ids.len();
    for sql in among.statements(tables) {
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let stored = rows::id(row.get_ref(1)?);
            if !ids.contains(&stored.id) {
                continue;
            }
            let id = stored.id;
            let place = Place { seq: row.get(0)?, stored_id: stored.bytes() };
            left -= usize::from(found.insert(id, place).is_none());
            if left == 0 {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl Among {
    fn statements(self, tables: &Tables) -> Vec<String> {
        let (rows, meta) = (&tables.rows, &tables.meta);
        let undelivered = format!(
            "SELECT seq, id FROM {rows} WHERE seq >= (SELECT lowest FROM {meta}) \
             AND status IN ('pending', 'processing', 'failed')"
        );
        match self {
            Among::Changeable => vec![undelivered, format!("SELECT seq, id FROM {rows} WHERE status = 'invalid'")],
            Among::Kept => vec![format!("SELECT seq, id FROM {rows} WHERE status <> 'discarded'")],
        }
    }
}
