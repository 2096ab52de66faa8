//! Header of every frame: 32 bytes, little endian.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | magic `MSTR` |
//! | 4–5 | protocol version |
//! | 6–7 | kind |
//! | 8–15 | clock: a step, a version, a time or 0, depending on the kind |
//! | 16–19 | length in bytes of the metadata (JSON or fixed fields) that follows the header |
//! | 20–27 | length in bytes of the payload that follows the metadata (`f32` values or codes) |
//! | 28–31 | CRC-32 of bytes 0–27 |
//!
//! The checksum protects the framing: a sender that has lost its position in the stream is detected
//! at once. Payloads have no checksum of their own: TCP has one, and another pass over every
//! gradient would reduce the throughput noticeably.

use super::metadata::HALF_DONE;

/// Length of a header on the wire in bytes.
pub const HEADER_BYTES: usize = 32;

/// Version of the protocol; both ends must use the same. Executors of two releases run side by side
/// while nodes are drained for the newer release. A feature that only some jobs need is therefore
/// announced in the handshake, and the version stays the same for all other jobs.
pub const PROTOCOL_VERSION: u16 = 5;

/// Maximum length in bytes of a frame's metadata. A view names every piece of every shard.
pub const MAX_META_BYTES: u32 = 4 << 20;

/// Maximum payload length in bytes that a header may announce (64 GiB). The receiver also checks
/// the exact length that it expects.
pub const MAX_PAYLOAD_BYTES: u64 = 64 << 30;

/// Largest step or version that a header may name, so that a receiver can add to it without
/// overflow. [`HALF_DONE`] is larger and is not a step.
pub const MAX_CLOCK: u64 = 1 << 62;

const MAGIC: [u8; 4] = *b"MSTR";

/// Kind of a frame, by its number on the wire. `→` is sent from worker to shard, `←` from shard to
/// worker. "Coordinator:" marks frames that only the coordinator (`chief`) sends or receives. The
/// metadata follows the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum FrameKind {
    /// → First frame of a connection. Metadata: JSON of [`super::metadata::Hello`].
    Hello = 1,
    /// ← Accepts the connection. Metadata: JSON of [`super::metadata::Welcome`].
    Welcome = 2,
    /// ← Refuses; the connection is then closed. Metadata: the reason in UTF-8.
    Refused = 3,
    /// → Coordinator: the shard's parameters, then its optimizer state. Clock: the step. Metadata:
    /// number of applied updates, u64.
    Init = 4,
    /// ← The data of the Init is installed.
    Ready = 5,
    /// → Requests the parameters as soon as the shard has them. Clock: the view that the worker
    /// knows, 0 for none. A View is sent before the answer.
    Pull = 6,
    /// → Gradients of the step in the clock. Metadata: [`super::metadata::PushHead`].
    Push = 7,
    /// ← Parameters. Clock: the next step. Metadata: [`super::metadata::AnswerHead`] with the
    /// counts of all workers added up.
    Parameters = 8,
    /// ← The step cannot be completed. Clock: the version. Metadata: 1 byte, 1 if a peer was lost,
    /// 0 if all peers left in order.
    Interrupted = 9,
    /// → Coordinator: requests the complete state. Clock: milliseconds to wait for the residuals of
    /// workers, where workers send them asynchronously.
    Snapshot = 10,
    /// ← Parameters, then optimizer state. Clock: the version. Metadata: number of applied updates,
    /// u64.
    SnapshotData = 11,
    /// → The worker leaves in order.
    Goodbye = 12,
    /// → Coordinator: training has finished.
    Done = 13,
    /// ← Training has finished.
    Finished = 14,
    /// ← The view that holds from the step of the next frame on. Metadata: JSON of
    /// [`super::view::TaskSetView`].
    View = 15,
    /// ← A new view begins: the worker leaves, or pulls under it. Metadata as in a View.
    Moved = 16,
    /// → Coordinator: announces a view. Clock: its first step. Metadata: JSON of
    /// [`super::view::ViewChange`].
    Change = 17,
    /// ← Coordinator: workers have departed. Metadata: JSON of a list of [`super::view::Departed`].
    Gone = 18,
    /// → Coordinator: asks which workers wait to be admitted.
    Ask = 19,
    /// ← Answer to an Ask. Metadata: JSON of a list of task ids.
    Guests = 20,
    /// Shard → shard: pieces; first the parameters, then the optimizer state plane by plane.
    /// Metadata: JSON of [`super::view::Handover`]. Answered by a Ready.
    Handover = 21,
    /// → Coordinator: asks whether all pieces are installed. ← Metadata: JSON of
    /// [`super::view::ReshardingReport`].
    Tally = 22,
    /// → A Push with an encoded payload.
    Codes = 23,
    /// ← Parameters with an encoded payload: their difference from the parameters that the worker
    /// knows.
    Deltas = 24,
    /// → Coordinator: no view change follows a Gone; the shard continues to wait and answers the
    /// push later.
    Resume = 25,
    /// Shard → replica holder: the complete state; first the parameters, then the optimizer state
    /// plane by plane. Metadata: JSON of [`super::view::ReplicaPosition`]. Answered by a Ready.
    Copy = 26,
    /// Shard → replica holder: the sum of gradients that the shard has applied since the last
    /// frame. Metadata as in a Copy. Answered by a Ready.
    Applied = 27,
    /// → Coordinator: promotes the replica because its shard is lost. Clock: number of steps that
    /// the replica must contain. Metadata: JSON of [`super::view::TaskSetView`]. Answered by a
    /// Ready whose clock is the next step.
    Adopt = 28,
    /// ← Coordinator: squared norm of this shard's part of the gradients of the step in the clock.
    /// Metadata: its bits, u64.
    Norm = 29,
    /// → Coordinator: clip factor of that step. Metadata: the bits of an f64 as u64. Answered like
    /// a push of the step.
    Clip = 30,
    /// → Coordinator: workers send their residuals before the step in the clock. ← The same request
    /// to a worker, before a Parameters or Deltas.
    Keep = 31,
    /// → The residual of the worker whose id is the metadata, plane by plane; sent by the worker,
    /// or by the coordinator for it. A clock other than 0 means: after the push of the step before
    /// the clock. ← Answer to a Fetch; empty if the shard has no residual of the worker.
    Held = 32,
    /// → Requests the residual of the worker whose id is the metadata. ← Asks the worker for its
    /// residual after the push of the step before the clock. Clock 0, before a Parameters: the
    /// worker sends it directly before its next push.
    Fetch = 33,
    /// Replica holder → shard: the replica of this shard was promoted by the coordinator. The
    /// receiver must stop serving.
    Adopted = 34,
    /// → One part of the gradients of the step in the clock; parts may arrive in any order. ← One
    /// part of the parameters after the step in the clock. Metadata: [`super::metadata::PartHead`].
    Part = 35,
    /// → All parts of the gradients of the step in the clock have been sent. Metadata as in a Push.
    /// ← All parts of the parameters have been sent. Metadata as in a Parameters.
    Rest = 36,
    /// → A Push of the sum of the gradients of several workers of one node. Metadata:
    /// [`super::metadata::SumHead`].
    Together = 37,
    /// → Requests the answer to this worker's gradients of the step in the clock, which another
    /// worker may have pushed in a Together.
    Await = 38,
    /// ← Answer to an Await: the shard does not have these gradients, the worker must push them.
    /// Answer to a Together: the shard already has the gradients of one of these workers, the
    /// sender must push its own alone.
    Absent = 39,
    /// → Coordinator: fills the snapshot buffer with the present state; it is read later by Draw.
    /// Clock as in a Snapshot.
    Lend = 40,
    /// ← The snapshot buffer is filled. Clock: its version. Metadata:
    /// [`super::snapshot::SnapshotHead`].
    Lent = 41,
    /// Coordinator's checkpoint connection → shard: requests a range of the snapshot buffer whose
    /// version is the clock. Metadata: [`super::snapshot::SnapshotRangeHead`].
    Draw = 42,
    /// ← Answer to a Draw, with the same clock.
    Drawn = 43,
}

