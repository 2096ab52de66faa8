//! Gradients that go round all workers as codecs' bytes: an all-reduce in two legs, without a server.
//!
//! Each worker owns a part of the chunks. On the first leg everyone encodes its gradients, keeps what the codec loses (its feedback), and
//! sends each owner the chunks of its part; the owner adds them up in order of rank. On the second leg the owner encodes the sum,
//! keeps what that loses for its next sums, and sends it to all; everyone decodes the same bytes, the owner among them, so all have
//! the same bits. What is lost on either leg so comes later (the double pass of DoubleSqueeze, Tang et al., ICML 2019, by
//! reduce-scatter and all-gather as in 1-bit Adam, Tang et al., ICML 2021). Where gradients are sparse the sum goes on as it is, in sparse
//! bytes (SparCML's split and all-gather, Renggli et al., SC 2019).
//!
//! Bytes are encoded once a step. A death in mid-sum repeats the sum from them, with the chunks dealt anew; what an owner has kept of a
//! chunk that is another's now goes into its own next gradients, so that nothing is lost with a change of members but what the dead had.

use super::head::HEAD;
use crate::collective::{Algorithm, Group, Reduced, all_reduce};
use crate::compress::{
    CHUNK, Codec, CodecConfig, Codecs, Encoding, Feedback, HalfFormat, Key, Mode, Norm, Plan,
    PlanError, Plane, Rounding, State, build,
};
use crate::fabric::{FabricError, Flow, How, Mesh, Piece, Side, Take};
use crate::model::Block;
use std::ops::Range;
use std::sync::Arc;

/// Apart from all ranks': the owners' randomness on the second leg.
const SECOND_LEG: u64 = 0x6261_636b;

/// One worker's part in it.
#[derive(Debug)]
pub struct Coded {
    plan: Plan,
    /// Of the second leg, by block.
    back: Vec<Arc<dyn Codec>>,
    seed: u64,
    feedback: Feedback,
    /// What this worker has not said of the sums that it owned; as long as the parameters.
    held: Vec<f32>,
    /// Where that may be other than 0.
    holds: Vec<Range<usize>>,
    sent: Encoded,
    pending: Pending,
}

/// A part of a block that is encoded by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unit {
    block: usize,
    /// In the parameters.
    range: Range<usize>,
}

/// This step's gradients in bytes: unit after unit, each from a whole word on.
#[derive(Debug, Default)]
struct Encoded {
    step: u64,
    units: Vec<Unit>,
    words: Vec<u32>,
    /// Where each unit's words end.
    ends: Vec<usize>,
}

/// What this worker will hold if the sum of that view comes about.
#[derive(Debug, Default)]
struct Pending {
    view: u64,
    range: Range<usize>,
    held: Vec<f32>,
}

impl Coded {
    /// Nothing held back yet.
    ///
    /// # Errors
    /// When a codec's settings lie outside their range.
    pub fn new(codecs: &Codecs, blocks: &[Block], seed: u64) -> Result<Self, PlanError> {
        let named = blocks
            .iter()
            .map(|block| (block.name.as_str(), block.range()));
        let plan = Plan::new(codecs, named)?;
        let back = plan.blocks().iter().map(|block| {
            build(&back(block.config)).map_err(|source| PlanError::Codec {
                name: block.name.clone(),
                source,
            })
        });
        Ok(Self {
            back: back.collect::<Result<_, _>>()?,
            feedback: Feedback::new(&plan),
            held: vec![0.0; plan.arena_len()],
            holds: Vec::new(),
            sent: Encoded::default(),
            pending: Pending::default(),
            plan,
            seed,
        })
    }

