//! Looking: counts, lists, one row. Bodies are left where they are.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::{
    LANES, Result, Row, RowId, Seq,
    port::{Access, Filter, Inspect, OutboxStatus, RelayInfo, Selection},
};
use tokio_postgres::types::Type;

use crate::{PostgresStore, connect::Typed, rows, schema::HOLD_LOCK};

#[async_trait]
impl Inspect for PostgresStore {
    async fn status(&self) -> Result<OutboxStatus> {
        let rows = self.look("counting the rows", include_str!("../sql/status.sql"), &[]).await?;
        let relays = self.relays().await?;
        let Some(row) = rows.first() else { return Ok(OutboxStatus { relays, ..OutboxStatus::default() }) };
        let count = |column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap_or(0);
        Ok(OutboxStatus {
            pending: count(0),
            processing: count(1),
            failed: count(2),
            published: count(3),
            invalid: count(4),
            published_is_estimate: row.get(5),
            oldest_pending: row
                .get::<_, Option<i64>>(6)
                .map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))),
            deferred_types: row.get::<_, Option<Vec<String>>>(7).unwrap_or_default(),
            relays,
        })
    }

    async fn list(&self, filter: &Filter, after: Seq, limit: u32) -> Result<Vec<Row>> {
        let sql = r#"SELECT {columns} FROM "{t}" WHERE seq > $1 AND {matches} ORDER BY seq LIMIT $7"#;
        let matching = Matching::of(filter);
        let mut parameters: Vec<Typed<'_>> = vec![(&after, Type::INT8)];
        parameters.extend(matching.parameters());
        let limit = i64::from(limit);
        parameters.push((&limit, Type::INT8));
        // `$2` is the list of ids, which a filter has none of.
        self.look("listing rows", &matches(sql), &parameters).await?.iter().map(rows::decode_head).collect()
    }

    async fn get(&self, id: RowId) -> Result<Option<Row>> {
        let sql = r#"SELECT {columns}, body, coalesce(octet_length(body), 0) FROM "{t}" WHERE id = $1"#;
        let rows = self.look("reading a row", sql, &[(&id.uuid(), Type::UUID)]).await?;
        rows.first().map(|row| rows::decode_whole(row, u64::MAX)).transpose()
    }

    async fn predecessor(&self, row: &Row) -> Result<Option<Row>> {
        let Some(key) = &row.key else { return Ok(None) };
        let sql = r#"SELECT {columns} FROM "{t}"
            WHERE lane = $1 AND seq < $2 AND ordering_key = $3 AND {undelivered} ORDER BY seq LIMIT 1"#;
        let lane = i16::from(row.lane.number());
        let parameters: [Typed<'_>; 3] = [(&lane, Type::INT2), (&row.seq, Type::INT8), (key, Type::TEXT)];
        let rows = self.look("looking for a predecessor", sql, &parameters).await?;
        rows.first().map(rows::decode_head).transpose()
    }

    async fn access(&self) -> Result<Access> {
        let sql = r#"SELECT current_setting('server_version'), pg_is_in_recovery(), array(
            SELECT privilege FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
            WHERE NOT has_table_privilege('"{t}"', privilege))"#;
        let rows = self.look("looking at the rights", sql, &[]).await?;
        let Some(row) = rows.first() else { return Ok(Access::default()) };
        let mut lacking: Vec<String> = row.get(2);
        if row.get(1) {
            lacking.push("writing: this server is a standby".to_owned());
        }
        Ok(Access { server: format!("PostgreSQL {}", row.get::<_, String>(0)), lacking })
    }
}

impl PostgresStore {
    /// One statement on the session for looking, planned for these very parameters.
    pub(crate) async fn look(
        &self,
        doing: &str,
        sql: &str,
        parameters: &[Typed<'_>],
    ) -> Result<Vec<tokio_postgres::Row>> {
        let session = self.looking.session(&self.server).await?;
        let sql = self.names.sql(sql);
        let doing = format!("{doing} of {}", self.names.table());
        session.ask(doing, &sql, parameters).await
    }

    async fn relays(&self) -> Result<Vec<RelayInfo>> {
        let sql = "SELECT a.application_name FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) \
            WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = $1::integer::oid \
              AND l.objid = to_regclass($2) AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let table = self.names.quoted();
        let rows = self.look("looking for relays", sql, &[(&HOLD_LOCK, Type::INT4), (&table, Type::TEXT)]).await?;
        let name = |row: &tokio_postgres::Row| row.get::<_, Option<String>>(0).unwrap_or_default();
        let relay = |name: String| RelayInfo {
            name: name.strip_prefix(crate::hold::NAME_PREFIX).unwrap_or(&name).to_owned(),
            lanes: u32::from(LANES),
            expires_in: None,
        };
        Ok(rows.iter().map(name).map(relay).collect())
    }
}

/// Fills in `{matches}`: the condition over the parameters `$2` to `$6` of [`Matching`]. The server
/// folds away what is not asked for, since it plans with the parameters' values.
pub(crate) fn matches(sql: &str) -> String {
    sql.replace(
        "{matches}",
        "($2::uuid[] IS NULL OR id = ANY($2)) AND ($3::text IS NULL OR status = $3) \
         AND ($4::text IS NULL OR type LIKE $4) AND ($5::text IS NULL OR ordering_key = $5) \
         AND ($6::text IS NULL OR tenant = $6)",
    )
}

/// A filter, or a list of ids, as parameters.
#[derive(Default)]
pub(crate) struct Matching {
    ids: Option<Vec<uuid::Uuid>>,
    status: Option<&'static str>,
    event_type: Option<String>,
    key: Option<String>,
    tenant: Option<String>,
}

impl Matching {
    pub(crate) fn selected(selection: &Selection) -> Matching {
        match selection {
            Selection::Ids(ids) => {
                Matching { ids: Some(ids.iter().map(|id| id.uuid()).collect()), ..Matching::default() }
            }
            Selection::Matching(filter) => Matching::of(filter),
        }
    }

    fn of(filter: &Filter) -> Matching {
        Matching {
            ids: None,
            status: filter.status.map(posthaste_core::Status::as_str),
            event_type: filter.event_type.as_deref().map(pattern),
            key: filter.key.clone(),
            tenant: filter.tenant.clone(),
        }
    }

    pub(crate) fn parameters(&self) -> [Typed<'_>; 5] {
        [
            (&self.ids, Type::UUID_ARRAY),
            (&self.status, Type::TEXT),
            (&self.event_type, Type::TEXT),
            (&self.key, Type::TEXT),
            (&self.tenant, Type::TEXT),
        ]
    }
}

/// A LIKE pattern of a glob in which only `*` is special.
fn pattern(glob: &str) -> String {
    let escaped = glob.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    escaped.replace('*', "%")
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_the_star_is_special_in_a_type() {
        assert_eq!(super::pattern("a_b.*%\\"), "a\\_b.%\\%\\\\");
    }
}
