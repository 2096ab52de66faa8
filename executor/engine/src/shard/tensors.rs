//! The shard's numbers: its parameters, the optimizer's state of them, and one update.
//!
//! Both are worked on in chunks that stay in a core's cache: a chunk's gradients are summed over the workers and applied before
//! the next chunk is touched, so each number travels from memory once per step.

use crate::optimizer::Optimizer;
use std::thread;

/// Parameters in a chunk; 64 KiB each of parameters, gradients and every plane of state.
const CHUNK: usize = 16 << 10;

/// Fewer chunks than this are not worth starting a thread for.
const CHUNKS_PER_THREAD: usize = 16;

/// Of one shard, in its local order.
#[derive(Debug)]
pub struct Tensors {
    optimizer: Optimizer,
    threads: usize,
    parameters: Vec<f32>,
    /// Chunk after chunk; within one, plane after plane, as [`Optimizer::update`] wants it.
    state: Vec<f32>,
}

impl Tensors {
    /// Zeros, until they are filled.
    #[must_use]
    pub fn new(optimizer: Optimizer, parameters: usize, threads: usize) -> Self {
        let state = parameters * optimizer.state_len_per_param();
        Self {
            optimizer,
            threads: threads.max(1),
            parameters: vec![0.0; parameters],
            state: vec![0.0; state],
        }
    }

    #[must_use]
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// Numbers of optimizer state per parameter.
    #[must_use]
    pub fn state_per_parameter(&self) -> usize {
        self.optimizer.state_len_per_param()
    }

    /// Everything in the order of the wire: the parameters, then the state plane by plane.
    #[must_use]
    pub fn parts(&self) -> Vec<&[f32]> {
        let planes = self.state_per_parameter();
        let mut by_plane: Vec<Vec<&[f32]>> = vec![Vec::new(); planes];
        for chunk in self.state.chunks(CHUNK * planes.max(1)) {
            let len = chunk.len() / planes;
            for (plane, part) in by_plane.iter_mut().zip(chunk.chunks(len)) {
                plane.push(part);
            }
        }
        std::iter::once(self.parameters.as_slice())
            .chain(by_plane.into_iter().flatten())
            .collect()
    }

    /// Lets `fill` write everything, in the order of [`Self::parts`].
    pub fn fill_with<R>(&mut self, fill: impl FnOnce(&mut [&mut [f32]]) -> R) -> R {
        let planes = self.state_per_parameter();
        let mut by_plane: Vec<Vec<&mut [f32]>> = (0..planes).map(|_| Vec::new()).collect();
        for chunk in self.state.chunks_mut(CHUNK * planes.max(1)) {
            let len = chunk.len() / planes;
            for (plane, part) in by_plane.iter_mut().zip(chunk.chunks_mut(len)) {
                plane.push(part);
            }
        }
        let mut parts: Vec<&mut [f32]> = std::iter::once(self.parameters.as_mut_slice())
            .chain(by_plane.into_iter().flatten())
            .collect();
        fill(&mut parts)
    }

    /// Adds up `gradients` in their order, into the first, and applies the sum as update number `update`, counted from 0. The same
    /// arguments give the same bits whatever the number of threads.
    pub fn update(&mut self, update: u64, gradients: &mut [&mut [f32]], scale: f32) {
        let planes = self.state_per_parameter();
        let optimizer = &self.optimizer;
        let (first, others) = gradients
            .split_first_mut()
            .expect("a step has at least one gradient");
        let others: &[&mut [f32]] = others;
        let mut state = self.state.chunks_mut(CHUNK * planes.max(1));
        let mut chunks: Vec<Chunk<'_>> = self
            .parameters
            .chunks_mut(CHUNK)
            .zip(first.chunks_mut(CHUNK))
            .enumerate()
            .map(|(index, (parameters, sum))| Chunk {
                offset: index * CHUNK,
                parameters,
                sum,
                state: state.next().unwrap_or_default(),
            })
            .collect();
        let work = |chunks: &mut [Chunk<'_>]| {
            for chunk in chunks {
                for other in others {
                    let other = &other[chunk.offset..chunk.offset + chunk.sum.len()];
                    for (sum, value) in chunk.sum.iter_mut().zip(other) {
                        *sum += value;
                    }
                }
                optimizer.update(update, chunk.parameters, chunk.sum, chunk.state, scale);
            }
        };
        let threads = self.threads.min(chunks.len() / CHUNKS_PER_THREAD).max(1);
        let share = chunks.len().div_ceil(threads).max(1);
        thread::scope(|scope| {
            let mut shares = chunks.chunks_mut(share);
            let own = shares.next();
            for share in shares {
                scope.spawn(|| work(share));
            }
            if let Some(own) = own {
                work(own);
            }
        });
    }
}

/// What one pass of an update touches.
struct Chunk<'a> {
    offset: usize,
    parameters: &'a mut [f32],
    sum: &'a mut [f32],
    state: &'a mut [f32],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::Rule;

    fn adam() -> Optimizer {
        Optimizer::new(Rule::Adam {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
        })
    }

    fn values(count: usize, salt: usize) -> Vec<f32> {
        (0..count)
            .map(|i| ((i * 7919 + salt * 104_729) % 1000) as f32 / 500.0 - 1.0)
            .collect()
    }

    /// The chunked, threaded update against one call of the optimizer over everything.
    #[test]
    fn an_update_is_the_optimizers_own_on_the_sum_in_rank_order() {
        let count = CHUNK * 40 + 123;
        for threads in [1, 3] {
            let mut tensors = Tensors::new(adam(), count, threads);
            let start = values(count, 0);
            tensors.fill_with(|parts| parts[0].copy_from_slice(&start));
            let mut expected = start;
            let mut state = vec![0.0; count * 2];
            for step in 0..3 {
                let mut gradients: Vec<Vec<f32>> =
                    (1..4).map(|salt| values(count, salt + step)).collect();
                let sum: Vec<f32> = (0..count)
                    .map(|i| (gradients[0][i] + gradients[1][i]) + gradients[2][i])
                    .collect();
                adam().update(step as u64, &mut expected, &sum, &mut state, 0.25);
                let mut gradients: Vec<&mut [f32]> =
                    gradients.iter_mut().map(Vec::as_mut_slice).collect();
                tensors.update(step as u64, &mut gradients, 0.25);
            }
            assert_eq!(tensors.parameters(), expected);
            assert_eq!(
                tensors.parts()[1..].concat(),
                state,
                "planes come out whole and in order"
            );
        }
    }

    #[test]
    fn what_is_filled_comes_out_in_the_same_order() {
        let count = CHUNK * 2 + 5;
        let mut tensors = Tensors::new(adam(), count, 1);
        let all = values(count * 3, 1);
        tensors.fill_with(|parts| {
            let mut rest = all.as_slice();
            for part in parts {
                let (here, tail) = rest.split_at(part.len());
                part.copy_from_slice(here);
                rest = tail;
            }
            assert!(rest.is_empty());
        });
        assert_eq!(tensors.parts().concat(), all);
    }

    #[test]
    fn a_shard_without_parameters_is_no_special_case() {
        let mut tensors = Tensors::new(adam(), 0, 1);
        tensors.update(0, &mut [&mut [], &mut []], 1.0);
        assert_eq!(tensors.parts().concat(), [0.0; 0]);
    }
}
