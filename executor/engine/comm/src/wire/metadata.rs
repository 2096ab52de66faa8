//! Metadata of frames: handshake, counts of a step, heads of pushes and answers.

use super::{WireError, words};
use muster_model::id::{JobId, TaskId};
use serde::{Deserialize, Serialize};

/// Maximum length in bytes of a handshake that a shard reads from an unauthenticated peer.
pub const MAX_HELLO_BYTES: u32 = 2048;

/// Version of a shard that has applied a step only in part, because a worker was lost during it.
pub const HALF_DONE: u64 = u64::MAX;

/// First message of a peer. A shard accepts it only with the job's secret. The peer's further
/// rights depend on the view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    pub job_id: JobId,
    /// Secret of the launch, in hex. It is new whenever all tasks of the job start again, so that
    /// no task of an earlier set is accepted.
    pub secret: String,
    pub task_id: TaskId,
    pub guest: ConnectionPurpose,
    /// Shard that the peer wants to reach. It can differ from the listening one: that process may
    /// serve it as a promoted replica. `None` means the listening shard.
    #[serde(default)]
    pub to: Option<TaskId>,
    /// Whether the worker sends its residual when a shard asks for it, as codecs under SSP and ASP
    /// require. Omitted where it is not needed, so that a shard of an older release can parse the
    /// message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub says_held: bool,
    /// Whether the worker sends running statistics without a codec. Omitted like `says_held`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain_statistics: bool,
}

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionPurpose {
    /// The coordinator, which fills the shards and decides on views. There is exactly one.
    Chief,
    Worker,
    /// Another shard, which hands over pieces.
    Shard,
    /// Another shard, whose replica this shard keeps.
    Primary,
    /// Second connection of the coordinator, which reads a snapshot for a checkpoint. A shard of an
    /// older release closes it.
    Checkpoint,
}

/// Answer of a shard to a handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// Number of optimizer state values that the shard keeps per parameter.
    pub state_per_parameter: u32,
    /// Whether the shard also keeps the parameters that the workers know. It does so where answers
    /// are encoded; a snapshot then has one more plane.
    #[serde(default)]
    pub keeps_known: bool,
}

/// Counts of a worker's part of a step, or of the parts of all workers together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepStats {
    /// Training loss, summed over examples.
    pub loss_sum: f64,
    /// Number of correctly classified examples.
    pub correct: u64,
    pub examples: u64,
    /// Number of gradients that arrived too late to count, with backup workers.
    pub dropped: u64,
    /// Time slice (`turn`) for which all tasks suspend after this step; 0 if they continue. The
    /// coordinator names it.
    pub hold: u64,
}

impl StepStats {
    /// Length on the wire in bytes.
    pub const BYTES: usize = 40;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        words::encode([
            self.loss_sum.to_bits(),
            self.correct,
            self.examples,
            self.dropped,
            self.hold,
        ])
    }

    /// Decodes the metadata.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the metadata has another length.
    pub fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let [loss_sum, correct, examples, dropped, hold] = words::decode(meta, "step counts")?;
        Ok(Self {
            loss_sum: f64::from_bits(loss_sum),
            correct,
            examples,
            dropped,
            hold,
        })
    }

    /// Adds another part of the same steps.
    pub fn add(&mut self, other: Self) {
        self.loss_sum += other.loss_sum;
        self.correct += other.correct;
        self.examples += other.examples;
        self.dropped += other.dropped;
        self.hold = self.hold.max(other.hold);
    }

    /// Returns the accumulated counts and resets them to zero.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

/// Measurements of a shard's part of a step for the gradient noise scale.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NoisePart {
    /// Sum over the pushes of the step of the squared norms of their mean gradients.
    pub squares: f64,
    /// Sum over the pushes of 1 divided by the number of targets.
    pub inverses: f64,
    /// Squared norm of the mean over all pushes.
    pub whole: f64,
    /// Number of pushes; 0 if nothing was measured.
    pub pushes: u64,
}

impl NoisePart {
    /// Steps from one measurement of the gradient noise to the next. Each measurement reads the
    /// gradients once more.
    pub const EVERY: u64 = 8;

    /// Length on the wire in bytes.
    pub const BYTES: usize = 32;

    fn encode(self) -> [u8; Self::BYTES] {
        let [squares, inverses, whole] =
            [self.squares, self.inverses, self.whole].map(f64::to_bits);
        words::encode([squares, inverses, whole, self.pushes])
    }