    /// As [`Group::all_reduce`] of the gradients of `arena`, whole blocks of them; it leaves in the sums what codecs make of them. The
    /// head is summed as it is, where `arena` begins with it.
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn all_reduce(
        &mut self,
        group: &mut Group,
        step: u64,
        arena: Range<usize>,
    ) -> Result<Reduced, FabricError> {
        let bucket = arena.start.saturating_sub(HEAD)..arena.end - HEAD;
        let (rank, size) = (group.rank(), group.view().members.len());
        let mut head = [0.0; HEAD];
        if arena.start == 0 {
            head.copy_from_slice(&group.gradients_mut()[..HEAD]);
        }
        let gradients = &mut group.gradients_mut()[HEAD..];
        self.encode(step, bucket, gradients, (rank, size));
        let reduced = group.all_reduce_by(arena.clone(), |mesh, view, output| {
            // Whoever has the heads' sum knows that everyone is here, and needs the sums of before no more.
            let mut heads = [0.0; HEAD];
            all_reduce(mesh, Algorithm::Tree, &[], &head, &mut heads)?;
            if arena.start == 0 {
                output[..HEAD].copy_from_slice(&heads);
            }
            self.exchange(mesh, view, &mut output[HEAD..])
        })?;
        self.settle(reduced.view);
        Ok(reduced)
    }

