//! `show`: one row with its body.

use posthaste_core::{Body, Row};

use crate::{
    args::One,
    exit::{Done, Fault, say},
    output::{Out, body_member, printable, whole_row},
    setup::{IfEmpty, Setup},
};

pub async fn run(args: &One, out: &mut Out) -> Result<Done, Fault> {
    let store = Setup::read(&args.at.place)?.open_single(&args.at, IfEmpty::Refuse).await?;
    let Some(row) = store.get(args.id).await? else {
        say(&format!("error: no row has the id {}", args.id));
        return Ok(Done::WithFindings);
    };
    if args.json {
        out.line(&whole_row(&row)?)?
    } else {
        write(&row, out)?
    }
    Ok(Done::Clean)
}

fn write(row: &Row, out: &mut Out) -> Result<(), Fault> {
    let mut field = |name: &str, value: String| out.line(&format!("{name:<13} {}", printable(&value)));
    field("id", row.id.to_string())?;
    field("type", row.event_type.clone())?;
    field("status", row.status.to_string())?;
    field("attempts", row.attempts.to_string())?;
    field("lane", row.lane.to_string())?;
    let optional = [
        ("key", row.key.clone()),
        ("tenant", row.tenant.clone()),
        ("priority", (row.priority != 0).then(|| row.priority.to_string())),
        ("last error", row.last_error.clone()),
        ("defect", row.defect.clone()),
        ("published", row.published_at.map(|time| time.to_string())),
    ];
    for (name, value) in optional {
        value.map_or(Ok(()), |value| field(name, value))?;
    }
    field("created", row.created_at.to_string())?;
    field("due", row.due_at.to_string())?;
    for (name, value) in &row.headers {
        field("header", format!("{name}: {value}"))?;
    }
    field("content type", row.content_type.clone())?;
    field("body", body(row))
}

/// Text where it is text, else as JSON shows it.
fn body(row: &Row) -> String {
    match &row.body {
        Body::Null => "NULL".to_owned(),
        Body::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap_or_else(|_| body_member(row)),
        Body::TooLarge(size) => format!("{size} bytes, not read"),
    }
}