    fn decode(part: &[u8]) -> Result<Self, WireError> {
        let [squares, inverses, whole, pushes] = words::decode(part, "measures of noise")?;
        Ok(Self {
            squares: f64::from_bits(squares),
            inverses: f64::from_bits(inverses),
            whole: f64::from_bits(whole),
            pushes,
        })
    }

    /// Adds the measurements of another shard of the same pushes.
    pub fn join(&mut self, other: Self) {
        self.squares += other.squares;
        self.whole += other.whole;
    }
}

/// Metadata of an answer with parameters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AnswerHead {
    pub stats: StepStats,
    /// The parameters contain the pushes of all workers for the steps before this one.
    pub slowest: u64,
    pub noise: NoisePart,
}

impl AnswerHead {
    /// Length on the wire in bytes.
    pub const BYTES: usize = 8 + NoisePart::BYTES + StepStats::BYTES;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let (slowest, rest) = out.split_at_mut(8);
        let (noise, stats) = rest.split_at_mut(NoisePart::BYTES);
        slowest.copy_from_slice(&self.slowest.to_le_bytes());
        noise.copy_from_slice(&self.noise.encode());
        stats.copy_from_slice(&self.stats.encode());
        out
    }

    /// Decodes the metadata.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the metadata has another length.
    pub fn decode(meta: &[u8]) -> Result<Self, WireError> {
        const SHORT: WireError = WireError::Malformed("head of an answer");
        let (slowest, rest) = meta.split_at_checked(8).ok_or(SHORT)?;
        let (noise, stats) = rest.split_at_checked(NoisePart::BYTES).ok_or(SHORT)?;
        Ok(Self {
            slowest: decode_u64(slowest)?,
            noise: NoisePart::decode(noise)?,
            stats: StepStats::decode(stats)?,
        })
    }
}

/// Metadata of a push.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PushHead {
    /// Number of the view under which the gradients were computed.
    pub view: u64,
    /// Number of targets that the gradients are summed over.
    pub targets: u64,
    pub stats: StepStats,
}

impl PushHead {
    /// Length on the wire in bytes.
    pub const BYTES: usize = 16 + StepStats::BYTES;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.view.to_le_bytes());
        out[8..16].copy_from_slice(&self.targets.to_le_bytes());
        out[16..].copy_from_slice(&self.stats.encode());
        out
    }

    /// Returns the head for one of the shards. Only the first shard receives the counts, so that
    /// each example is counted once and not once per shard.
    #[must_use]
    pub fn to_shard(self, index: usize) -> Self {
        let stats = match index {
            0 => self.stats,
            _ => StepStats::default(),
        };
        Self { stats, ..self }
    }

    /// Decodes the metadata.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the metadata has another length.
    pub fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let (counts, stats) = meta
            .split_at_checked(16)
            .ok_or(WireError::Malformed("head of a push"))?;
        Ok(Self {
            view: decode_u64(&counts[..8])?,
            targets: decode_u64(&counts[8..])?,
            stats: StepStats::decode(stats)?,
        })
    }
}

/// Metadata of a push that contains the sum of several workers of one node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SumHead {
    /// Head over all workers of the sum.
    pub push: PushHead,
    /// In steps that measure the gradient noise, over all workers of the sum: `squares` is the sum
    /// of the squared norms of their mean gradients, `inverses` the sum of 1 divided by their
    /// numbers of targets.
    pub squares: f64,
    pub inverses: f64,
    /// The workers other than the sender, in the order of their ranks.
    pub others: Vec<TaskId>,
}

impl SumHead {
    const FIXED: usize = PushHead::BYTES + 16;
    const ID: usize = 16;

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.push.encode().to_vec();
        out.extend(self.squares.to_le_bytes());
        out.extend(self.inverses.to_le_bytes());
        out.extend(self.others.iter().flat_map(|task| task.0.into_bytes()));
        out
    }

    /// Returns the head for one of the shards, like [`PushHead::to_shard`].
    #[must_use]
    pub fn to_shard(&self, index: usize) -> Self {
        Self {
            push: self.push.to_shard(index),
            squares: match index {
                0 => self.squares,
                _ => 0.0,
            },
            ..self.clone()
        }
    }

    /// Decodes the metadata.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the metadata has another length.
    pub fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let (fixed, others) = meta
            .split_at_checked(Self::FIXED)
            .filter(|(_, others)| others.len().is_multiple_of(Self::ID))
            .ok_or(WireError::Malformed("head of a sum"))?;
        let (push, noise) = fixed.split_at(PushHead::BYTES);
        Ok(Self {
            push: PushHead::decode(push)?,
            squares: decode_u64(&noise[..8]).map(f64::from_bits)?,
            inverses: decode_u64(&noise[8..]).map(f64::from_bits)?,
            others: others
                .chunks_exact(Self::ID)
                .map(decode_task)
                .collect::<Result<_, _>>()?,
        })
    }
}

