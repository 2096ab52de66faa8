//! Shapes and parameter counts along a list of layers.
//!
//! The engine's builder has the same rules and decides. Here they cover what sums and products can
//! show before a job is accepted.

use super::Errors;
use crate::spec::{Input, Layer, Sides};

/// Maximum numbers in the largest layer output, and in all parameters together.
const MOST: u64 = 1 << 31;
const MOST_LAYERS: usize = 1024;
const DEEPEST: usize = 8;

/// Whether a buffer of this length exceeds the limit.
pub(super) fn more_than_fit(numbers: u64) -> bool {
    numbers > MOST
}

impl Input {
    /// Returns the numbers of one example.
    pub(super) fn numbers(self) -> u64 {
        match self {
            Self::Image {
                height,
                width,
                channels,
            } => [height, width, channels]
                .into_iter()
                .map(u64::from)
                .product(),
            Self::Row { columns } => u64::from(columns),
            Self::Tokens { length, .. } => u64::from(length),
        }
    }
}

/// Input of a layer.
#[derive(Clone)]
struct Value {
    shape: Vec<u64>,
    /// Whether it is the network's token input, which only an embedding accepts.
    tokens: bool,
}

/// Walk through the layers. It ends at the first mistake, because later shapes are then unknown.
pub(super) struct Walk<'a> {
    errors: &'a mut Errors,
    input: Input,
    parameters: u64,
    layers: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(errors: &'a mut Errors, input: Input) -> Self {
        Self {
            errors,
            input,
            parameters: 0,
            layers: 0,
        }
    }

    /// Returns the output shape of the last layer; `None` after a mistake.
    pub(super) fn all(mut self, layers: &[Layer]) -> Option<Vec<u64>> {
        let shape = match self.input {
            Input::Image {
                height,
                width,
                channels,
            } => [height, width, channels].map(u64::from).to_vec(),
            Input::Row { columns } => vec![u64::from(columns)],
            Input::Tokens { length, .. } => vec![u64::from(length)],
        };
        let field = "engine.model.layers";
        if layers.is_empty() {
            return self.wrong(field, "0 layers", "at least 1 layer");
        }
        let tokens = matches!(self.input, Input::Tokens { .. });
        let value = Value { shape, tokens };
        Some(self.list(field, value, layers, 1)?.shape)
    }

    fn list(&mut self, field: &str, mut x: Value, layers: &[Layer], depth: usize) -> Option<Value> {
        if depth > DEEPEST {
            let expected = format!("layers inside layers {DEEPEST} deep at most");
            return self.wrong(field, &format!("{depth} deep"), &expected);
        }
        for (index, layer) in layers.iter().enumerate() {
            let field = format!("{field}[{index}]");
            self.layers += 1;
            if self.layers > MOST_LAYERS {
                return self.wrong(&field, "one layer too many", "at most 1024 layers");
            }
            let shape = self.layer(&field, &x, layer, depth)?;
            let numbers = shape
                .iter()
                .fold(1_u64, |all, &side| all.saturating_mul(side));
            if numbers == 0 || more_than_fit(numbers) {
                let value = format!("{} that makes {shape:?}", layer.kind());
                return self.wrong(&field, &value, "1 to 2147483648 numbers for each example");
            }
            if more_than_fit(self.parameters) {
                let value = format!("{} parameters up to here", self.parameters);
                return self.wrong(&field, &value, "at most 2147483648 parameters");
            }
            let tokens = false;
            x = Value { shape, tokens };
        }
        Some(x)
    }

    fn layer(&mut self, field: &str, x: &Value, layer: &Layer, depth: usize) -> Option<Vec<u64>> {
        let at = |name: &str| format!("{field}.{name}");
        let last = x.shape.last().copied().unwrap_or(1);
        match layer {
            Layer::Conv { .. } => self.conv(field, x, layer),
            Layer::ConvPool { channels } => {
                let [height, width, channels_in] = self.image(field, x, layer)?;
                let channels = self.size(&at("channels"), *channels)?;
                if height < 2 || width < 2 {
                    let value = format!("conv_pool of {height}×{width}");
                    return self.wrong(field, &value, "an image of at least 2×2, which it halves");
                }
                self.weigh(&[9, channels_in, channels], channels);
                Some(vec![height / 2, width / 2, channels])
            }
            Layer::Dense { width, .. } => {
                let width = self.size(&at("width"), *width)?;
                self.weigh(&[x.shape.iter().product(), width], width);
                Some(vec![width])
            }
            Layer::MaxPool {
                kernel,
                stride,
                padding,
            }
            | Layer::AveragePool {
                kernel,
                stride,
                padding,
            } => {
                let [height, width, channels] = self.image(field, x, layer)?;
                for (side, pad) in kernel.0.into_iter().zip(padding.0) {
                    if pad > side / 2 {
                        let expected = format!("at most half of the kernel ({kernel})");
                        return self.wrong(&at("padding"), &padding.to_string(), &expected);
                    }
                }
                let taps = u64::from(kernel.0[0]) * u64::from(kernel.0[1]);
                if matches!(layer, Layer::MaxPool { .. }) && taps > 256 {
                    let value = kernel.to_string();
                    return self.wrong(&at("kernel"), &value, "at most 256 positions");
                }
                let stride = stride.unwrap_or(*kernel);
                let [height, width] =
                    self.windows(field, [height, width], [*kernel, stride, *padding])?;
                Some(vec![height, width, channels])
            }
            Layer::GlobalAveragePool {} => {
                let [.., channels] = self.image(field, x, layer)?;
                Some(vec![channels])
            }
            Layer::BatchNorm { .. } => {
                self.weigh(&[4, last], 0);
                Some(x.shape.clone())
            }
            Layer::LayerNorm {} => {
                self.weigh(&[2, last], 0);
                Some(x.shape.clone())
            }
            Layer::Activation { .. } => Some(x.shape.clone()),
            Layer::Dropout { share } => {
                if !(0.0..1.0).contains(share) {
                    return self.wrong(&at("share"), &share.to_string(), "0 to below 1");
                }
                Some(x.shape.clone())
            }
            Layer::Upsample { factor } => {
                let [height, width, channels] = self.image(field, x, layer)?;
                let factor = self.size(&at("factor"), *factor)?;
                Some(vec![height * factor, width * factor, channels])
            }
            Layer::Embedding { width } => {
                let (true, Input::Tokens { length, vocabulary }) = (x.tokens, self.input) else {
                    let value = format!("embedding of {:?}", x.shape);
                    return self.wrong(field, &value, "the tokens of a data set, which come first");
                };
                let width = self.size(&at("width"), *width)?;
                self.weigh(&[u64::from(vocabulary), width], 0);
                Some(vec![u64::from(length), width])
            }
            Layer::Positions {} => {
                let [positions, features] = self.sequence(field, x, layer)?;
                self.weigh(&[positions, features], 0);
                Some(x.shape.clone())
            }
            Layer::Project { width, bias } => {
                let width = self.size(&at("width"), *width)?;
                self.weigh(&[last, width], if *bias { width } else { 0 });
                let mut shape = x.shape.clone();
                *shape.last_mut().expect("a value has a dimension") = width;
                Some(shape)
            }
            Layer::Attention { heads } => {
                let [_, features] = self.sequence(field, x, layer)?;
                if *heads == 0 || !features.is_multiple_of(u64::from(*heads)) {
                    let expected = format!("a divisor of the {features} features");
                    return self.wrong(&at("heads"), &heads.to_string(), &expected);
                }
                self.weigh(&[4, features, features], 4 * features);
                Some(x.shape.clone())
            }
            Layer::Lstm { hidden } | Layer::Gru { hidden } => {
                let [positions, features] = self.sequence(field, x, layer)?;
                let hidden = self.size(&at("hidden"), *hidden)?;
                let gates = if matches!(layer, Layer::Lstm { .. }) {
                    4
                } else {
                    3
                };
                let biases = if gates == 4 { 4 } else { 6 };
                self.weigh(&[gates, hidden, features + hidden], biases * hidden);
                Some(vec![positions, hidden])
            }
            Layer::Flatten {} => Some(vec![x.shape.iter().product()]),
            Layer::Reshape { shape } => {
                let made: Vec<u64> = shape.iter().copied().map(u64::from).collect();
                let numbers: u64 = x.shape.iter().product();
                let count = made
                    .iter()
                    .fold(1_u64, |all, &side| all.saturating_mul(side));
                if made.is_empty() || made.len() > 4 || count != numbers {
                    let expected = format!("1 to 4 sides whose product is {numbers}");
                    return self.wrong(&at("shape"), &format!("{shape:?}"), &expected);
                }
                Some(made)
            }
            Layer::Residual {
                layers, shortcut, ..
            } => {
                let around = self.list(&at("shortcut"), x.clone(), shortcut, depth + 1)?;
                let through = self.list(&at("layers"), x.clone(), layers, depth + 1)?;
                if around.shape != through.shape {
                    let value = format!("{:?} + {:?}", through.shape, around.shape);
                    let expected = "two equal shapes; a shortcut changes the input's";
                    return self.wrong(field, &value, expected);
                }
                Some(through.shape)
            }
            Layer::Concat { branches } => self.concat(field, x, branches, depth),
        }
    }

    fn conv(&mut self, field: &str, x: &Value, layer: &Layer) -> Option<Vec<u64>> {
        let Layer::Conv {
            channels,
            kernel,
            stride,
            padding,
            groups,
            bias,
            ..
        } = layer
        else {
            return None;
        };
        let [height, width, channels_in] = self.image(field, x, layer)?;
        let channels = self.size(&format!("{field}.channels"), *channels)?;
        let groups = u64::from(*groups);
        if groups == 0 || !channels_in.is_multiple_of(groups) || !channels.is_multiple_of(groups) {
            let expected = format!(
                "a divisor of both the {channels_in} input and the {channels} output channels"
            );
            return self.wrong(&format!("{field}.groups"), &groups.to_string(), &expected);
        }
        let padding = padding.unwrap_or(kernel.half());
        let [height, width] = self.windows(field, [height, width], [*kernel, *stride, padding])?;
        let [kernel_height, kernel_width] = kernel.0.map(u64::from);
        let weights = [kernel_height, kernel_width, channels_in / groups, channels];
        self.weigh(&weights, if *bias { channels } else { 0 });
        Some(vec![height, width, channels])
    }

    fn concat(
        &mut self,
        field: &str,
        x: &Value,
        branches: &[Vec<Layer>],
        depth: usize,
    ) -> Option<Vec<u64>> {
        let mut made: Option<Vec<u64>> = None;
        for (index, branch) in branches.iter().enumerate() {
            let at = format!("{field}.branches[{index}]");
            let end = self.list(&at, x.clone(), branch, depth + 1)?.shape;
            made = Some(match made {
                None => end,
                Some(mut all) => {
                    if all[..all.len() - 1] != end[..end.len() - 1] {
                        let expected = format!("{all:?}, but for the last side");
                        return self.wrong(&at, &format!("{end:?}"), &expected);
                    }
                    *all.last_mut().expect("a value has a dimension") +=
                        end.last().copied().unwrap_or(0);
                    all
                }
            });
        }
        if made.is_none() {
            return self.wrong(&format!("{field}.branches"), "0 branches", "at least 1");
        }
        made
    }

    /// Returns the sides of an image after a sliding window.
    fn windows(
        &mut self,
        field: &str,
        image: [u64; 2],
        [kernel, stride, padding]: [Sides; 3],
    ) -> Option<[u64; 2]> {
        let mut made = [0; 2];
        for side in 0..2 {
            let [k, s, p] = [kernel, stride, padding].map(|sides| u64::from(sides.0[side]));
            for (name, sides, wrong, most) in [
                ("kernel", kernel, k == 0 || k > 1024, 1024),
                ("stride", stride, s == 0 || s > 1024, 1024),
            ] {
                if wrong {
                    let field = format!("{field}.{name}");
                    return self.wrong(&field, &sides.to_string(), &format!("1 to {most}"));
                }
            }
            let room = image[side].saturating_add(2 * p);
            if k > room {
                let [height, width] = image;
                let expected = format!("what fits into {height}×{width} with padding {padding}");
                return self.wrong(&format!("{field}.kernel"), &kernel.to_string(), &expected);
            }
            made[side] = (room - k) / s + 1;
        }
        Some(made)
    }

    fn image(&mut self, field: &str, x: &Value, layer: &Layer) -> Option<[u64; 3]> {
        let image = <[u64; 3]>::try_from(x.shape.as_slice()).ok();
        image.or_else(|| {
            let value = format!("{} of {:?}", layer.kind(), x.shape);
            self.wrong(field, &value, "an image: height, width and channels")
        })
    }

    fn sequence(&mut self, field: &str, x: &Value, layer: &Layer) -> Option<[u64; 2]> {
        let sequence = <[u64; 2]>::try_from(x.shape.as_slice()).ok();
        sequence.or_else(|| {
            let value = format!("{} of {:?}", layer.kind(), x.shape);
            self.wrong(field, &value, "a sequence: positions and features")
        })
    }

    fn size(&mut self, field: &str, size: u32) -> Option<u64> {
        if (1..=1 << 20).contains(&size) {
            return Some(u64::from(size));
        }
        self.wrong(field, &size.to_string(), "1 to 1048576")
    }

    fn weigh(&mut self, weights: &[u64], biases: u64) {
        let weights = weights
            .iter()
            .fold(1_u64, |all, &side| all.saturating_mul(side));
        self.parameters = self
            .parameters
            .saturating_add(weights)
            .saturating_add(biases);
    }

    fn wrong<T>(&mut self, field: &str, value: &str, expected: &str) -> Option<T> {
        self.errors.check(field, &value, false, expected);
        None
    }
}
