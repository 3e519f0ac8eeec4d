//! The tables of an outbox: made by `migrate` in one transaction, under a lock, and told apart by
//! a version that anyone who can connect can read.

use async_trait::async_trait;
use posthaste_core::{
    Error, ErrorKind, OutboxName, Result,
    port::{Schema, SchemaState},
};
use tokio_postgres::types::Type;

use crate::{PostgresStore, connect::Session, rows};

/// The version of the schema that this build makes and works with.
const VERSION: u32 = 1;
/// The oldest server that has 64-bit transaction ids and snapshots of them.
const OLDEST_SERVER: i32 = 130_000;

/// First keys of the advisory locks; the second key is the table's oid.
pub(crate) const WAKE_LOCK: i32 = 0x706f_0001;
pub(crate) const HOLD_LOCK: i32 = 0x706f_0002;
const MIGRATE_LOCK: i32 = 0x706f_0003;

/// The names of an outbox in SQL. An outbox name holds no character that ends a quoted name.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) outbox: OutboxName,
    table: String,
}

impl Names {
    pub(crate) fn new(outbox: OutboxName) -> Names {
        Names { table: outbox.table(), outbox }
    }

    /// The table's name, unquoted.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// The table as a literal for `regclass`: quoted twice.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.table)
    }

    /// Fills in a template. `{undelivered}` is the partial index's own condition, word for word.
    pub(crate) fn sql(&self, template: &str) -> String {
        template
            .replace("{next_seq}", NEXT_SEQ)
            .replace("{undelivered}", "status IN ('pending', 'processing', 'failed')")
            .replace("{columns}", rows::COLUMNS)
            .replace("{nulls}", rows::NULLS)
            .replace("{wake_lock}", &WAKE_LOCK.to_string())
            .replace("{version}", &VERSION.to_string())
            .replace("{t}", &self.table)
    }
}

const NEXT_SEQ: &str = r#"CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('"{t}_seq"'::regclass) END"#;

#[async_trait]
impl Schema for PostgresStore {
    async fn schema(&self) -> Result<SchemaState> {
        let session = self.looking.session(&self.server).await?;
        self.state(&session).await
    }

    async fn migrate(&self) -> Result<()> {
        let session = self.producing.take(&self.server).await?;
        let doing = format!("creating {}", self.names.table());
        self.check_server(&session).await?;
        session.within(&doing, session.client.batch_execute("BEGIN")).await?;
        let lock = "SELECT pg_advisory_xact_lock($1, hashtext($2))";
        session.ask(&doing, lock, &[(&MIGRATE_LOCK, Type::INT4), (&self.names.table(), Type::TEXT)]).await?;
        match self.state(&session).await? {
            SchemaState::Current => {}
            SchemaState::EmptyDatabase | SchemaState::Missing => {
                session.within(&doing, session.client.batch_execute(&self.sql())).await?;
            }
            SchemaState::Older(version) | SchemaState::Newer(version) => {
                let text = format!("it is version {version}, this build knows version {VERSION}");
                return Err(Error::new(ErrorKind::UnknownSchema, doing).because(text).hint("use a newer posthaste"));
            }
        }
        session.within(&doing, session.client.batch_execute("COMMIT")).await?;
        self.producing.put_back(session);
        Ok(())
    }

    fn sql(&self) -> String {
        self.names.sql(include_str!("../sql/schema.sql"))
    }
}

impl PostgresStore {
    async fn state(&self, session: &Session) -> Result<SchemaState> {
        // A `migrate` that commits meanwhile may show its table before its version.
        for _ in 0..2 {
            if let Some(state) = self.look_for_state(session).await? {
                return Ok(state);
            }
        }
        Err(self.foreign(format!("looking for {}", self.names.table())))
    }

    /// `None` where there is a table without a version.
    async fn look_for_state(&self, session: &Session) -> Result<Option<SchemaState>> {
        let doing = format!("looking for {}", self.names.table());
        let sql = "SELECT to_regclass($1) IS NOT NULL, \
            (SELECT substring(prosrc FROM '[0-9]+')::integer FROM pg_proc WHERE oid = to_regprocedure($2)), \
            EXISTS (SELECT FROM pg_class WHERE relkind IN ('r', 'p') \
              AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) \
              AND relnamespace::regnamespace::text NOT LIKE 'pg\\_%')";
        let version = format!("\"{}_version\"()", self.names.table());
        let quoted = self.names.quoted();
        let rows = session.ask(&doing, sql, &[(&quoted, Type::TEXT), (&version, Type::TEXT)]).await?;
        let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Corrupt, &doing))?;
        Ok(match (row.get::<_, bool>(0), row.get::<_, Option<i32>>(1)) {
            (true, Some(version)) => Some(known(u32::try_from(version).unwrap_or(0))),
            (true, None) => None,
            (false, _) if row.get(2) => Some(SchemaState::Missing),
            (false, _) => Some(SchemaState::EmptyDatabase),
        })
    }

    fn foreign(&self, doing: String) -> Error {
        let text = "something else bears this name and is no outbox of Posthaste; it was left as it is";
        Error::new(ErrorKind::UnknownSchema, doing)
            .because(text)
            .hint("rename it, or give the outbox another name with --outbox NAME")
    }

    async fn check_server(&self, session: &Session) -> Result<()> {
        let doing = "checking the server's version";
        let sql = "SELECT current_setting('server_version_num')::integer, current_setting('server_encoding')";
        let rows = session.ask(doing, sql, &[]).await?;
        let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Corrupt, doing))?;
        if row.get::<_, i32>(0) < OLDEST_SERVER {
            return Err(Error::new(ErrorKind::Unsupported, doing).because("PostgreSQL 13 or newer is needed"));
        }
        if row.get::<_, &str>(1) == "SQL_ASCII" {
            let text = "the database's encoding is SQL_ASCII, which checks no text; UTF8 is needed";
            return Err(Error::new(ErrorKind::Unsupported, doing).because(text));
        }
        Ok(())
    }
}

fn known(version: u32) -> SchemaState {
    match version.cmp(&VERSION) {
        std::cmp::Ordering::Less => SchemaState::Older(version),
        std::cmp::Ordering::Equal => SchemaState::Current,
        std::cmp::Ordering::Greater => SchemaState::Newer(version),
    }
}