/// Metadata of one part of a step that is sent in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartHead {
    /// Number of the view by which the parts are cut.
    pub view: u64,
    /// Index among the parts of the shard.
    pub part: u64,
}

impl PartHead {
    /// Length on the wire in bytes.
    pub const BYTES: usize = 16;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        words::encode([self.view, self.part])
    }

    /// Decodes the metadata.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the metadata has another length.
    pub fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let [view, part] = words::decode(meta, "head of a part")?;
        Ok(Self { view, part })
    }
}

/// Reads metadata that consists of one `u64`.
///
/// # Errors
/// [`WireError::Malformed`] if the metadata has another length.
pub fn decode_u64(meta: &[u8]) -> Result<u64, WireError> {
    let bytes: [u8; 8] = meta
        .try_into()
        .map_err(|_| WireError::Malformed("a count"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads metadata that consists of one task id.
///
/// # Errors
/// [`WireError::Malformed`] if the metadata has another length.
pub fn decode_task(meta: &[u8]) -> Result<TaskId, WireError> {
    let bytes: [u8; 16] = meta
        .try_into()
        .map_err(|_| WireError::Malformed("a task's id"))?;
    Ok(TaskId(uuid::Uuid::from_bytes(bytes)))
}

/// Compares secrets in time that does not depend on the position of the difference. Their length is
/// not secret.
#[must_use]
pub fn same_secret(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let difference = a.iter().zip(b).fold(0u8, |acc, (x, y)| acc | (x ^ y));
    // Prevents the compiler from turning the fold into an early exit.
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_counts_survive_encoding_bit_for_bit() {
        let stats = StepStats {
            loss_sum: f64::NAN,
            correct: u64::MAX,
            examples: 7,
            dropped: 3,
            hold: 5,
        };
        let back = StepStats::decode(&stats.encode()).unwrap();
        assert_eq!(back.loss_sum.to_bits(), stats.loss_sum.to_bits());
        assert_eq!(
            (back.correct, back.examples, back.dropped, back.hold),
            (u64::MAX, 7, 3, 5)
        );
        assert!(StepStats::decode(&[0; 39]).is_err());
    }

    #[test]
    fn answer_heads_survive_encoding() {
        let head = AnswerHead {
            stats: StepStats {
                examples: 5,
                ..StepStats::default()
            },
            slowest: 77,
            noise: NoisePart {
                squares: 0.1,
                inverses: 0.25,
                whole: 0.3,
                pushes: 4,
            },
        };
        assert_eq!(AnswerHead::decode(&head.encode()).unwrap(), head);
        assert!(AnswerHead::decode(&head.encode()[1..]).is_err());
    }

    #[test]
    fn sum_heads_survive_encoding() {
        let head = SumHead {
            push: PushHead {
                view: 3,
                targets: 64,
                stats: StepStats {
                    examples: 64,
                    ..StepStats::default()
                },
            },
            squares: 0.1,
            inverses: 0.0625,
            others: [2, u128::MAX]
                .map(|number| TaskId(uuid::Uuid::from_u128(number)))
                .to_vec(),
        };
        assert_eq!(SumHead::decode(&head.encode()).unwrap(), head);
        assert!(SumHead::decode(&head.encode()[1..]).is_err());
        assert!(SumHead::decode(&[]).is_err());
        let second = head.to_shard(1);
        assert_eq!((second.squares, second.push.stats.examples), (0.0, 0));
        assert_eq!(second.inverses, head.inverses);
    }

    #[test]
    fn secrets_compare_by_value() {
        assert!(same_secret("abcd", "abcd"));
        assert!(!same_secret("abcd", "abce"));
        assert!(!same_secret("abcd", "abc"));
    }
}
