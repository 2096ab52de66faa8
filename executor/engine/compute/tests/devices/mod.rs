//! Small networks that together contain every operation, each by itself and in awkward shapes, and
//! batches for them. The crate's own tests run them on an emulated device, `tests/gpu.rs` on a GPU.
//! The including file defines `engine`.

use super::engine::model::zoo::{self, Gpt, NetworkLayer, TrainingObjective, layers};
use super::engine::model::{
    ActivationFunction, Batch, BatchTargets, ConvOptions, ExampleShape, ImageShape, Network,
    ParameterRole, RandomKey, SlidingWindow,
};

/// Number of examples of every batch.
pub const EXAMPLES: usize = 7;

const CLASSIFY: TrainingObjective = TrainingObjective::Classify { classes: 5 };

pub type DeviceCase = (String, Network);

/// Owned data of a batch.
pub struct OwnedBatch {
    inputs: Vec<f32>,
    values: Vec<f32>,
    classes: Vec<u32>,
    wants_classes: bool,
}

fn image(height: usize, width: usize, channels: usize) -> ExampleShape {
    ImageShape {
        height,
        width,
        channels,
    }
    .into()
}

/// Reproducible values in [-1, 1).
fn numbers(len: usize) -> Vec<f32> {
    let mut state = 12_345_u32;
    let numbers = (0..len).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    });
    numbers.collect()
}

/// Initial parameters, but without scales of 1 and shifts or biases of 0.
pub fn parameters(network: &Network) -> Vec<f32> {
    let mut params = network.init(3);
    for block in network.blocks() {
        if block.role != ParameterRole::Weight {
            let params = &mut params[block.range()];
            let more = numbers(params.len());
            params.iter_mut().zip(more).for_each(|(p, x)| *p += 0.1 * x);
        }
    }
    params
}

impl OwnedBatch {
    /// Creates [`EXAMPLES`] examples for the network.
    pub fn new(network: &Network) -> Self {
        let numbers = numbers(EXAMPLES * network.input().len());
        let inputs: Vec<f32> = match network.input() {
            ExampleShape::Tokens { vocabulary, .. } => numbers
                .iter()
                .map(|x| ((x + 1.0) / 2.0 * vocabulary as f32).floor())
                .collect(),
            _ => numbers,
        };
        let len = EXAMPLES * network.targets();
        let classes = network.outputs() / network.targets();
        Self {
            inputs,
            values: (0..len).map(|i| (i * 7 % 5) as f32 / 4.0).collect(),
            classes: (0..len).map(|i| (i * 11 % classes) as u32).collect(),
            wants_classes: network.wants_classes(),
        }
    }

    pub fn batch(&self) -> Batch<'_> {
        Batch {
            inputs: &self.inputs,
            targets: if self.wants_classes {
                BatchTargets::Classes(&self.classes)
            } else {
                BatchTargets::Values(&self.values)
            },
            draw: RandomKey {
                seed: 5,
                step: 9,
                first: 4,
            },
        }
    }
}

fn list(
    what: &str,
    input: ExampleShape,
    list: &[NetworkLayer],
    goal: TrainingObjective,
) -> DeviceCase {
    (what.to_owned(), layers(input, list, goal).expect(what))
}

fn dense(width: usize) -> NetworkLayer {
    NetworkLayer::Dense { width, relu: true }
}

fn conv(conv: ConvOptions) -> NetworkLayer {
    NetworkLayer::Conv(conv)
}

pub fn dense_layers_and_losses() -> Vec<DeviceCase> {
    let row = ExampleShape::Row { columns: 13 };
    let many = TrainingObjective::Classify { classes: 90 };
    let [classes43, classes301, classes4100] =
        [43, 301, 4100].map(|classes| TrainingObjective::Classify { classes });
    vec![
        list("dense", row, &[dense(9), dense(70)], CLASSIFY),
        list("many classes", row, &[dense(9)], many),
        // Rows at arbitrary offsets, with more scores than a block has threads.
        list("43 classes", row, &[dense(72)], classes43),
        list("301 classes", row, &[dense(9)], classes301),
        list("4100 classes", row, &[dense(3)], classes4100),
        list("distance", row, &[dense(9)], TrainingObjective::Regress),
        list("answers", row, &[dense(9)], TrainingObjective::Answer),
    ]
}

