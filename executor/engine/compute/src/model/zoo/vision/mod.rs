//! Networks that read images.
//!
//! They are the published networks, with the numbers of parameters that the papers or torchvision
//! state; those numbers exclude running statistics. For inputs smaller than the published ones,
//! later dense layers read fewer elements.

mod autoencoder;
mod densenet;
mod inception;
mod plain;
mod resnet;

pub use autoencoder::autoencoder;
pub use densenet::{densenet_121, densenet_small};
pub use inception::googlenet;
pub use plain::{alexnet, lenet5, vgg};
pub use resnet::resnet;

use crate::model::builder::{ConvOptions, NetworkBuilder, ValueId};
use crate::model::error::BuildError;
use crate::model::network::Network;

/// Minimum side of images that the stem reduces to a quarter, as for photographs. Smaller images
/// would become too small for the later layers.
const PHOTOGRAPH: usize = 64;

/// Network under construction: the builder and the last value.
struct SequentialBuilder {
    builder: NetworkBuilder,
    x: ValueId,
}

impl SequentialBuilder {
    fn new(input: impl Into<crate::model::ExampleShape>) -> Result<Self, BuildError> {
        let builder = NetworkBuilder::new(input.into())?;
        let x = builder.input();
        Ok(Self { builder, x })
    }

    /// Appends the operation that `add` adds to the last value.
    fn then(
        &mut self,
        add: impl FnOnce(&mut NetworkBuilder, ValueId) -> Result<ValueId, BuildError>,
    ) -> Result<ValueId, BuildError> {
        self.x = add(&mut self.builder, self.x)?;
        Ok(self.x)
    }

    /// Appends a convolution without bias, batch normalisation and an optional ReLU: `name.conv`
    /// and `name.norm`.
    fn conv_norm(
        &mut self,
        name: &str,
        conv: ConvOptions,
        relu: bool,
    ) -> Result<ValueId, BuildError> {
        let conv = conv.without_bias();
        self.then(|builder, x| builder.conv(&format!("{name}.conv"), x, conv))?;
        self.then(|builder, x| builder.batch_norm(&format!("{name}.norm"), x, relu))
    }

    /// Appends batch normalisation, ReLU and a convolution without bias: `name.norm` and
    /// `name.conv`.
    fn norm_conv(&mut self, name: &str, conv: ConvOptions) -> Result<ValueId, BuildError> {
        let conv = conv.without_bias();
        self.then(|builder, x| builder.batch_norm(&format!("{name}.norm"), x, true))?;
        self.then(|builder, x| builder.conv(&format!("{name}.conv"), x, conv))
    }

    /// Whether the input is at least as large as a photograph.
    fn is_photograph(&self) -> bool {
        let shape = self.builder.shape(self.builder.input());
        shape.iter().take(2).all(|&side| side >= PHOTOGRAPH)
    }

    fn classify(mut self, classes: usize) -> Result<Network, BuildError> {
        if classes < 2 {
            return Err(BuildError::Classes(classes));
        }
        let scores = self.then(|builder, x| builder.dense("logits", x, classes, false))?;
        self.builder.classify(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, BatchTargets, ImageShape, RandomKey};
    use std::ops::Range;

    fn image(side: usize, channels: usize) -> ImageShape {
        ImageShape {
            height: side,
            width: side,
            channels,
        }
    }

    fn trained(network: Result<Network, BuildError>) -> usize {
        let network = network.unwrap();
        let blocks = network.blocks().iter();
        let trained = blocks.filter(|block| !block.is_statistic());
        trained.map(|block| block.len).sum()
    }

    /// The numbers of LeNet follow from the layers of the 1998 paper, with pooling that has no
    /// parameters. Those of DenseNet-BC are in the authors' table (0.8 M) and code. torchvision
    /// states the others, for its 1000 classes.
    #[test]
    fn parameter_counts_equal_the_published_ones() {
        let large = image(224, 3);
        let mut counts = vec![
            ("LeNet-5", trained(lenet5(image(28, 1), 10)), 61_706),
            (
                "LeNet-5 of 32×32",
                trained(lenet5(image(32, 1), 10)),
                61_706,
            ),
            ("AlexNet", trained(alexnet(large, 1000)), 61_100_840),
            ("GoogLeNet", trained(googlenet(large, 1000)), 6_624_904),
            (
                "DenseNet-121",
                trained(densenet_121(large, 1000)),
                7_978_856,
            ),
            (
                "DenseNet-BC-100",
                trained(densenet_small(image(32, 3), 10)),
                769_162,
            ),
            (
                "small ResNet-18",
                trained(resnet(image(32, 3), 18, 10)),
                11_173_962,
            ),
        ];
        for (depth, plain, normalised) in [
            (11, 132_863_336, 132_868_840),
            (13, 133_047_848, 133_053_736),
            (16, 138_357_544, 138_365_992),
            (19, 143_667_240, 143_678_248),
        ] {
            counts.push(("VGG", trained(vgg(large, depth, false, 1000)), plain));
            counts.push(("VGG-BN", trained(vgg(large, depth, true, 1000)), normalised));
        }
        for (depth, count) in [
            (18, 11_689_512),
            (34, 21_797_672),
            (50, 25_557_032),
            (101, 44_549_160),
            (152, 60_192_808),
        ] {
            counts.push(("ResNet", trained(resnet(large, depth, 1000)), count));
        }
        for (name, found, published) in counts {
            assert_eq!(found, published, "{name}");
        }
    }

    struct VisionExamples {
        inputs: Vec<f32>,
        classes: Vec<u32>,
    }

    impl VisionExamples {
        fn new(network: &Network, examples: usize) -> Self {
            let numbers = 0..examples * network.input().len();
            Self {
                inputs: numbers
                    .map(|i: usize| ((i * 37 + i / 7) % 255) as f32 / 255.0 - 0.5)
                    .collect(),
                classes: (0..examples as u32).map(|i| i % 3).collect(),
            }
        }

        /// Examples of a classifier or of an autoencoder.
        fn batch(&self, network: &Network, examples: Range<usize>) -> Batch<'_> {
            let len = network.input().len();
            let inputs = &self.inputs[examples.start * len..examples.end * len];
            let draw = RandomKey {
                first: examples.start as u64,
                ..RandomKey::default()
            };
            let batch = Batch {
                draw,
                ..Batch::classes(inputs, &self.classes[examples])
            };
            if network.wants_classes() {
                batch
            } else {
                Batch {
                    targets: BatchTargets::Values(inputs),
                    ..batch
                }
            }
        }
    }

