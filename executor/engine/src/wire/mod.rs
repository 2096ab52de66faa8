//! The data plane's own protocol: length-limited frames of `f32` arenas over blocking TCP, or, within a node, through shared memory.
//!
//! Why not gRPC: over loopback, blocking sockets with vectored writes move two to four times the bytes per CPU second, and the
//! payload goes from the arena to the socket and from the socket into the arena without a copy in between.
//!
//! A connection begins with one [`hello::Hello`], which proves the job's secret and names its revision; until it is accepted a
//! stranger can make a shard read at most [`hello::MAX_HELLO_BYTES`] and wait at most the handshake's limit. Every later frame
//! must have exactly the length that the receiver computes from its own layout. Anything else closes the connection.
//!
//! A task that shares the node, and a folder there, with a shard [finds its socket](near), and brings memory along with its greeting;
//! once it is let in, frames go through that. Where anything about it does not work, it goes over TCP: nobody above a [`Connection`] sees a
//! difference.
//!
//! The secret is not a cipher: the data plane trusts the cluster's network not to be listened to or altered, as the secret and
//! the tensors travel in the clear.
//!
//! This module must never know what the numbers mean or who waits for whom.

mod connection;
pub mod draw;
mod frame;
mod greet;
pub mod hello;
mod loopback;
pub mod near;
mod pipe;
mod stream;
pub mod view;
mod words;

pub use connection::{Connection, WireError};
pub use frame::{FrameError, HEADER_BYTES, Header, Kind, PROTOCOL_VERSION};
pub use greet::{greet, greet_near};

// Payloads are the arenas' own bytes; the protocol says little endian.
const _: () = assert!(
    cfg!(target_endian = "little"),
    "the data plane sends arenas as they lie in memory, little endian"
);
