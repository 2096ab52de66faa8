//! The gRPC contract between an executor and the scheduler (`proto/session.proto`), as generated.
//!
//! It must know nothing of what either side does with the messages. The JSON inside them is of `muster-model`'s types.

/// Generated from `proto/session.proto`.
#[allow(clippy::all)]
pub mod session {
    tonic::include_proto!("muster.session.v1");
}

/// Largest message that either side accepts, in bytes; reports and assignments are cut below it.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
