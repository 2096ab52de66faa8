//! The memory and threads of a pass: every layer's output, two gradient buffers, scratch.

use super::network::Network;
use crate::layer::conv::Lane;
use crate::layer::matrix::Write;
use crate::layer::{Conv, Dense};

#[derive(Debug, Clone)]
pub(super) enum Layer {
    Conv(Conv),
    Dense(Dense),
}

impl Layer {
    pub(super) fn input_len(&self) -> usize {
        match self {
            Self::Conv(conv) => conv.input_len(),
            Self::Dense(dense) => dense.inputs,
        }
    }

    pub(super) fn output_len(&self) -> usize {
        match self {
            Self::Conv(conv) => conv.output_len(),
            Self::Dense(dense) => dense.outputs,
        }
    }
}

/// All memory that passes over one network need, made once: a step allocates no tensor.
#[derive(Debug)]
pub struct Workspace {
    max_batch: usize,
    pool: Option<rayon::ThreadPool>,
    pass: Pass,
}

/// The part of a workspace that a pass changes.
#[derive(Debug)]
pub(super) struct Pass {
    batch: usize,
    threads: usize,
    /// Per layer, max_batch × output.
    outputs: Vec<Vec<f32>>,
    /// Per layer, which value of each pooling window was the largest; empty for dense layers.
    winners: Vec<Vec<u8>>,
    /// Gradient with respect to the output of the layer at hand, and to its input; exchanged from layer to layer.
    d_output: Vec<f32>,
    d_input: Vec<f32>,
    /// One per thread; empty without convolutions.
    lanes: Vec<Lane>,
}

impl Network {
    /// Memory for passes of up to `max_batch` examples on `threads` threads (0 counts as 1). Longer inputs run in parts of
    /// `max_batch`.
    ///
    /// # Panics
    /// When `max_batch` is 0, or the system refuses the threads.
    #[must_use]
    pub fn workspace(&self, max_batch: usize, threads: usize) -> Workspace {
        assert!(max_batch > 0, "a workspace holds at least one example");
        let threads = threads.max(1);
        let convolutions = || {
            self.layers.iter().filter_map(|layer| match layer {
                Layer::Conv(conv) => Some(conv),
                Layer::Dense(_) => None,
            })
        };
        let lanes = if convolutions().next().is_some() {
            threads
        } else {
            0
        };
        let lanes = (0..lanes)
            .map(|_| {
                let mut lane = Lane::default();
                convolutions().for_each(|conv| conv.reserve(&mut lane));
                lane
            })
            .collect();
        let widest = self.layers.iter().map(Layer::output_len).max().unwrap_or(0);
        let pool = (threads > 1).then(|| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(|index| format!("compute-{index}"))
                .build()
                .expect("the system grants the threads of a workspace")
        });
        Workspace {
            max_batch,
            pool,
            pass: Pass {
                batch: 0,
                threads,
                outputs: self
                    .layers
                    .iter()
                    .map(|layer| vec![0.0; max_batch * layer.output_len()])
                    .collect(),
                winners: self
                    .layers
                    .iter()
                    .map(|layer| match layer {
                        Layer::Conv(conv) => vec![0; max_batch * conv.output_len()],
                        Layer::Dense(_) => Vec::new(),
                    })
                    .collect(),
                d_output: vec![0.0; max_batch * widest],
                d_input: vec![0.0; max_batch * widest],
                lanes,
            },
        }
    }
}

impl Workspace {
    /// Examples that one pass takes.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// Runs on the workspace's threads.
    pub(super) fn run<T: Send>(&mut self, work: impl FnOnce(&mut Pass) -> T + Send) -> T {
        let pass = &mut self.pass;
        match &self.pool {
            Some(pool) => pool.install(|| work(pass)),
            None => work(pass),
        }
    }
}

impl Pass {
    /// Leaves every layer's output of the examples in `images`.
    pub(super) fn forward(&mut self, network: &Network, params: &[f32], images: &[f32]) {
        assert_eq!(
            network.layers.len(),
            self.outputs.len(),
            "a workspace of this network"
        );
        self.batch = images.len() / network.input().len();
        for (index, layer) in network.layers.iter().enumerate() {
            let (before, rest) = self.outputs.split_at_mut(index);
            let input = before
                .last()
                .map_or(images, |input| &input[..self.batch * layer.input_len()]);
            let output = &mut rest[0][..self.batch * layer.output_len()];
            match layer {
                Layer::Conv(conv) => {
                    let winners = &mut self.winners[index][..output.len()];
                    conv.forward(params, input, output, winners, &mut self.lanes);
                }
                Layer::Dense(dense) => dense.forward(params, input, output, self.threads),
            }
        }
    }

    /// The last layer's output.
    pub(super) fn scores(&mut self, len: usize) -> &mut [f32] {
        let last = self.outputs.len() - 1;
        &mut self.outputs[last][..len]
    }

    /// From the gradient with respect to the scores, which stands in their place, writes or adds every parameter's.
    pub(super) fn backward(
        &mut self,
        network: &Network,
        params: &[f32],
        images: &[f32],
        grads: &mut [f32],
        write: Write,
    ) {
        for (index, layer) in network.layers.iter().enumerate().rev() {
            let (input_len, output_len) = (
                self.batch * layer.input_len(),
                self.batch * layer.output_len(),
            );
            let (before, rest) = self.outputs.split_at_mut(index);
            let input = before.last().map_or(images, |input| &input[..input_len]);
            let (output, last) = rest.split_first_mut().expect("an output per layer");
            let d_output = &mut self.d_output[..output_len];
            if last.is_empty() {
                d_output.copy_from_slice(&output[..output_len]);
            }
            let d_input = (index > 0).then(|| &mut self.d_input[..input_len]);
            match layer {
                Layer::Conv(conv) => {
                    let winners = &self.winners[index][..output_len];
                    conv.backward(
                        params,
                        input,
                        winners,
                        d_output,
                        d_input,
                        grads,
                        write,
                        &mut self.lanes,
                    );
                }
                Layer::Dense(dense) => {
                    dense.backward(
                        params,
                        input,
                        &output[..output_len],
                        d_output,
                        d_input,
                        grads,
                        write,
                        self.threads,
                    );
                }
            }
            std::mem::swap(&mut self.d_output, &mut self.d_input);
        }
    }
}
