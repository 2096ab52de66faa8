//! How a peer is let in: it says who it is, and is welcomed, or told why not.

use super::connection::{Connection, WireError, connect};
use super::frame::Kind;
use super::hello::{Hello, Welcome};
use crate::clock;
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
    let mut connection = Connection::new(connect(address, limit)?)?;
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
