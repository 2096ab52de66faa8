//! How a peer is let in: it says who it is, and is welcomed, or told why not.

use super::connection::{Connection, WireError, connect};
use super::frame::Kind;
use super::hello::{Hello, Welcome};
use super::near::knock;
use crate::clock;
use crate::log;
use muster_model::id::TaskId;
use std::path::Path;
use std::time::Duration;

/// Longest answer to a greeting: a welcome, or a reason in a sentence.
const MAX_ANSWER_BYTES: u32 = 4096;

/// Connects to the shard at `address` and greets. `limit` is for the connection, and once more for the answer.
///
/// # Errors
/// [`WireError`]; [`WireError::Refused`] with the shard's reason when it takes this peer for a stranger.
pub fn greet(
    address: &str,
    hello: &Hello,
    limit: Duration,
) -> Result<(Connection, Welcome), WireError> {
    introduce(Connection::new(connect(address, limit)?)?, hello, limit)
}

/// Greets the shard that is in the process of the task `host` and listens at `address`, if that is on this node and both meet in `folder`,
/// and goes on through shared memory. `None` where that does not work and TCP may.
///
/// # Errors
/// [`WireError::Refused`] as [`greet`].
pub fn greet_near(
    folder: &Path,
    host: TaskId,
    address: &str,
    hello: &Hello,
    limit: Duration,
) -> Result<Option<(Connection, Welcome)>, WireError> {
    let port = address.rsplit_once(':').map(|(_, port)| port.parse());
    let Some(Ok(stream)) = port
        .and_then(Result::ok)
        .map(|port| knock(folder, host, port))
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
        // Whatever listens there, it is no shard that shares memory.
        Err(error) => {
            log::line(format_args!(
                "memory is not shared with task {host}: {}",
                log::chain(&error)
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
    connection.send(Kind::Hello, 0, &greeting, &[])?;
    let (header, meta) = connection.receive_greeting(clock::now() + limit, MAX_ANSWER_BYTES)?;
    match header.kind {
        Kind::Welcome => {
            let welcome =
                serde_json::from_slice(&meta).map_err(|_| WireError::Malformed("welcome"))?;
            Ok((connection, welcome))
        }
        Kind::Refused => Err(WireError::refused(&meta)),
        got => Err(WireError::Unexpected { got }),
    }
}
