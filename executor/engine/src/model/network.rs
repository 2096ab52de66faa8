//! A network as a static list of layers with known shapes, and the two passes over it.

use super::architecture::{Architecture, BuildError, InputShape, MAX_NUMBERS};
use super::workspace::{Layer, Workspace};
use crate::layer::matrix::Write;
use crate::layer::{Conv, Dense};
use crate::loss::{StepLoss, cross_entropy};
use std::ops::Range;

/// A named tensor in the flat arena. Blocks follow one another without gaps, in the order of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// `conv1.weight`, `conv1.bias`, …, `dense1.weight`, …, `logits.weight`, `logits.bias`.
    pub name: String,
    /// In numbers, from the start of the arena.
    pub offset: usize,
    /// In numbers; the product of `shape`.
    pub len: usize,
    /// Convolution weights are 3 × 3 × in × out, dense weights in × out, both row-major; biases are out. Dense layers after
    /// convolutions read these flattened as height × width × channels.
    pub shape: Vec<usize>,
}

impl Block {
    /// As a range of indices into the flat arena.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// A network: layers with shapes and the table of its parameters. It holds no numbers; parameters, gradients and workspaces are the
/// caller's.
#[derive(Debug, Clone)]
pub struct Network {
    pub(super) layers: Vec<Layer>,
    blocks: Vec<Block>,
    input: InputShape,
    classes: usize,
}

impl Network {
    /// Lays out the layers and their parameters.
    ///
    /// # Errors
    /// Names the layer that cannot be.
    pub fn build(
        architecture: &Architecture,
        input: InputShape,
        classes: usize,
    ) -> Result<Self, BuildError> {
        if [input.height, input.width, input.channels].contains(&0) {
            return Err(BuildError::EmptyInput(input));
        }
        if !(2..=256).contains(&classes) {
            return Err(BuildError::Classes(classes));
        }
        let mut layout = Layout::default();
        let (list, widths, mut inputs) = match architecture {
            Architecture::Mlp { hidden } => (
                "hidden",
                hidden,
                product("the input", &[input.height, input.width, input.channels])?,
            ),
            Architecture::Cnn { channels, dense } => {
                ("dense", dense, layout.convolutions(channels, input)?)
            }
        };
        for (index, &outputs) in widths.iter().enumerate() {
            if outputs == 0 {
                return Err(BuildError::EmptyLayer { list, index });
            }
            layout.dense(&format!("dense{}", index + 1), inputs, outputs, true)?;
            inputs = outputs;
        }
        layout.dense("logits", inputs, classes, false)?;
        Ok(Self {
            layers: layout.layers,
            blocks: layout.blocks,
            input,
            classes,
        })
    }

    /// The table of parameters, which gradients and optimizer state follow too.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Length of the flat arena.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.blocks
            .last()
            .map_or(0, |block| block.offset + block.len)
    }

    #[must_use]
    pub fn input(&self) -> InputShape {
        self.input
    }

    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Forward and backward over `labels.len()` examples, any number of them: what exceeds the workspace runs in parts. `images` is
    /// examples × height × width × channels. `grads` is overwritten by the SUM over the examples, not their mean, so that the slices of a
    /// batch on several workers add up to the batch; with no examples it is all 0.
    ///
    /// The same arguments give the same bits, on any number of threads.
    ///
    /// # Panics
    /// When a slice has the wrong length, a label is no class, or `workspace` was made for another network.
    pub fn loss_and_grad(
        &self,
        workspace: &mut Workspace,
        params: &[f32],
        images: &[f32],
        labels: &[u8],
        grads: &mut [f32],
    ) -> StepLoss {
        self.check(params, images, labels);
        assert_eq!(
            grads.len(),
            self.parameter_count(),
            "one gradient per parameter"
        );
        if labels.is_empty() {
            grads.fill(0.0);
        }
        let mut total = StepLoss::default();
        let mut write = Write::Overwrite;
        let part = workspace.max_batch();
        for (images, labels) in images
            .chunks(part * self.input.len())
            .zip(labels.chunks(part))
        {
            total += workspace.run(|pass| {
                pass.forward(self, params, images);
                let loss = cross_entropy(
                    pass.scores(labels.len() * self.classes),
                    labels,
                    self.classes,
                    true,
                );
                pass.backward(self, params, images, grads, write);
                loss
            });
            write = Write::Add;
        }
        total
    }

