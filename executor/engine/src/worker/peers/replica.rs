//! A worker's own copy of the optimizer's state, and the update that every worker makes alike.
//!
//! Sums, rates and parameters are the same bits on every worker, and an update depends on nothing else, so the copies stay equal
//! without ever being compared.

use crate::checkpoint::Contents;
use crate::model::{Block, Role};
use crate::optimizer::{self, Optimizer, Rule};
use std::ops::Range;
use std::thread;

/// Parameters in a chunk; 64 KiB each of parameters, sums and every plane of state.
const CHUNK: usize = 16 << 10;

/// Fewer chunks than this are not worth starting a thread for.
const CHUNKS_PER_THREAD: usize = 16;

/// All of the optimizer's state; the parameters are the model's.
#[derive(Debug)]
pub struct Replica {
    optimizer: Optimizer,
    blocks: Vec<(Range<usize>, Role)>,
    threads: usize,
    /// Plane after plane, each as long as the parameters.
    pub state: Vec<Vec<f32>>,
    /// Made so far.
    pub updates: u64,
}

/// A range of blocks' sums over all workers' examples, and what makes their mean of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Summed {
    pub range: Range<usize>,
    pub scale: f32,
}

impl Replica {
    #[must_use]
    pub fn new(optimizer: Optimizer, blocks: &[Block], threads: usize) -> Self {
        let parameters = blocks.last().map_or(0, |block| block.range().end);
        Self {
            state: vec![vec![0.0; parameters]; optimizer.state_len_per_param()],
            blocks: blocks
                .iter()
                .map(|block| (block.range(), block.role))
                .collect(),
            optimizer,
            threads: threads.max(1),
            updates: 0,
        }
    }

    /// Takes over what a checkpoint holds.
    pub fn fill(&mut self, updates: u64, contents: &Contents) {
        self.updates = updates;
        for (plane, kept) in self.state.iter_mut().zip(&contents.state) {
            plane.copy_from_slice(kept);
        }
    }

    /// What a checkpoint is to hold, into memory that is there already where it is large enough.
    pub fn copy(&self, parameters: &[f32], into: &mut Contents) {
        copy(parameters, &mut into.parameters);
        into.state.resize_with(self.state.len(), Vec::new);
        for (plane, kept) in self.state.iter().zip(&mut into.state) {
            copy(plane, kept);
        }
        into.extras.clear();
    }

    /// Applies one step's sums; `parts` tile the parameters along blocks. The same arguments give the same bits whatever the number
    /// of threads.
    pub fn update(&mut self, parameters: &mut [f32], sums: &[f32], parts: &[Summed]) {
        let step = self.updates;
        self.updates += 1;
        let optimizer = &self.optimizer;
        let jobs = jobs(
            optimizer,
            &self.blocks,
            &mut self.state,
            parameters,
            sums,
            parts,
        );
        let threads = self.threads.min(jobs.len() / CHUNKS_PER_THREAD).max(1);
        let share = jobs.len().div_ceil(threads).max(1);
        let mut jobs = jobs.into_iter();
        thread::scope(|scope| {
            for _ in 1..threads {
                let share: Vec<Job<'_>> = jobs.by_ref().take(share).collect();
                scope.spawn(move || share.into_iter().for_each(|job| job.run(optimizer, step)));
            }
            jobs.for_each(|job| job.run(optimizer, step));
        });
    }
}

/// What there is to do, in pieces that may be done at the same time.
fn jobs<'a>(
    optimizer: &Optimizer,
    blocks: &[(Range<usize>, Role)],
    state: &'a mut [Vec<f32>],
    parameters: &'a mut [f32],
    sums: &'a [f32],
    parts: &[Summed],
) -> Vec<Job<'a>> {
    let by_tensor = matches!(optimizer.rule, Rule::Lars { .. });
    let mut jobs = Vec::new();
    let mut planes = state.iter_mut();
    let [mut first, mut second] =
        std::array::from_fn(|_| planes.next().map_or(&mut [][..], Vec::as_mut_slice));
    let mut rest = parameters;
    for (range, role) in blocks {
        let part = parts.iter().find(|part| part.range.contains(&range.start));
        let scale = part.map_or(0.0, |part| part.scale);
        let block = take(&mut rest, range.len());
        let sum = &sums[range.clone()];
        let trust = match role {
            Role::Weight if by_tensor => optimizer.trust(block, sum, scale),
            _ => 1.0,
        };
        for (parameters, sum) in block.chunks_mut(CHUNK).zip(sum.chunks(CHUNK)) {
            let len = parameters.len();
            jobs.push(Job {
                role: *role,
                parameters,
                sum,
                planes: [take(&mut first, len), take(&mut second, len)],
                scale,
                trust,
            });
        }
    }
    jobs
}

fn copy(from: &[f32], into: &mut Vec<f32>) {
    into.clear();
    into.extend_from_slice(from);
}

/// The first `len` of what is left, or what there is of it.
fn take<'a>(rest: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let whole = std::mem::take(rest);
    let (taken, left) = whole.split_at_mut(len.min(whole.len()));
    *rest = left;
    taken
}

/// One chunk's update.
struct Job<'a> {
    role: Role,
    parameters: &'a mut [f32],
    sum: &'a [f32],
    planes: [&'a mut [f32]; 2],
    scale: f32,
    trust: f32,
}

impl Job<'_> {
    fn run(self, optimizer: &Optimizer, step: u64) {
        if self.role == Role::Statistic {
            optimizer::follow(self.parameters, self.sum, self.scale);
            return;
        }
        optimizer.update_part(
            step,
            self.parameters,
            self.sum,
            self.planes,
            self.scale,
            self.trust,
        );
    }
}