    /// Encodes the gradients of `bucket`, to which it adds what this worker holds of chunks that are others' now.
    fn encode(
        &mut self,
        step: u64,
        bucket: Range<usize>,
        gradients: &mut [f32],
        (rank, size): (usize, usize),
    ) {
        let units = units(&self.plan, &bucket);
        let own = span(&units, deal(&units, size)[rank].clone());
        for held in std::mem::take(&mut self.holds) {
            for part in [
                held.start..held.end.min(bucket.start),
                held.start.max(own.start)..held.end.min(own.end),
                held.start.max(bucket.end)..held.end,
            ] {
                self.keep(part);
            }
            let (a, b) = (held.start.max(bucket.start), held.end.min(bucket.end));
            for part in [a..b.min(own.start.max(a)), a.max(own.end.min(b))..b] {
                for at in part {
                    gradients[at] += std::mem::take(&mut self.held[at]);
                }
            }
        }
        let seed = mixed(self.seed, rank as u64 + 1);
        let sent = &mut self.sent;
        sent.step = step;
        sent.ends.clear();
        let most = |unit: &Unit| {
            let codec = self.plan.blocks()[unit.block].codec();
            codec.max_chunk_bytes(unit.range.len()).div_ceil(4)
        };
        sent.words.resize(units.iter().map(most).sum(), 0);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut sent.words);
        let mut written = 0;
        let mut next = 0;
        while let Some(Unit { block, .. }) = units.get(next) {
            let mut encoding = self
                .plan
                .begin(seed, step, *block, gradients, &mut self.feedback);
            while let Some((_, count)) = encoding.next_chunk(&mut bytes[written..]) {
                written += count;
                let whole = written.next_multiple_of(4);
                bytes[written..whole].fill(0);
                written = whole;
                sent.ends.push(written / 4);
                next += 1;
            }
        }
        sent.units = units;
    }

    fn keep(&mut self, range: Range<usize>) {
        if !range.is_empty() && !self.holds.contains(&range) {
            self.holds.push(range);
        }
    }

    /// Both legs of one attempt. `output` is as long as the parameters; the bucket's part of it becomes the sum.
    fn exchange(
        &mut self,
        mesh: &mut Mesh,
        view: u64,
        output: &mut [f32],
    ) -> Result<(), FabricError> {
        let Encoded {
            step,
            units,
            words,
            ends,
        } = &self.sent;
        let (rank, size) = (mesh.rank(), mesh.size());
        let dealt = deal(units, size);
        let of = |part: &Range<usize>| {
            let bound = |unit: usize| unit.checked_sub(1).map_or(0, |before| ends[before]);
            &words[bound(part.start)..bound(part.end)]
        };
        let own = &units[dealt[rank].clone()];
        let most: usize = own.iter().map(|unit| self.most_words(unit)).sum();
        let mut received: Vec<Vec<u32>> = vec![Vec::new(); size];
        for hop in 1..size {
            let (to, from) = ((rank + hop) % size, (rank + size - hop) % size);
            received[from] = trade(mesh, (to, of(&dealt[to])), (from, most))?;
        }
        let part = span(units, dealt[rank].clone());
        for (contributor, words) in received.iter().enumerate() {
            let words = match contributor == rank {
                true => of(&dealt[rank]),
                false => words,
            };
            let mode = match contributor {
                0 => Mode::Overwrite,
                _ => Mode::Add,
            };
            let codec = |unit: &Unit| self.plan.blocks()[unit.block].codec();
            decode(own, codec, words, output, mode)
                .ok_or(FabricError::Nonsense { rank: contributor })?;
        }
        let step = *step;
        let sum = self.encode_sum(step, dealt[rank].clone(), output);
        self.pending.view = view;
        self.pending.range = part;
        let (units, back) = (&self.sent.units, |unit: &Unit| &*self.back[unit.block]);
        decode(
            own_units(units, &dealt, rank),
            back,
            &sum,
            output,
            Mode::Overwrite,
        )
        .expect("its own encoding");
        for hop in 1..size {
            let (to, from) = ((rank + hop) % size, (rank + size - hop) % size);
            let theirs = own_units(units, &dealt, from);
            let most = theirs.iter().map(|unit| self.most_words(unit)).sum();
            let words = trade(mesh, (to, &sum), (from, most))?;
            decode(theirs, back, &words, output, Mode::Overwrite)
                .ok_or(FabricError::Nonsense { rank: from })?;
        }
        Ok(())
    }

    /// The bytes of the sums that this worker owns and finds in `output`; what they lose is pending.
    fn encode_sum(&mut self, step: u64, own: Range<usize>, output: &[f32]) -> Vec<u32> {
        let units = &self.sent.units[own.clone()];
        let whole = span(&self.sent.units, own);
        self.pending.held.clear();
        self.pending
            .held
            .extend_from_slice(&self.held[whole.clone()]);
        let most: usize = units.iter().map(|unit| self.most_words(unit)).sum();
        let mut words = vec![0u32; most];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let mut written = 0;
        let (mut value, mut made) = (vec![0.0; CHUNK], vec![0.0; CHUNK]);
        for unit in units {
            let codec = &*self.back[unit.block];
            let len = unit.range.len();
            let at = unit.range.start - whole.start;
            let held = &mut self.pending.held[at..at + len];
            let key = Key {
                seed: mixed(self.seed, SECOND_LEG),
                step,
                // Places are what differs between any two units of a step.
                block: unit.range.start as u32,
            };
            let sum = &output[unit.range.clone()];
            if codec.planes().contains(&Plane::Residual) {
                let state = State {
                    residual: held,
                    velocity: &mut [],
                };
                let mut encoding = Encoding::begin(codec, key, sum, state);
                let (_, count) = encoding
                    .next_chunk(&mut bytes[written..])
                    .expect("a unit is not empty");
                written += count;
            } else {
                let (value, made) = (&mut value[..len], &mut made[..len]);
                for ((value, sum), held) in value.iter_mut().zip(sum).zip(&*held) {
                    *value = sum + held;
                }
                let mut encoding = Encoding::begin(codec, key, value, State::default());
                let (_, count) = encoding
                    .next_chunk(&mut bytes[written..])
                    .expect("a unit is not empty");
                codec
                    .decode_chunk(&bytes[written..written + count], made, Mode::Overwrite)
                    .expect("its own encoding");
                for ((held, value), made) in held.iter_mut().zip(value).zip(made) {
                    *held = *value - *made;
                }
                written += count;
            }
            let end = written.next_multiple_of(4);
            bytes[written..end].fill(0);
            written = end;
        }
        words.truncate(written / 4);
        words
    }

    /// Of either leg.
    fn most_words(&self, unit: &Unit) -> usize {
        let len = unit.range.len();
        let forth = self.plan.blocks()[unit.block].codec().max_chunk_bytes(len);
        let back = self.back[unit.block].max_chunk_bytes(len);
        forth.max(back).div_ceil(4)
    }

    /// The sum that everyone has is that of `view`. What this worker encoded of another's counts for nothing.
    fn settle(&mut self, view: u64) {
        let Pending { range, .. } = &self.pending;
        if self.pending.view == view && !range.is_empty() {
            let range = range.clone();
            self.held[range.clone()].copy_from_slice(&self.pending.held);
            self.keep(range);
        }
        self.pending.range = 0..0;
    }
}

/// What blocks of `bucket` are encoded in.
fn units(plan: &Plan, bucket: &Range<usize>) -> Vec<Unit> {
    let mut units = Vec::new();
    for (block, planned) in plan.blocks().iter().enumerate() {
        if !bucket.contains(&planned.range.start) {
            continue;
        }
        let Range { start, end } = planned.range;
        units.extend((start..end).step_by(CHUNK).map(|at| Unit {
            block,
            range: at..end.min(at + CHUNK),
        }));
    }
    units
}

