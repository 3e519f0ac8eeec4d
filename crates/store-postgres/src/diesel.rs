//! The same in the caller's own transaction of diesel-async.

use diesel::{
    QueryableByName,
    pg::Pg,
    query_builder::{BoxedSqlQuery, SqlQuery},
    sql_types::{Array, BigInt, Bytea, Integer, Nullable, SmallInt, Text},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use posthaste_core::{
    Error, ErrorKind, Event,
    port::{EnqueueError, Receipt},
};

use crate::{
    Outbox,
    batch::{Batch, Columns, Present},
    error::explain_diesel,
};

impl Outbox {
    /// [`Outbox::enqueue`] on a connection of diesel-async that is inside a transaction: call it in the
    /// closure of `AsyncConnection::transaction`.
    ///
    /// # Errors
    /// As of [`Outbox::enqueue`]; `Store` of kind `Unsupported` outside a transaction, where a row and the
    /// state that it belongs to would not commit together.
    ///
    /// # Cancellation
    /// All or none may have been written; the transaction decides, as ever.
    pub async fn enqueue_diesel(
        &self,
        connection: &mut AsyncPgConnection,
        events: &[Event],
    ) -> Result<Receipt, EnqueueError> {
        let mut batch = Batch::new(events, self.limits)?;
        let doing = format!("writing to {}", self.names.table());
        require_transaction(connection, &doing)?;
        while let Some(columns) = batch.next_round(&doing)? {
            let written = insert(connection, self.names.sql(&batch.insert(&columns)), columns).await;
            batch.wrote(&written.map_err(|error| explain_diesel(&doing, error))?);
            let Some(ids) = batch.missing() else { break };
            let present = present(connection, self.names.sql(Batch::PRESENT), ids).await;
            let Err(conflict) = batch.meet(&present.map_err(|error| explain_diesel(&doing, error))?) else { continue };
            let undo = diesel::sql_query(self.names.sql(Batch::UNDO)).bind::<Array<Text>, _>(batch.written());
            undo.execute(connection).await.map_err(|error| explain_diesel(&doing, error))?;
            return Err(conflict);
        }
        Ok(batch.receipt())
    }
}

fn require_transaction(connection: &mut AsyncPgConnection, doing: &str) -> Result<(), Error> {
    use diesel::connection::TransactionManagerStatus;
    use diesel_async::{AsyncConnection, TransactionManager};
    let status: &TransactionManagerStatus =
        <AsyncPgConnection as AsyncConnection>::TransactionManager::transaction_manager_status_mut(connection);
    match status.transaction_depth() {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Error::new(ErrorKind::Unsupported, doing)
            .because("the connection is in no transaction")
            .hint("enqueue inside the closure of `transaction`")),
        Err(error) => Err(explain_diesel(doing, error)),
    }
}

type Query<'q> = BoxedSqlQuery<'q, Pg, SqlQuery>;

#[derive(QueryableByName)]
struct Id {
    #[diesel(sql_type = Nullable<Text>)]
    id: Option<String>,
}

async fn insert(
    connection: &mut AsyncPgConnection,
    sql: String,
    columns: Columns<'_>,
) -> Result<Vec<String>, diesel::result::Error> {
    // Without an arbiter nothing is returned, and a function's answer bears its own name.
    let returns = sql.contains("RETURNING");
    let query = diesel::sql_query(sql).into_boxed::<Pg>();
    let query = if columns.is_single() { bind_one(query, columns) } else { bind_all(query, columns) };
    if !returns {
        query.execute(connection).await?;
        return Ok(Vec::new());
    }
    Ok(query.load::<Id>(connection).await?.into_iter().filter_map(|row| row.id).collect())
}

fn bind_one<'q>(query: Query<'q>, mut columns: Columns<'q>) -> Query<'q> {
    let (id, headers) = (columns.ids.pop(), columns.headers.pop());
    let query = query.bind::<Nullable<Text>, _>(id).bind::<SmallInt, _>(columns.lanes[0]);
    let query = query.bind::<Text, _>(columns.types[0]).bind::<Nullable<Text>, _>(columns.keys[0]);
    let query = query.bind::<Nullable<Text>, _>(columns.tenants[0]).bind::<Integer, _>(columns.priorities[0]);
    let query = query.bind::<Nullable<Text>, _>(headers).bind::<Text, _>(columns.content_types[0]);
    query.bind::<Nullable<Bytea>, _>(columns.bodies[0]).bind::<BigInt, _>(columns.delays[0])
}

fn bind_all<'q>(query: Query<'q>, columns: Columns<'q>) -> Query<'q> {
    let Columns { ids, lanes, types, keys, tenants, priorities, headers, content_types, bodies, delays } = columns;
    let query = query.bind::<Array<Text>, _>(ids).bind::<Array<SmallInt>, _>(lanes);
    let query = query.bind::<Array<Text>, _>(types).bind::<Array<Nullable<Text>>, _>(keys);
    let query = query.bind::<Array<Nullable<Text>>, _>(tenants).bind::<Array<Integer>, _>(priorities);
    let query = query.bind::<Array<Text>, _>(headers).bind::<Array<Text>, _>(content_types);
    query.bind::<Array<Nullable<Bytea>>, _>(bodies).bind::<Array<BigInt>, _>(delays)
}

#[derive(QueryableByName)]
struct PresentRow {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = SmallInt)]
    lane: i16,
    #[diesel(sql_type = Text, column_name = "type")]
    event_type: String,
    #[diesel(sql_type = Nullable<Text>)]
    ordering_key: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    tenant: Option<String>,
    #[diesel(sql_type = Text)]
    content_type: String,
    #[diesel(sql_type = Text)]
    headers: String,
    #[diesel(sql_type = Nullable<Bytea>)]
    body: Option<Vec<u8>>,
}

impl From<PresentRow> for Present {
    fn from(row: PresentRow) -> Present {
        let PresentRow { id, lane, event_type, ordering_key, tenant, content_type, headers, body } = row;
        Present { id, lane, event_type, key: ordering_key, tenant, content_type, headers, body }
    }
}

async fn present(
    connection: &mut AsyncPgConnection,
    sql: String,
    ids: Vec<String>,
) -> Result<Vec<Present>, diesel::result::Error> {
    let rows = diesel::sql_query(sql).bind::<Array<Text>, _>(ids).load::<PresentRow>(connection).await?;
    Ok(rows.into_iter().map(Present::from).collect())
}