    /// The passes of every network run, and its loss falls along the gradient.
    #[test]
    fn step_along_the_gradient_reduces_the_loss() {
        let networks = [
            ("lenet5", lenet5(image(28, 1), 10)),
            ("alexnet", alexnet(image(63, 3), 3)),
            ("vgg", vgg(image(32, 3), 11, true, 4)),
            ("googlenet", googlenet(image(64, 3), 3)),
            ("densenet", densenet_small(image(8, 3), 4)),
            ("resnet 18", resnet(image(16, 3), 18, 4)),
            ("resnet 50", resnet(image(64, 3), 50, 4)),
            ("autoencoder", autoencoder(image(12, 2), &[6, 7], 9)),
        ];
        for (name, network) in networks {
            let network = network.unwrap();
            let mut params = network.init(3);
            let mut grads = vec![0.0; params.len()];
            let data = VisionExamples::new(&network, 6);
            let batch = data.batch(&network, 0..6);
            let mut workspace = network.workspace(6, 2);
            let before = network.loss_and_grad(&mut workspace, &params, &batch, &mut grads);
            let blocks = network.blocks().iter();
            let trained = blocks.filter(|block| !block.is_statistic());
            let ranges: Vec<_> = trained.map(|block| block.range()).collect();
            let norm: f64 = ranges
                .iter()
                .map(|range: &Range<usize>| {
                    let grads = grads[range.clone()].iter();
                    grads.map(|g| f64::from(*g).powi(2)).sum::<f64>()
                })
                .sum();
            // A step that would lower the loss by 1 % if the loss were linear.
            let rate = (0.01 * before.loss_sum / norm) as f32;
            for i in ranges.into_iter().flatten() {
                params[i] -= rate * grads[i];
            }
            let after = network.loss_and_grad(&mut workspace, &params, &batch, &mut grads);
            let fall = (before.loss_sum - after.loss_sum) / (0.01 * before.loss_sum);
            assert!(
                (0.5..1.5).contains(&fall),
                "{name}: fell by {fall} of what the gradient says"
            );
        }
    }

    /// Without batch normalisation, whose statistics depend on the slice.
    #[test]
    fn gradients_of_slices_add_up_to_the_batch() {
        for network in [
            lenet5(image(28, 1), 10),
            vgg(image(32, 3), 11, false, 4),
            autoencoder(image(12, 2), &[6, 7], 9),
        ] {
            let network = network.unwrap();
            let params = network.init(3);
            let data = VisionExamples::new(&network, 7);
            let mut workspace = network.workspace(7, 1);
            let [whole, slices @ ..] = [0..7, 0..3, 3..4, 4..7].map(|examples| {
                let mut grads = vec![0.0; params.len()];
                let batch = data.batch(&network, examples);
                network.loss_and_grad(&mut workspace, &params, &batch, &mut grads);
                grads
            });
            let scale = whole.iter().fold(0.0_f32, |max, g| max.max(g.abs()));
            for (i, whole) in whole.iter().enumerate() {
                let sum: f32 = slices.iter().map(|slice| slice[i]).sum();
                assert!(
                    (sum - whole).abs() <= 1e-5 * scale,
                    "[{i}] {sum} for {whole}"
                );
            }
        }
    }

    fn refused(network: Result<Network, BuildError>) -> String {
        network.unwrap_err().to_string()
    }

    #[test]
    fn invalid_networks_are_rejected() {
        assert_eq!(
            refused(resnet(image(32, 3), 20, 10)),
            "ResNet-20 is not one of ResNet's depths 18, 34, 50, 101, 152"
        );
        assert_eq!(
            refused(vgg(image(28, 3), 16, false, 10)),
            "pool5 has a 2×2 kernel, which does not fit into 1×1 positions with its padding"
        );
        assert_eq!(
            refused(vgg(image(32, 3), 16, false, 1)),
            BuildError::Classes(1).to_string()
        );
        assert_eq!(
            refused(autoencoder(image(28, 1), &[8, 8, 8], 10)),
            "code reads an image whose sides halve evenly at every entry of channels, but what comes to it is [28, 28, 1]"
        );
    }
}