/// Whose units are whose: a range for each rank, about equally many numbers.
fn deal(units: &[Unit], size: usize) -> Vec<Range<usize>> {
    let total: usize = units.iter().map(|unit| unit.range.len()).sum();
    let mut dealt = Vec::with_capacity(size);
    let (mut next, mut done) = (0, 0);
    for rank in 0..size {
        let start = next;
        let until = total * (rank + 1) / size;
        while let Some(unit) = units.get(next) {
            // By its middle: whole units are dealt to the nearer side.
            if rank + 1 < size && done + unit.range.len() / 2 >= until {
                break;
            }
            done += unit.range.len();
            next += 1;
        }
        dealt.push(start..next);
    }
    dealt
}

fn own_units<'a>(units: &'a [Unit], dealt: &[Range<usize>], rank: usize) -> &'a [Unit] {
    &units[dealt[rank].clone()]
}

/// The parameters that a range of units covers.
fn span(units: &[Unit], range: Range<usize>) -> Range<usize> {
    match &units[range] {
        [] => 0..0,
        [first, .., last] => first.range.start..last.range.end,
        [only] => only.range.clone(),
    }
}

/// Decodes the units' words into their places; `None` when they are no such words.
fn decode<'a>(
    units: &[Unit],
    codec: impl Fn(&Unit) -> &'a dyn Codec,
    words: &[u32],
    output: &mut [f32],
    mode: Mode,
) -> Option<()> {
    let bytes: &[u8] = bytemuck::cast_slice(words);
    let mut read = 0;
    for unit in units {
        let out = &mut output[unit.range.clone()];
        read += codec(unit).decode_chunk(&bytes[read..], out, mode).ok()?;
        read = read.next_multiple_of(4);
    }
    (read == bytes.len()).then_some(())
}

/// Gives words to one rank and takes those of one, of which there are `most` at most. Their number goes first.
fn trade(
    mesh: &mut Mesh,
    (to, words): (usize, &[u32]),
    (from, most): (usize, usize),
) -> Result<Vec<u32>, FabricError> {
    let mut flow = |words: &[u32], taken: &mut [u32]| {
        let flow = Flow {
            to: Some(to),
            sends: vec![Piece {
                range: 0..words.len(),
                from: Side::Input,
                after: None,
            }],
            from: Some(from),
            takes: vec![Take {
                range: 0..taken.len(),
                how: How::Store,
            }],
            in_step: false,
        };
        // Words go as floats, whose bits nobody looks at on the way.
        mesh.run(
            bytemuck::cast_slice(words),
            bytemuck::cast_slice_mut(taken),
            &flow,
        )
    };
    let mut announced = [0];
    flow(&[words.len() as u32], &mut announced)?;
    let count = announced[0] as usize;
    if count > most {
        return Err(FabricError::Nonsense { rank: from });
    }
    let mut taken = vec![0; count];
    flow(words, &mut taken)?;
    Ok(taken)
}

