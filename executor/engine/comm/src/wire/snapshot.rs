//! Metadata of the snapshot stream: the frames by which the coordinator reads a shard's snapshot
//! buffer for a checkpoint while training continues.
//!
//! A Lend fills the buffer, and the Lent that answers it has a [`SnapshotHead`]. Each Draw requests
//! a [`SnapshotRangeHead`] of the buffer ([`super::frame::FrameKind`]).

use super::{WireError, words};

/// Maximum number of values of one Draw (4 MiB). The shard has a send buffer of this size for each
/// connection that reads a snapshot.
pub const MOST_DRAWN: u64 = 1 << 20;

/// Description of a snapshot buffer that a shard has just filled. `count` and the version, which is
/// the clock of the frame, identify its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotHead {
    /// Number of updates in the copied state.
    pub updates: u64,
    /// Number of snapshots that this shard has made so far.
    pub count: u64,
}

/// Range of a snapshot buffer that a Draw reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRangeHead {
    /// [`SnapshotHead::count`] of the buffer that is meant.
    pub count: u64,
    /// Index of the first value. The order is: the shard's parameters, each plane of the optimizer
    /// state, the parameters that the workers know.
    pub from: u64,
    /// Number of values.
    pub numbers: u64,
}

impl SnapshotHead {
    /// Length on the wire in bytes.
    pub const BYTES: usize = 16;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        words::encode([self.updates, self.count])
    }

    /// Decodes the metadata.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the metadata has another length.
    pub fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let [updates, count] = words::decode(meta, "word of a copy")?;
        Ok(Self { updates, count })
    }
}

impl SnapshotRangeHead {
    /// Length on the wire in bytes.
    pub const BYTES: usize = 24;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        words::encode([self.count, self.from, self.numbers])
    }

    /// Decodes the metadata.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the metadata has another length, or requests zero or more than
    /// [`MOST_DRAWN`] values.
    pub fn decode(meta: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "word of what is drawn";
        let [count, from, numbers] = words::decode(meta, WHAT)?;
        if (1..=MOST_DRAWN).contains(&numbers) {
            Ok(Self {
                count,
                from,
                numbers,
            })
        } else {
            Err(WireError::Malformed(WHAT))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draw_heads_survive_encoding_and_respect_the_buffer_limit() {
        let lent = SnapshotHead {
            updates: 7,
            count: u64::MAX,
        };
        assert_eq!(SnapshotHead::decode(&lent.encode()).unwrap(), lent);
        assert!(SnapshotHead::decode(&lent.encode()[1..]).is_err());
        let draw = SnapshotRangeHead {
            count: 3,
            from: 1 << 40,
            numbers: MOST_DRAWN,
        };
        assert_eq!(SnapshotRangeHead::decode(&draw.encode()).unwrap(), draw);
        assert!(SnapshotRangeHead::decode(&draw.encode()[..16]).is_err());
        for numbers in [0, MOST_DRAWN + 1, u64::MAX] {
            assert!(
                SnapshotRangeHead::decode(&SnapshotRangeHead { numbers, ..draw }.encode()).is_err()
            );
        }
    }
}
