//! Client side of the handshake: a task sends its Hello and receives a Welcome or the reason of a
//! refusal.

use super::connection::{Connection, WireError, connect};
use super::frame::FrameKind;
use super::local::connect_local;
use super::metadata::{Hello, Welcome};
use crate::log;
use muster_compute::clock;
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use std::path::Path;
use std::time::Duration;

/// Maximum length in bytes of an answer to a handshake: a Welcome, or a reason of one sentence.
const MAX_ANSWER_BYTES: u32 = 4096;

/// Connects to the shard at `address` and performs the handshake. `limit` applies to the connection
/// and again to the answer.
///
/// # Errors
/// [`WireError`]; [`WireError::Refused`] with the shard's reason if it does not accept this peer.
pub fn handshake(
    address: &str,
    hello: &Hello,
    limit: Duration,
) -> Result<(Connection, Welcome), WireError> {
    introduce(Connection::new(connect(address, limit)?)?, hello, limit)
}

/// Performs the handshake through shared memory with a shard in the process of task `host`, which
/// listens at `address`. Both tasks must be on this node and share `folder`. Returns `None` if
/// shared memory cannot be used and TCP may work.
///
/// # Errors
/// [`WireError::Refused`] as in [`handshake`].
pub fn handshake_local(
    folder: &Path,
    host: TaskId,
    address: &str,
    hello: &Hello,
    limit: Duration,
) -> Result<Option<(Connection, Welcome)>, WireError> {
    let port = address.rsplit_once(':').map(|(_, port)| port.parse());
    let Some(Ok(stream)) = port
        .and_then(Result::ok)
        .map(|port| connect_local(folder, host, port))
    else {
        return Ok(None);
    };
    let (connection, pipe) = match Connection::offering(stream) {
        Ok(offered) => offered,
        Err(error) => {
            log::line(format_args!("there is no memory to share: {error}"));
            return Ok(None);
        }
    };
    match introduce(connection, hello, limit) {
        Ok((mut connection, welcome)) => {
            connection.carry(pipe);
            Ok(Some((connection, welcome)))
        }
        Err(refused @ WireError::Refused(_)) => Err(refused),
        // The listener is not a shard that shares memory.
        Err(error) => {
            log::line(format_args!(
                "memory is not shared with task {host}: {}",
                chain(&error)
            ));
            Ok(None)
        }
    }
}

fn introduce(
    mut connection: Connection,
    hello: &Hello,
    limit: Duration,
) -> Result<(Connection, Welcome), WireError> {
    let greeting = serde_json::to_vec(hello).expect("a greeting is plain data");
    connection.send(FrameKind::Hello, 0, &greeting, &[])?;
    let (header, meta) = connection.receive_greeting(clock::now() + limit, MAX_ANSWER_BYTES)?;
    match header.kind {
        FrameKind::Welcome => {
            let welcome =
                serde_json::from_slice(&meta).map_err(|_| WireError::Malformed("welcome"))?;
            Ok((connection, welcome))
        }
        FrameKind::Refused => Err(WireError::refused(&meta)),
        got => Err(WireError::Unexpected { got }),
    }
}