/// A seed of its own for whoever has that number.
fn mixed(seed: u64, number: u64) -> u64 {
    seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

/// The codec of sums, where gradients go by `config`.
fn back(config: CodecConfig) -> CodecConfig {
    match config {
        CodecConfig::None {} | CodecConfig::Half { .. } | CodecConfig::Qsgd { .. } => config,
        // A sign on this leg too goes astray at smaller rates.
        CodecConfig::OneBit {} => CodecConfig::Qsgd {
            bits: 4,
            bucket: 512,
            norm: Norm::Largest,
        },
        // Three levels are further off than what they stand for, which no feedback makes up for.
        CodecConfig::TernGrad { .. } => CodecConfig::Half {
            format: HalfFormat::Bf16,
            rounding: Rounding::Nearest,
            feedback: true,
        },
        // Every number that is not 0.
        CodecConfig::TopK { .. } | CodecConfig::Threshold { .. } | CodecConfig::Dgc { .. } => {
            CodecConfig::Threshold {
                magnitude: f32::from_bits(1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Credentials, Fabric, Options, Port, View};
    use crate::model::Role;
    use muster_model::id::{JobId, TaskId};
    use std::thread;
    use uuid::Uuid;

    const LENS: [usize; 3] = [150_000, 50, 70_000];
    const LEN: usize = 220_050;

    fn blocks() -> Vec<Block> {
        Block::in_a_row(LENS.map(|len| (len, Role::Weight)))
    }

    fn workers(codec: CodecConfig, count: usize) -> Vec<Coded> {
        let coded = || Coded::new(&Codecs::uniform(codec), &blocks(), 5).unwrap();
        (0..count).map(|_| coded()).collect()
    }

    fn gradients(rank: usize, step: u64) -> Vec<f32> {
        let salt = rank * 104_729 + step as usize * 15_485_863;
        (0..LEN)
            .map(|i| ((i * 7_919 + salt) % 10_007) as f32 / 5_003.5 - 1.0)
            .collect()
    }

    /// Runs `task` for each of the workers in a view of them all.
    fn in_view(
        number: u64,
        workers: &mut [Coded],
        task: impl Fn(&mut Mesh, &mut Coded) -> Vec<f32> + Sync,
    ) -> Vec<f32> {
        let bind = |id: usize| {
            let me = Credentials {
                job_id: JobId(Uuid::nil()),
                secret: "ab".repeat(32),
                id: TaskId(Uuid::from_u128(id as u128)),
                attempt: 1,
            };
            Port::bind("127.0.0.1", None, me).unwrap()
        };
        let ports: Vec<Port> = (0..workers.len()).map(bind).collect();
        let members = ports.iter().map(Port::member).collect();
        let view = View { number, members };
        let outputs: Vec<Vec<f32>> = thread::scope(|scope| {
            let (view, task) = (&view, &task);
            let run = |(port, coded): (&'_ Port, &'_ mut Coded)| {
                let options = Options::default();
                let mut fabric = Fabric::join(port, view.clone(), &options).unwrap();
                task(fabric.mesh(), coded)
            };
            let threads: Vec<_> = ports
                .iter()
                .zip(workers)
                .map(|worker| scope.spawn(move || run(worker)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        for output in &outputs {
            let bits = output.iter().zip(&outputs[0]);
            assert!(bits.clone().all(|(a, b)| a.to_bits() == b.to_bits()));
        }
        outputs.into_iter().next().unwrap()
    }

    /// One step of these workers; what everyone has of it.
    fn step(view: u64, number: u64, workers: &mut [Coded]) -> Vec<f32> {
        in_view(view, workers, |mesh, coded| {
            let (rank, size) = (mesh.rank(), mesh.size());
            let mut own = gradients(rank, number);
            coded.encode(number, 0..LEN, &mut own, (rank, size));
            let mut output = vec![f32::NAN; LEN];
            coded.exchange(mesh, view, &mut output).unwrap();
            coded.settle(view);
            output
        })
    }

    fn add(to: &mut [f64], values: &[f32], sign: f64) {
        for (to, value) in to.iter_mut().zip(values) {
            *to += sign * f64::from(*value);
        }
    }

    /// What a worker has not said, as a contributor and as an owner.
    fn unsaid(coded: &Coded, to: &mut [f64]) {
        add(to, &coded.held, 1.0);
        coded
            .feedback
            .planes()
            .for_each(|(_, plane)| add(to, plane, 1.0));
    }

    fn largest(off: &[f64]) -> f64 {
        off.iter().fold(0.0, |most, off| off.abs().max(most))
    }

    fn with_feedback() -> [CodecConfig; 5] {
        [
            CodecConfig::None {},
            CodecConfig::OneBit {},
            CodecConfig::Half {
                format: HalfFormat::Bf16,
                rounding: Rounding::Nearest,
                feedback: true,
            },
            CodecConfig::TopK {
                density: 0.01,
                sampled: false,
            },
            CodecConfig::Threshold { magnitude: 1.5 },
        ]
    }

    /// Three workers, of whom one leaves: what was said and what they have not said yet is all that there was.
    #[test]
    fn feedback_on_both_legs_conserves_the_sum_while_members_change() {
        for codec in with_feedback() {
            let mut crew = workers(codec, 3);
            let mut balance = vec![0.0; LEN];
            for number in 0..8 {
                if number == 4 {
                    unsaid(&crew.pop().unwrap(), &mut balance);
                }
                let view = 1 + number / 4;
                add(&mut balance, &step(view, number, &mut crew), 1.0);
                for rank in 0..crew.len() {
                    add(&mut balance, &gradients(rank, number), -1.0);
                }
            }
            crew.iter().for_each(|coded| unsaid(coded, &mut balance));
            let off = largest(&balance);
            assert!(off < 1e-3, "{codec:?}: {off}");
        }
    }

    /// A sum that two of three have to begin again is the sum of the two, and the first attempt leaves nothing.
    #[test]
    fn a_broken_sum_is_repeated_from_the_same_bytes() {
        for codec in with_feedback() {
            let mut crew = workers(codec, 3);
            let _ = in_view(1, &mut crew, |mesh, coded| {
                let (rank, size) = (mesh.rank(), mesh.size());
                coded.encode(0, 0..LEN, &mut gradients(rank, 0), (rank, size));
                let mut output = vec![f32::NAN; LEN];
                coded.exchange(mesh, 1, &mut output).unwrap();
                output
            });
            crew.pop();
            let sum = in_view(2, &mut crew, |mesh, coded| {
                let mut output = vec![f32::NAN; LEN];
                coded.exchange(mesh, 2, &mut output).unwrap();
                coded.settle(2);
                output
            });
            let mut balance = vec![0.0; LEN];
            add(&mut balance, &sum, 1.0);
            for (rank, coded) in crew.iter().enumerate() {
                add(&mut balance, &gradients(rank, 0), -1.0);
                unsaid(coded, &mut balance);
            }
            let off = largest(&balance);
            assert!(off < 1e-4, "{codec:?}: {off}");
        }
    }

    /// Codecs without feedback of their own come near the sum, and what the second leg loses comes later.
    #[test]
    fn unbiased_codecs_come_near_the_sum() {
        let qsgd = CodecConfig::Qsgd {
            bits: 8,
            bucket: 512,
            norm: Norm::Largest,
        };
        let half = CodecConfig::Half {
            format: HalfFormat::F16,
            rounding: Rounding::Nearest,
            feedback: false,
        };
        let tern = CodecConfig::TernGrad {
            scale: crate::compress::Scale::Group,
            clip: None,
        };
        for (codec, most) in [(qsgd, 0.05), (half, 0.002), (tern, 1.2)] {
            let mut crew = workers(codec, 3);
            let mut total = vec![0.0; LEN];
            for number in 0..4 {
                add(&mut total, &step(1, number, &mut crew), 1.0);
                for rank in 0..3 {
                    add(&mut total, &gradients(rank, number), -1.0);
                }
            }
            // Root mean square of what four steps' sums are off.
            let off = (total.iter().map(|off| off * off).sum::<f64>() / LEN as f64).sqrt() / 2.0;
            assert!(off < most, "{codec:?}: {off}");
        }
    }

    #[test]
    fn units_are_dealt_whole_evenly_and_all() {
        let coded = &workers(CodecConfig::None {}, 1)[0];
        let units = units(&coded.plan, &(0..LEN));
        // Three chunks, a small block, and two chunks.
        assert_eq!(units.len(), 6);
        for size in 1..9 {
            let dealt = deal(&units, size);
            let mut next = 0;
            for part in &dealt {
                assert_eq!(part.start, next);
                next = part.end;
            }
            assert_eq!((dealt.len(), next), (size, units.len()));
        }
        assert_eq!(deal(&units, 2), [0..2, 2..6]);
    }

    #[test]
    fn words_that_are_no_chunk_are_refused() {
        let coded = &workers(
            CodecConfig::TopK {
                density: 0.1,
                sampled: false,
            },
            1,
        )[0];
        let units = units(&coded.plan, &(0..LEN));
        let codec = |unit: &Unit| coded.plan.blocks()[unit.block].codec();
        let mut out = vec![0.0; LEN];
        for words in [vec![], vec![u32::MAX; 40], vec![0; 700_000]] {
            assert!(decode(&units, codec, &words, &mut out, Mode::Add).is_none());
        }
    }
}
