//! The header of every frame, 32 bytes, little endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | magic `MSTR` |
//! | 4–5 | protocol version |
//! | 6–7 | kind |
//! | 8–15 | clock: a step, a version, a time or 0, by kind |
//! | 16–19 | bytes of the small part (JSON or fixed fields) that follows the header |
//! | 20–27 | bytes of the payload of `f32` that follows the small part |
//! | 28–31 | CRC-32 of bytes 0–27 |
//!
//! The checksum guards the framing, so that a sender that lost count is noticed at once. Payloads carry none: TCP has its own,
//! and one pass more over every gradient costs a tenth of the throughput.

use super::hello::HALF_DONE;

/// Length of a header on the wire.
pub const HEADER_BYTES: usize = 32;

/// Both ends must speak the same. Executors of two releases live side by side while nodes are drained for the newer one, so what only some jobs
/// need is said in their greeting rather than here: all others go on across both.
pub const PROTOCOL_VERSION: u16 = 5;

/// Longest small part of any frame: a view names every piece of every shard.
pub const MAX_META_BYTES: u32 = 4 << 20;

/// Longest payload that a header may announce, 64 GiB; the receiver then demands its own exact length.
pub const MAX_PAYLOAD_BYTES: u64 = 64 << 30;

/// Largest step or version that a header may name, so that a receiver can count on from it. [`HALF_DONE`] is larger and no step.
pub const MAX_CLOCK: u64 = 1 << 62;

const MAGIC: [u8; 4] = *b"MSTR";

/// What a frame is. `→` goes from worker to shard, `←` back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// → first frame: who I am. Small part: JSON of [`super::hello::Hello`].
    Hello = 1,
    /// ← accepted. Small part: JSON of [`super::hello::Welcome`].
    Welcome = 2,
    /// ← not accepted, connection closes. Small part: the reason in UTF-8.
    Refused = 3,
    /// → chief: the shard's parameters, then its optimizer state. Clock: the step. Small part: updates applied, u64.
    Init = 4,
    /// ← the Init is in place.
    Ready = 5,
    /// → give me the parameters as soon as there are any. Clock: the view that I know of, 0 for none. Answered by a View first.
    Pull = 6,
    /// → gradients of the step named by the clock. Small part: [`super::hello::PushHead`].
    Push = 7,
    /// ← parameters. Clock: the step to do next. Small part: [`super::hello::AnswerHead`], its counts
    /// summed over the workers.
    Parameters = 8,
    /// ← the step cannot be completed. Clock: the version. Small part: 1 byte, 1 if a peer was lost, 0 if all left in order.
    Interrupted = 9,
    /// → chief: everything as it is now. Clock: milliseconds that are worth waiting for what workers hold back, where they say it on their own.
    Snapshot = 10,
    /// ← parameters, then optimizer state. Clock: the version. Small part: updates applied, u64.
    SnapshotData = 11,
    /// → I leave in order.
    Goodbye = 12,
    /// → chief: training is over.
    Done = 13,
    /// ← training is over.
    Finished = 14,
    /// ← from the step in the next frame on this view holds. Small part: JSON of [`super::view::View`].
    View = 15,
    /// ← this view begins: leave, or pull under it. Small part as of a View.
    Moved = 16,
    /// → chief: a view follows, whose first step is the clock. Small part: JSON of [`super::view::Change`].
    Change = 17,
    /// ← chief: workers went away. Small part: JSON of a list of [`super::view::Departed`].
    Gone = 18,
    /// → chief: who waits to be taken in?
    Ask = 19,
    /// ← Small part: JSON of a list of task ids.
    Guests = 20,
    /// shard → shard: pieces, parameters first, then plane by plane the optimizer's state. Small part: JSON of
    /// [`super::view::Handover`]. Answered by a Ready.
    Handover = 21,
    /// → chief: is everything in its place? ← Small part: JSON of [`super::view::Tally`].
    Tally = 22,
    /// → a Push whose payload is encoded.
    Codes = 23,
    /// ← Parameters whose payload is encoded: what the worker lacks of them.
    Deltas = 24,
    /// → chief: I have looked and change nothing; wait on with the answer that is owed after a Gone.
    Resume = 25,
    /// shard → its follower: all it holds, parameters first, then plane by plane the optimizer's state. Small part: JSON of
    /// [`super::view::Shipped`]. Answered by a Ready.
    Copy = 26,
    /// shard → its follower: the sum of gradients that it has applied since. Small part as of a Copy. Answered by a Ready.
    Applied = 27,
    /// → chief: the shard is lost, you that keep its copy are it from now on. Clock: steps that must be in it. Small part: JSON of
    /// [`super::view::View`]. Answered by a Ready whose clock is the step to do next.
    Adopt = 28,
    /// ← chief: the square of the norm of this shard's part of the step named by the clock. Small part: its bits, u64.
    Norm = 29,
    /// → chief: what clipping leaves of that step. Small part: the bits of a factor, u64 of an f64. Answered as the push of it.
    Clip = 30,
    /// → chief: whoever goes on with the step of the clock hands over first what it holds back. ← you do, before a Parameters or Deltas.
    Keep = 31,
    /// → what the worker of the small part's id holds back, plane by plane: said by itself, or by the chief for it. With a clock: after
    /// its push of the step before the clock. ← to a Fetch; nothing where nothing is known.
    Held = 32,
    /// → give me what the worker of the small part's id holds back. ← say now what you hold back after the push of the step before the
    /// clock; with no clock, before a Parameters: say so with your next push, ahead of it.
    Fetch = 33,
    /// follower → shard: whose copy was kept here lives here now, by the chief's word, and is what sent this no more.
    Adopted = 34,
    /// → one part of the gradients of the step named by the clock, in any order. ← one part of the parameters after the step of the
    /// clock. Small part: [`super::hello::PartHead`].
    Part = 35,
    /// → the gradients of the step named by the clock went in parts, which were all. Small part as of a Push. ← so did what would be a
    /// Parameters. Small part as of one.
    Rest = 36,
    /// → a Push of the gradients of several workers of one node, which its sender has added up. Small part: [`super::hello::SumHead`].
    Together = 37,
    /// → the answer to my gradients of the step named by the clock, which somebody may have pushed together with others'.
    Await = 38,
    /// ← to an Await: they are not here, push them; to a Together: the gradients of one of them are here already, push your own alone.
    Absent = 39,
    /// → chief: copy everything as it is now where you are, to be drawn later. Clock as of a Snapshot.
    Lend = 40,
    /// ← the copy is made. Clock: its version. Small part: [`super::draw::LentHead`].
    Lent = 41,
    /// chief's checkpoint → shard: give me this of the copy whose version is the clock. Small part: [`super::draw::DrawHead`].
    Draw = 42,
    /// ← to a Draw, of which it has the clock.
    Drawn = 43,
}

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub clock: u64,
    pub meta_bytes: u32,
    pub payload_bytes: u64,
}