pub fn activations() -> Vec<DeviceCase> {
    use ActivationFunction::{Gelu, GeluTanh, LeakyRelu, Relu, Sigmoid, Silu, Tanh};
    let slope = LeakyRelu { slope: 0.1 };
    let functions = [Relu, slope, Gelu, GeluTanh, Sigmoid, Tanh, Silu];
    let cases = functions.map(|function| {
        let through = [dense(9), NetworkLayer::Activation(function)];
        let what = format!("{function:?}");
        list(&what, ExampleShape::Row { columns: 13 }, &through, CLASSIFY)
    });
    cases.into()
}

pub fn convolutions() -> Vec<DeviceCase> {
    let mut all = Vec::new();
    let oblong = SlidingWindow {
        kernel: [2, 5],
        stride: [2, 3],
        padding: [1, 2],
    };
    let cases = [
        (
            [5, 6, 3],
            ConvOptions::new(4, SlidingWindow::square(3).same()),
        ),
        (
            [8, 7, 1],
            ConvOptions::new(3, SlidingWindow::square(5)).relu(),
        ),
        (
            [7, 8, 8],
            ConvOptions::new(8, SlidingWindow::square(3).stride(2).padding(1)).without_bias(),
        ),
        (
            [13, 14, 3],
            ConvOptions::new(8, SlidingWindow::square(7).stride(2).padding(3)).without_bias(),
        ),
        ([6, 7, 4], ConvOptions::new(6, oblong).groups(2).relu()),
        ([6, 7, 16], ConvOptions::new(16, oblong).groups(2).relu()),
        (
            [4, 5, 6],
            ConvOptions::new(7, SlidingWindow::square(1)).relu(),
        ),
        (
            [5, 6, 3],
            ConvOptions::new(4, SlidingWindow::square(1).stride(2)),
        ),
        (
            [4, 5, 6],
            ConvOptions::new(9, SlidingWindow::square(1)).groups(3),
        ),
        (
            [6, 5, 5],
            ConvOptions::new(5, SlidingWindow::square(3).same())
                .groups(5)
                .relu(),
        ),
        (
            [6, 7, 40],
            ConvOptions::new(40, SlidingWindow::square(3).stride(2).padding(1))
                .groups(40)
                .without_bias(),
        ),
    ];
    for ([height, width, channels], what) in cases {
        // The first convolution makes the gradient of the second one's input necessary.
        let before = conv(ConvOptions::new(channels, SlidingWindow::square(1)));
        let input = image(height, width, channels);
        all.push(list(
            &format!("{what:?}"),
            input,
            &[before, conv(what)],
            CLASSIFY,
        ));
    }
    for shape in [[6, 8, 3], [7, 5, 8]] {
        let input = image(shape[0], shape[1], shape[2]);
        let before = conv(ConvOptions::new(shape[2], SlidingWindow::square(1)));
        let pooled = [before, NetworkLayer::ConvPool { channels: 6 }];
        all.push(list("convolution and pooling", input, &pooled, CLASSIFY));
    }
    all
}