/// Header of a frame without magic, version and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: FrameKind,
    pub clock: u64,
    pub meta_bytes: u32,
    pub payload_bytes: u64,
}

/// Why 32 bytes are not a valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("these bytes are not a frame of Muster's data plane")]
    Magic,
    #[error("the peer speaks version {0} of the data plane, this is version {PROTOCOL_VERSION}")]
    Version(u16),
    #[error("the frame's header is damaged")]
    Checksum,
    #[error("there is no frame of kind {0}")]
    Kind(u16),
    #[error("the frame names step {0}; the limit is {MAX_CLOCK}")]
    Clock(u64),
    #[error("the frame announces {0} bytes beside its payload; the limit is {MAX_META_BYTES}")]
    MetaTooLong(u32),
    #[error(
        "the frame announces a payload of {0} bytes; it must be a multiple of 4 and at most {MAX_PAYLOAD_BYTES}"
    )]
    Payload(u64),
}

impl Header {
    /// Encodes the header with this protocol version and its checksum.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        out[6..8].copy_from_slice(&(self.kind as u16).to_le_bytes());
        out[8..16].copy_from_slice(&self.clock.to_le_bytes());
        out[16..20].copy_from_slice(&self.meta_bytes.to_le_bytes());
        out[20..28].copy_from_slice(&self.payload_bytes.to_le_bytes());
        let checksum = crc32fast::hash(&out[..28]);
        out[28..32].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// [`FrameError`] for anything that [`Self::encode`] cannot have written. Magic and version are
    /// checked first, so that a foreign or older peer is reported as such and not as damaged.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        if bytes[0..4] != MAGIC {
            return Err(FrameError::Magic);
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != PROTOCOL_VERSION {
            return Err(FrameError::Version(version));
        }
        let checksum = u32::from_le_bytes(array(bytes, 28));
        if checksum != crc32fast::hash(&bytes[..28]) {
            return Err(FrameError::Checksum);
        }
        let kind = u16::from_le_bytes([bytes[6], bytes[7]]);
        let header = Self {
            kind: FrameKind::from_wire(kind).ok_or(FrameError::Kind(kind))?,
            clock: u64::from_le_bytes(array(bytes, 8)),
            meta_bytes: u32::from_le_bytes(array(bytes, 16)),
            payload_bytes: u64::from_le_bytes(array(bytes, 20)),
        };
        let may_be_half_done = matches!(
            header.kind,
            FrameKind::SnapshotData | FrameKind::Lent | FrameKind::Draw | FrameKind::Drawn
        );
        if header.clock > MAX_CLOCK && !(may_be_half_done && header.clock == HALF_DONE) {
            return Err(FrameError::Clock(header.clock));
        }
        if header.meta_bytes > MAX_META_BYTES {
            return Err(FrameError::MetaTooLong(header.meta_bytes));
        }
        let is_whole = header.payload_bytes.is_multiple_of(4)
            || matches!(header.kind, FrameKind::Codes | FrameKind::Deltas);
        if header.payload_bytes > MAX_PAYLOAD_BYTES || !is_whole {
            return Err(FrameError::Payload(header.payload_bytes));
        }
        Ok(header)
    }
}

