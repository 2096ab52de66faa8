//! The generated gRPC contract between executor and scheduler (`proto/session.proto`).
//!
//! It must not know what the two sides do with the messages. The JSON in them is that of
//! `muster-model`'s types.

/// Generated from `proto/session.proto`.
#[allow(clippy::all)]
pub mod session {
    tonic::include_proto!("muster.session.v1");
}

/// Largest message that either side accepts, in bytes. Larger reports and assignments are split.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Largest message of a remote session, in bytes. A frame has at most 64 KiB of data.
pub const MAX_REMOTE_BYTES: usize = 128 << 10;