pub fn pooling_and_what_changes_images() -> Vec<DeviceCase> {
    let mut all = Vec::new();
    let before = conv(ConvOptions::new(6, SlidingWindow::square(3).same()));
    let oblong = SlidingWindow {
        kernel: [3, 2],
        stride: [2, 1],
        padding: [1, 1],
    };
    for windows in [
        oblong,
        SlidingWindow::square(2).stride(2),
        SlidingWindow::square(3).same(),
    ] {
        for pool in [
            NetworkLayer::MaxPool(windows),
            NetworkLayer::AveragePool(windows),
        ] {
            let what = format!("{pool:?}");
            all.push(list(
                &what,
                image(7, 6, 2),
                &[before.clone(), pool],
                CLASSIFY,
            ));
        }
    }
    let residual = NetworkLayer::Residual {
        layers: vec![conv(ConvOptions::new(6, SlidingWindow::square(3).same()))],
        shortcut: vec![],
        relu: true,
    };
    let concat = NetworkLayer::Concat {
        branches: vec![
            vec![conv(ConvOptions::new(3, SlidingWindow::square(1)))],
            vec![],
            vec![NetworkLayer::MaxPool(SlidingWindow::square(3).same())],
        ],
    };
    let upsample = NetworkLayer::Upsample { factor: 3 };
    let reshape = NetworkLayer::Reshape {
        shape: vec![6, 7, 6],
    };
    let several = [
        NetworkLayer::BatchNorm { relu: false },
        NetworkLayer::BatchNorm { relu: true },
        NetworkLayer::GlobalAveragePool,
        residual,
        concat,
        upsample,
        reshape,
        NetworkLayer::Dropout { share: 0.4 },
    ];
    for layer in several {
        let what = format!("{layer:?}");
        all.push(list(
            &what,
            image(7, 6, 2),
            &[before.clone(), layer],
            CLASSIFY,
        ));
    }
    // Channels that are processed eight at a time, more of them than a block can process, and more
    // rows than one block sums.
    let before = conv(ConvOptions::new(72, SlidingWindow::square(3).same()));
    let wide = [
        NetworkLayer::MaxPool(oblong),
        NetworkLayer::AveragePool(oblong),
        NetworkLayer::BatchNorm { relu: true },
    ];
    for layer in wide {
        let what = format!("{layer:?} of 72 channels");
        let through = [before.clone(), layer];
        all.push(list(&what, image(3, 30, 2), &through, CLASSIFY));
    }
    for relu in [false, true] {
        let what = format!("BatchNorm of many rows, {relu}");
        // Without a bias, whose gradient would be only rounding noise.
        let before = conv(ConvOptions::new(8, SlidingWindow::square(1)).without_bias());
        let through = [
            before,
            NetworkLayer::BatchNorm { relu },
            NetworkLayer::GlobalAveragePool,
        ];
        all.push(list(&what, image(17, 18, 2), &through, CLASSIFY));
    }
    all
}

pub fn sequences() -> Vec<DeviceCase> {
    let mut all = Vec::new();
    let predict = TrainingObjective::Predict { vocabulary: 11 };
    let embedding = NetworkLayer::Embedding { width: 12 };
    let several = [
        NetworkLayer::Positions,
        NetworkLayer::LayerNorm,
        NetworkLayer::Lstm { hidden: 7 },
        NetworkLayer::Gru { hidden: 6 },
        NetworkLayer::Attention { heads: 3 },
        NetworkLayer::Project {
            width: 9,
            bias: false,
        },
    ];
    for layer in several {
        for length in [1, 5, 70] {
            let what = format!("{layer:?} of {length}");
            let tokens = ExampleShape::Tokens {
                length,
                vocabulary: 11,
            };
            let through = [embedding.clone(), layer.clone()];
            all.push(list(&what, tokens, &through, predict));
        }
    }
    // Heads of 32 and 64 have their own kernels, in tiles of 64 positions.
    for (heads, length) in [(2, 5), (2, 130), (1, 64), (1, 70), (1, 193)] {
        let what = format!("{heads} heads of 64 numbers in all, {length} positions");
        let tokens = ExampleShape::Tokens {
            length,
            vocabulary: 11,
        };
        let through = [
            NetworkLayer::Embedding { width: 64 },
            NetworkLayer::Positions,
            NetworkLayer::Attention { heads },
        ];
        all.push(list(&what, tokens, &through, predict));
    }
    // Multiples of eight columns: few, and more than a warp or a block processes at once.
    for (width, length) in [(40, 80), (264, 3)] {
        let tokens = ExampleShape::Tokens {
            length,
            vocabulary: 11,
        };
        let bias = true;
        let through = [
            NetworkLayer::Embedding { width },
            NetworkLayer::LayerNorm,
            NetworkLayer::Project { width: 16, bias },
        ];
        let what = format!("LayerNorm of {width} by {length}");
        all.push(list(&what, tokens, &through, predict));
    }
    for tied in [false, true] {
        let gpt = Gpt {
            length: 6,
            vocabulary: 11,
            width: 8,
            blocks: 2,
            heads: 2,
            tied,
            dropout: 0.2,
        };
        all.push((format!("{gpt:?}"), zoo::gpt(gpt).expect("a network")));
    }
    all
}