/// Why 32 bytes are no header of ours.
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

    /// # Errors
    /// [`FrameError`] for anything that [`Self::encode`] cannot have written. Magic and version come first, so that a stranger or
    /// an old peer is called what it is rather than damaged.
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
            kind: Kind::from_wire(kind).ok_or(FrameError::Kind(kind))?,
            clock: u64::from_le_bytes(array(bytes, 8)),
            meta_bytes: u32::from_le_bytes(array(bytes, 16)),
            payload_bytes: u64::from_le_bytes(array(bytes, 20)),
        };
        let is_state = matches!(
            header.kind,
            Kind::SnapshotData | Kind::Lent | Kind::Draw | Kind::Drawn
        );
        if header.clock > MAX_CLOCK && !(is_state && header.clock == HALF_DONE) {
            return Err(FrameError::Clock(header.clock));
        }
        if header.meta_bytes > MAX_META_BYTES {
            return Err(FrameError::MetaTooLong(header.meta_bytes));
        }
        let is_whole = header.payload_bytes.is_multiple_of(4)
            || matches!(header.kind, Kind::Codes | Kind::Deltas);
        if header.payload_bytes > MAX_PAYLOAD_BYTES || !is_whole {
            return Err(FrameError::Payload(header.payload_bytes));
        }
        Ok(header)
    }
}

impl Kind {
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
        fn what_is_encoded_is_decoded(
            kind in 0usize..36, clock in 0..=MAX_CLOCK, meta_bytes in 0..=MAX_META_BYTES, floats in 0..=MAX_PAYLOAD_BYTES / 4,
        ) {
            let header = Header { kind: Kind::ALL[kind], clock, meta_bytes, payload_bytes: floats * 4 };
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn one_flipped_bit_is_never_accepted(clock in 0..=MAX_CLOCK, floats in 0u64..1 << 30, bit in 0usize..HEADER_BYTES * 8) {
            let header = Header { kind: Kind::Push, clock, meta_bytes: 24, payload_bytes: floats * 4 };
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

    #[test]
    fn a_step_that_cannot_be_counted_on_from_is_refused() {
        let header = |kind, clock| Header {
            kind,
            clock,
            meta_bytes: 0,
            payload_bytes: 0,
        };
        for kind in [Kind::Await, Kind::Push, Kind::Init, Kind::Change] {
            for clock in [MAX_CLOCK + 1, u64::MAX] {
                let found = Header::decode(&header(kind, clock).encode());
                assert_eq!(found, Err(FrameError::Clock(clock)), "{kind:?}");
            }
            let largest = header(kind, MAX_CLOCK);
            assert_eq!(Header::decode(&largest.encode()), Ok(largest));
        }
        let half_done = header(Kind::Lent, HALF_DONE);
        assert_eq!(Header::decode(&half_done.encode()), Ok(half_done));
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = Header {
            kind: Kind::Hello,
            clock: 0,
            meta_bytes: 0,
            payload_bytes: 0,
        }
        .encode();
        bytes[4] = 9;
        assert_eq!(Header::decode(&bytes), Err(FrameError::Version(9)));
    }
}