impl FrameKind {
    const ALL: [Self; 43] = [
        Self::Hello,
        Self::Welcome,
        Self::Refused,
        Self::Init,
        Self::Ready,
        Self::Pull,
        Self::Push,
        Self::Parameters,
        Self::Interrupted,
        Self::Snapshot,
        Self::SnapshotData,
        Self::Goodbye,
        Self::Done,
        Self::Finished,
        Self::View,
        Self::Moved,
        Self::Change,
        Self::Gone,
        Self::Ask,
        Self::Guests,
        Self::Handover,
        Self::Tally,
        Self::Codes,
        Self::Deltas,
        Self::Resume,
        Self::Copy,
        Self::Applied,
        Self::Adopt,
        Self::Norm,
        Self::Clip,
        Self::Keep,
        Self::Held,
        Self::Fetch,
        Self::Adopted,
        Self::Part,
        Self::Rest,
        Self::Together,
        Self::Await,
        Self::Absent,
        Self::Lend,
        Self::Lent,
        Self::Draw,
        Self::Drawn,
    ];

    /// Kind with this number.
    fn from_wire(value: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == value)
    }
}

fn array<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("the slice has the array's length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoded_headers_decode_to_the_same_value(
            kind in 0..FrameKind::ALL.len(), clock in 0..=MAX_CLOCK, meta_bytes in 0..=MAX_META_BYTES, floats in 0..=MAX_PAYLOAD_BYTES / 4,
        ) {
            let header = Header { kind: FrameKind::ALL[kind], clock, meta_bytes, payload_bytes: floats * 4 };
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn one_flipped_bit_is_never_accepted(clock in 0..=MAX_CLOCK, floats in 0u64..1 << 30, bit in 0usize..HEADER_BYTES * 8) {
            let header = Header { kind: FrameKind::Push, clock, meta_bytes: 24, payload_bytes: floats * 4 };
            let mut bytes = header.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::decode(&bytes).is_err());
        }

        #[test]
        fn random_bytes_never_panic(bytes: [u8; HEADER_BYTES], ours: bool) {
            let mut bytes = bytes;
            if ours {
                bytes[0..4].copy_from_slice(&MAGIC);
                bytes[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
                let checksum = crc32fast::hash(&bytes[..28]);
                bytes[28..32].copy_from_slice(&checksum.to_le_bytes());
            }
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert!(header.meta_bytes <= MAX_META_BYTES && header.payload_bytes <= MAX_PAYLOAD_BYTES);
            }
        }
    }

    /// Header of a frame without content.
    fn header(kind: FrameKind, clock: u64) -> Header {
        Header {
            kind,
            clock,
            meta_bytes: 0,
            payload_bytes: 0,
        }
    }

    #[test]
    fn clock_above_the_limit_is_refused() {
        for kind in [
            FrameKind::Await,
            FrameKind::Push,
            FrameKind::Init,
            FrameKind::Change,
        ] {
            for clock in [MAX_CLOCK + 1, u64::MAX] {
                let found = Header::decode(&header(kind, clock).encode());
                assert_eq!(found, Err(FrameError::Clock(clock)), "{kind:?}");
            }
            let largest = header(kind, MAX_CLOCK);
            assert_eq!(Header::decode(&largest.encode()), Ok(largest));
        }
        let half_done = header(FrameKind::Lent, HALF_DONE);
        assert_eq!(Header::decode(&half_done.encode()), Ok(half_done));
    }

    #[test]
    fn header_of_another_version_is_refused() {
        let mut bytes = header(FrameKind::Hello, 0).encode();
        bytes[4] = 9;
        assert_eq!(Header::decode(&bytes), Err(FrameError::Version(9)));
    }
}
