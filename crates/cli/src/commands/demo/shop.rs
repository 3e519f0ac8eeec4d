//! The demo's application: orders, each with an event in the same transaction.

use std::path::Path;

use posthaste_core::{Event, RowId, port::Waker};
use posthaste_store_sqlite::Outbox;
use rusqlite::Connection;

use crate::exit::Fault;

/// A shop with a database of its own.
pub struct Shop {
    connection: Connection,
    outbox: Outbox,
    orders: u32,
}

impl Shop {
    pub fn open(file: &Path, outbox: Outbox) -> Result<Shop, Fault> {
        let connection = Connection::open(file).map_err(failed)?;
        let create = "CREATE TABLE orders (number INTEGER PRIMARY KEY, total INTEGER NOT NULL)";
        connection.execute_batch(create).map_err(failed)?;
        Ok(Shop { connection, outbox, orders: 0 })
    }

    /// From now on commits wake this relay.
    pub fn wake(&mut self, waker: std::sync::Arc<dyn Waker>) {
        self.outbox = self.outbox.clone().with_waker(waker);
    }

    /// Takes an order: the row and its event, in one transaction.
    pub fn order(&mut self) -> Result<RowId, Fault> {
        let (number, event) = self.next()?;
        let id = self.outbox.transaction(&mut self.connection, |transaction, outbox| {
            insert(transaction, number)?;
            Ok::<_, Fault>(outbox.enqueue(transaction, &[event])?)
        })?;
        Ok(id[0])
    }

    /// Takes an order and changes its mind: neither the row nor its event must be seen by anybody.
    pub fn cancelled_order(&mut self) -> Result<RowId, Fault> {
        let (number, event) = self.next()?;
        let mut transaction = self.connection.transaction().map_err(failed)?;
        insert(&transaction, number)?;
        let receipt = self.outbox.enqueue(&mut transaction, &[event])?;
        let id = receipt.rows()[0].id;
        transaction.rollback().map_err(failed)?;
        // As a careless application would: the receipt of a transaction that never was.
        self.outbox.committed(receipt);
        Ok(id)
    }

    /// How many orders are in the table.
    pub fn orders(&self) -> Result<usize, Fault> {
        let count = self.connection.query_row("SELECT count(*) FROM orders", [], |row| row.get::<_, u32>(0));
        count.map(|count| count as usize).map_err(failed)
    }

    fn next(&mut self) -> Result<(u32, Event), Fault> {
        self.orders += 1;
        let body = serde_json::json!({ "number": self.orders, "total": self.orders * 10 });
        let event = Event::json("order.placed", &body)?.key(format!("customer {}", self.orders % 7));
        Ok((self.orders, event))
    }
}

fn insert(connection: &Connection, number: u32) -> Result<(), Fault> {
    connection.execute("INSERT INTO orders VALUES (?1, ?2)", [number, number * 10]).map(drop).map_err(failed)
}

fn failed(error: rusqlite::Error) -> Fault {
    Fault::failure(format!("the demo's database: {error}"))
}
