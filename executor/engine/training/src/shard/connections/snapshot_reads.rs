//! Connection of the coordinator's checkpoint writer.

use super::super::exchange::ShardExchange;
use super::super::messages::ShardConnectionError;
use muster_comm::wire::snapshot::SnapshotRangeHead;
use muster_comm::wire::{Connection, FrameKind, WireError};

/// Serves reads of the snapshot buffer until the writer closes the connection.
pub fn serve_reads(
    connection: &mut Connection,
    exchange: &ShardExchange,
) -> Result<(), ShardConnectionError> {
    let mut numbers = Vec::new();
    loop {
        let header = match connection.receive() {
            Ok(header) => header,
            Err(WireError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if header.kind != FrameKind::Draw {
            return Err(WireError::Unexpected { got: header.kind }.into());
        }
        let head = SnapshotRangeHead::decode(&connection.receive_meta(header)?)?;
        exchange.lent.read(header.clock, head, &mut numbers)?;
        // Sent from a buffer, so that the next snapshot does not wait for the network.
        connection.send(FrameKind::Drawn, header.clock, &[], &[&numbers])?;
    }
}
