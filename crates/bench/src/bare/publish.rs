//! Publishing with lapin and nothing else.

use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::drain::{BODY, CONTENT_TYPE, ID, TYPE};
use crate::Result;

pub(crate) async fn connect(url: &str) -> Result<Connection> {
    Ok(Connection::connect(url, ConnectionProperties::default()).await?)
}

pub(crate) async fn channel(connection: &Connection) -> Result<Channel> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

/// A batch: all written, then all confirmed.
pub(super) async fn all(channel: &Channel, queue: &str, rows: &[Row]) -> Result<()> {
    let mut confirms = Vec::with_capacity(rows.len());
    for row in rows {
        let id: Uuid = row.get(ID);
        let properties = BasicProperties::default()
            .with_content_type(row.get::<_, &str>(CONTENT_TYPE).into())
            .with_delivery_mode(2)
            .with_message_id(id.to_string().into())
            .with_type(row.get::<_, &str>(TYPE).into());
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        confirms.push(channel.basic_publish("".into(), queue.into(), options, row.get(BODY), properties).await?);
    }
    for confirm in confirms {
        if !matches!(confirm.await?, Confirmation::Ack(None)) {
            return Err("a message was not confirmed".into());
        }
    }
    Ok(())
}
