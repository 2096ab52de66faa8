//! The small parts of frames by which a checkpoint draws the copy that a shard has made of its state.

use super::{WireError, words};

/// Most numbers that are drawn at once, 4 MiB of them: the shard has a buffer of as many for each that draws.
pub const MOST_DRAWN: u64 = 1 << 20;

/// What a shard says of a copy that it has just made. With the version it is the copy's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LentHead {
    /// Applied to what was copied.
    pub updates: u64,
    /// Of copies that this shard has made.
    pub count: u64,
}

/// What is drawn of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawHead {
    pub count: u64,
    /// The first number, in the order of the shard's parameters, its optimizer state plane by plane, and what workers know.
    pub from: u64,
    /// How many.
    pub numbers: u64,
}

impl LentHead {
    /// Length on the wire.
    pub const BYTES: usize = 16;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        words::encode([self.updates, self.count])
    }

    /// # Errors
    /// [`WireError::Malformed`] when the part has another length.
    pub fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let [updates, count] = words::decode(meta, "word of a copy")?;
        Ok(Self { updates, count })
    }
}

impl DrawHead {
    /// Length on the wire.
    pub const BYTES: usize = 24;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        words::encode([self.count, self.from, self.numbers])
    }

    /// # Errors
    /// [`WireError::Malformed`] when the part has another length, or asks for nothing or for too much at once.
    pub fn decode(meta: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "word of what is drawn";
        let [count, from, numbers] = words::decode(meta, WHAT)?;
        match (1..=MOST_DRAWN).contains(&numbers) {
            true => Ok(Self {
                count,
                from,
                numbers,
            }),
            false => Err(WireError::Malformed(WHAT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_wire_and_ask_for_no_more_than_a_buffer() {
        let lent = LentHead {
            updates: 7,
            count: u64::MAX,
        };
        assert_eq!(LentHead::decode(&lent.encode()).unwrap(), lent);
        assert!(LentHead::decode(&lent.encode()[1..]).is_err());
        let draw = DrawHead {
            count: 3,
            from: 1 << 40,
            numbers: MOST_DRAWN,
        };
        assert_eq!(DrawHead::decode(&draw.encode()).unwrap(), draw);
        assert!(DrawHead::decode(&draw.encode()[..16]).is_err());
        for numbers in [0, MOST_DRAWN + 1, u64::MAX] {
            assert!(DrawHead::decode(&DrawHead { numbers, ..draw }.encode()).is_err());
        }
    }
}