    /// Forward only, over any number of examples.
    ///
    /// # Panics
    /// As [`Self::loss_and_grad`].
    pub fn evaluate(
        &self,
        workspace: &mut Workspace,
        params: &[f32],
        images: &[f32],
        labels: &[u8],
    ) -> StepLoss {
        self.check(params, images, labels);
        let mut total = StepLoss::default();
        let part = workspace.max_batch();
        for (images, labels) in images
            .chunks(part * self.input.len())
            .zip(labels.chunks(part))
        {
            total += workspace.run(|pass| {
                pass.forward(self, params, images);
                cross_entropy(
                    pass.scores(labels.len() * self.classes),
                    labels,
                    self.classes,
                    false,
                )
            });
        }
        total
    }

    fn check(&self, params: &[f32], images: &[f32], labels: &[u8]) {
        assert_eq!(
            params.len(),
            self.parameter_count(),
            "the parameters of this network"
        );
        assert_eq!(
            images.len(),
            labels.len() * self.input.len(),
            "one image per label"
        );
    }
}

/// Layers and blocks while they are laid out one after another.
#[derive(Default)]
struct Layout {
    layers: Vec<Layer>,
    blocks: Vec<Block>,
    len: usize,
}

impl Layout {
    /// Returns the flattened length of the last pooled output.
    fn convolutions(&mut self, channels: &[usize], input: InputShape) -> Result<usize, BuildError> {
        if channels.is_empty() {
            return Err(BuildError::NoConvolution);
        }
        let (mut height, mut width, mut channels_in) = (input.height, input.width, input.channels);
        for (index, &channels_out) in channels.iter().enumerate() {
            if channels_out == 0 {
                let list = "channels";
                return Err(BuildError::EmptyLayer { list, index });
            }
            if height < 2 || width < 2 {
                return Err(BuildError::TooSmallToPool {
                    index,
                    height,
                    width,
                });
            }
            let name = format!("conv{}", index + 1);
            product(
                &format!("the patches of {name}"),
                &[height, width, 9, channels_in],
            )?;
            product(
                &format!("the output of {name}"),
                &[height, width, channels_out],
            )?;
            let (weight, bias) = self.parameters(&name, &[3, 3, channels_in, channels_out])?;
            self.layers.push(Layer::Conv(Conv {
                height,
                width,
                channels_in,
                channels_out,
                weight,
                bias,
            }));
            (height, width, channels_in) = (height / 2, width / 2, channels_out);
        }
        Ok(height * width * channels_in)
    }

    fn dense(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: usize,
        relu: bool,
    ) -> Result<(), BuildError> {
        let (weight, bias) = self.parameters(name, &[inputs, outputs])?;
        self.layers.push(Layer::Dense(Dense {
            inputs,
            outputs,
            relu,
            weight,
            bias,
        }));
        Ok(())
    }

    /// The weight of `shape` and the bias of its last dimension.
    fn parameters(
        &mut self,
        layer: &str,
        shape: &[usize],
    ) -> Result<(Range<usize>, Range<usize>), BuildError> {
        let weight = self.block(format!("{layer}.weight"), shape)?;
        let bias = self.block(format!("{layer}.bias"), &shape[shape.len() - 1..])?;
        Ok((weight, bias))
    }

    fn block(&mut self, name: String, shape: &[usize]) -> Result<Range<usize>, BuildError> {
        let len = product(&name, shape)?;
        let offset = self.len;
        self.len = offset + len;
        if self.len > MAX_NUMBERS {
            let name = "all parameters together".to_owned();
            return Err(BuildError::TooLarge { name });
        }
        let block = Block {
            name,
            offset,
            len,
            shape: shape.to_vec(),
        };
        let range = block.range();
        self.blocks.push(block);
        Ok(range)
    }
}

fn product(name: &str, sides: &[usize]) -> Result<usize, BuildError> {
    sides
        .iter()
        .try_fold(1_usize, |product, &side| product.checked_mul(side))
        .filter(|&product| product <= MAX_NUMBERS)
        .ok_or_else(|| BuildError::TooLarge {
            name: name.to_owned(),
        })
}
