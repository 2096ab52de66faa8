//! The small parts of frames: who greets, what a step counted.

use super::{WireError, words};
use muster_model::id::{JobId, TaskId};
use serde::{Deserialize, Serialize};

/// Longest greeting that a shard reads from a stranger.
pub const MAX_HELLO_BYTES: u32 = 2048;

/// The version of a shard that has applied a step in some parts and not in others, as somebody is lost in the middle of it.
pub const HALF_DONE: u64 = u64::MAX;

/// What a peer says first. A shard accepts it only when it knows the job's secret; the rest of what it may do hangs on the view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    pub job_id: JobId,
    /// As in the launch; hex. New whenever the job's tasks all start anew, so that none of an earlier set gets in.
    pub secret: String,
    pub task_id: TaskId,
    pub guest: Guest,
    /// The shard that it is for, which may be another than the one that listens there: one whose copy that one keeps. None: whoever
    /// listens.
    #[serde(default)]
    pub to: Option<TaskId>,
    /// Whether it says what it holds back when a shard asks for that, as SSP and ASP with codecs need it. Left out where it is not needed, so
    /// that a shard of an older release understands the greeting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub says_held: bool,
    /// Whether it knows that statistics are not encoded, where a job with codecs has any. Left out likewise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain_statistics: bool,
}

/// What a peer comes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guest {
    /// To fill the shards and to say who takes part; there is one.
    Chief,
    Worker,
    /// Another shard, to hand over pieces.
    Shard,
    /// Another shard, whose copy is to be kept.
    Primary,
    /// The chief besides, to draw a copy of the shard's state for a checkpoint. A shard of an older release hangs up on it.
    Checkpoint,
}

/// The shard's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// Values of optimizer state that the shard keeps per parameter.
    pub state_per_parameter: u32,
    /// It keeps besides what workers know of its parameters, where answers are encoded: one more plane of a snapshot.
    #[serde(default)]
    pub keeps_known: bool,
}

/// What a worker's part of a step counted, or all workers' parts together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepStats {
    /// Training loss, summed over examples.
    pub loss_sum: f64,
    /// Examples classified rightly.
    pub correct: u64,
    pub examples: u64,
    /// Gradients that came too late to count, where backup workers are.
    pub dropped: u64,
    /// The turn in which all stand still after this step; 0 while they go on. The chief names it.
    pub hold: u64,
}

impl StepStats {
    /// Length on the wire.
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

    /// # Errors
    /// [`WireError::Malformed`] when the part has another length.
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

    /// What was added so far, leaving zero.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

/// What a shard has measured of its part of a step, from which the gradient noise scale comes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NoisePart {
    /// Over the pushes of the step, the square norms of the mean gradients.
    pub squares: f64,
    /// Over the pushes, one over the targets.
    pub inverses: f64,
    /// The square norm of the mean of all.
    pub whole: f64,
    /// How many pushes; 0 where nothing was measured.
    pub pushes: u64,
}

impl NoisePart {
    /// Steps from one measurement of the gradients' noise to the next, each of which reads them once more.
    pub const EVERY: u64 = 8;

    /// Length on the wire.
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

    /// Adds what another shard has measured of the same pushes.
    pub fn join(&mut self, other: Self) {
        self.squares += other.squares;
        self.whole += other.whole;
    }
}

/// The small part of an answer with parameters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AnswerHead {
    pub stats: StepStats,
    /// Pushes of all workers for steps before this one are in the parameters.
    pub slowest: u64,
    pub noise: NoisePart,
}

impl AnswerHead {
    /// Length on the wire.
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

    /// # Errors
    /// [`WireError::Malformed`] when the part has another length.
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

/// The small part of a push.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PushHead {
    /// The view under which the gradients were computed.
    pub view: u64,
    /// That they are the sum over.
    pub targets: u64,
    pub stats: StepStats,
}

impl PushHead {
    /// Length on the wire.
    pub const BYTES: usize = 16 + StepStats::BYTES;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.view.to_le_bytes());
        out[8..16].copy_from_slice(&self.targets.to_le_bytes());
        out[16..].copy_from_slice(&self.stats.encode());
        out
    }

    /// The same for one of the shards: the first alone counts for all, lest each example be counted once per shard.
    #[must_use]
    pub fn to_shard(self, index: usize) -> Self {
        let stats = match index {
            0 => self.stats,
            _ => StepStats::default(),
        };
        Self { stats, ..self }
    }

    /// # Errors
    /// [`WireError::Malformed`] when the part has another length.
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

/// The small part of a push of what several workers of one node have added up.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SumHead {
    /// Over all of them.
    pub push: PushHead,
    /// Of the steps in which the gradients' noise is measured, over all of them: the square norms of their mean gradients, and one over
    /// their targets.
    pub squares: f64,
    pub inverses: f64,
    /// The others, in the order of their ranks.
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

    /// The same for one of the shards, as [`PushHead::to_shard`].
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

    /// # Errors
    /// [`WireError::Malformed`] when the part has another length.
    pub fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let (fixed, others) = meta
            .split_at_checked(Self::FIXED)
            .filter(|(_, others)| others.len().is_multiple_of(Self::ID))
            .ok_or(WireError::Malformed("head of a sum"))?;
        let (push, noise) = fixed.split_at(PushHead::BYTES);
        let number = |part: &[u8]| decode_u64(part).map(f64::from_bits);
        Ok(Self {
            push: PushHead::decode(push)?,
            squares: number(&noise[..8])?,
            inverses: number(&noise[8..])?,
            others: others
                .chunks_exact(Self::ID)
                .map(decode_task)
                .collect::<Result<_, _>>()?,
        })
    }
}

/// The small part of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartHead {
    /// The view whose cut it is of.
    pub view: u64,
    /// Its number among the shard's.
    pub part: u64,
}

impl PartHead {
    /// Length on the wire.
    pub const BYTES: usize = 16;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        words::encode([self.view, self.part])
    }

    /// # Errors
    /// [`WireError::Malformed`] when the part has another length.
    pub fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let [view, part] = words::decode(meta, "head of a part")?;
        Ok(Self { view, part })
    }
}

/// Reads a `u64` that is a frame's whole small part.
///
/// # Errors
/// [`WireError::Malformed`] when the part has another length.
pub fn decode_u64(meta: &[u8]) -> Result<u64, WireError> {
    let bytes: [u8; 8] = meta
        .try_into()
        .map_err(|_| WireError::Malformed("a count"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads a task's id that is a frame's whole small part.
///
/// # Errors
/// [`WireError::Malformed`] when the part has another length.
pub fn decode_task(meta: &[u8]) -> Result<TaskId, WireError> {
    let bytes: [u8; 16] = meta
        .try_into()
        .map_err(|_| WireError::Malformed("a task's id"))?;
    Ok(TaskId(uuid::Uuid::from_bytes(bytes)))
}

/// Compares secrets in time that does not depend on where they differ. Their length is no secret.
#[must_use]
pub fn same_secret(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let difference = a.iter().zip(b).fold(0u8, |acc, (x, y)| acc | (x ^ y));
    // Keeps the fold from being turned into an early exit.
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_survive_the_wire_to_the_bit() {
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
    fn the_head_of_an_answer_survives_the_wire() {
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
    fn the_head_of_a_sum_is_what_it_was() {
        let task = |number| TaskId(uuid::Uuid::from_u128(number));
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
            others: vec![task(2), task(u128::MAX)],
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
