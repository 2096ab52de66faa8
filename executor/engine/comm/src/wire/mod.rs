//! Protocol of the parameter exchange: frames of `f32` arenas with limited lengths over blocking
//! TCP, or through shared memory within a node.
//!
//! Reasons against gRPC: over loopback, blocking sockets with vectored writes move more bytes per
//! CPU second. The payload is sent from the arena and received into the arena without a copy.
//!
//! A connection begins with one [`metadata::Hello`], which proves the job's secret and names the
//! task. Before it is accepted, a peer can make a shard read at most [`metadata::MAX_HELLO_BYTES`]
//! and wait at most for the limit of the handshake. Every later frame must have exactly the length
//! that the receiver computes from its own layout. Any other length closes the connection.
//!
//! A task that shares a node and a folder with a shard [finds the shard's socket](near) and sends
//! shared memory with its handshake. After the shard accepts it, all frames use this memory. If any
//! part of this fails, the task uses TCP. Code above [`Connection`] sees no difference.
//!
//! The secret does not encrypt: secret and tensors travel in the clear. The exchange requires a
//! cluster network in which no third party can read or alter packets.
//!
//! This module must not depend on the meaning of the numbers, nor on which task waits for which.

mod connection;
mod frame;
mod handshake;
pub mod local;
mod loopback;
pub mod metadata;
mod pipe;
pub mod snapshot;
mod stream;
pub mod view;
mod words;

pub use connection::{Connection, WireError};
pub use frame::{FrameError, FrameKind, HEADER_BYTES, Header, PROTOCOL_VERSION};
pub use handshake::{handshake, handshake_local};

// Payloads are the bytes of the arenas, and the protocol is little endian.
const _: () = assert!(
    cfg!(target_endian = "little"),
    "the data plane sends arenas as they lie in memory, little endian"
);
