//! Operations on images: height × width × channels.

use super::{NetworkBuilder, ValueId};
use crate::layer::activate::ActivationLayer;
use crate::layer::average_pool::AveragePool;
use crate::layer::batch_norm::BatchNorm;
use crate::layer::concat::Concat;
use crate::layer::max_pool::{MAX_TAPS, MaxPool};
use crate::layer::reshape::Reshape;
use crate::layer::residual::Residual;
use crate::layer::upsample::Upsample;
use crate::layer::window::ImageWindows;
use crate::layer::{ActivationFunction, Op, conv};
use crate::model::block::{ParameterInit, ParameterRole};
use crate::model::error::{BuildError, product};

/// Sliding windows over an image. Arrays hold height, then width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    /// Rows (columns) of padding on each side.
    pub padding: [usize; 2],
}

/// Parameters of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvOptions {
    /// Number of output channels.
    pub channels: usize,
    pub windows: SlidingWindow,
    /// Number of groups. Each group of output channels reads one group of input channels. With as
    /// many groups as channels the convolution is depthwise.
    pub groups: usize,
    pub bias: bool,
    pub relu: bool,
}

impl SlidingWindow {
    /// Square windows at every position, without padding.
    #[must_use]
    pub fn square(side: usize) -> Self {
        Self::oblong(side, side)
    }

    /// Windows of this height and width at every position, without padding.
    #[must_use]
    pub fn oblong(height: usize, width: usize) -> Self {
        Self {
            kernel: [height, width],
            stride: [1, 1],
            padding: [0, 0],
        }
    }

    #[must_use]
    pub fn stride(self, stride: usize) -> Self {
        let stride = [stride, stride];
        Self { stride, ..self }
    }

    #[must_use]
    pub fn padding(self, padding: usize) -> Self {
        let padding = [padding, padding];
        Self { padding, ..self }
    }

    /// Sets the padding that preserves the sides of an image at stride 1; for kernels with odd
    /// sides.
    #[must_use]
    pub fn same(self) -> Self {
        let padding = self.kernel.map(|side| side / 2);
        Self { padding, ..self }
    }
}

impl ConvOptions {
    /// Convolution with bias, without ReLU, in one group.
    #[must_use]
    pub fn new(channels: usize, windows: SlidingWindow) -> Self {
        Self {
            channels,
            windows,
            groups: 1,
            bias: true,
            relu: false,
        }
    }

    #[must_use]
    pub fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// Removes the bias; for use before a batch normalisation, which would cancel it.
    #[must_use]
    pub fn without_bias(self) -> Self {
        let bias = false;
        Self { bias, ..self }
    }

    #[must_use]
    pub fn relu(self) -> Self {
        let relu = true;
        Self { relu, ..self }
    }
}

impl NetworkBuilder {
    /// Adds a convolution. Weights are initialised after He et al., because a ReLU usually follows,
    /// in the same operation or a later one.
    ///
    /// # Errors
    /// If `x` is not an image or is smaller than the kernel, if the groups do not divide the
    /// channels, or if the layer would be too large.
    pub fn conv(
        &mut self,
        name: &str,
        x: ValueId,
        conv: ConvOptions,
    ) -> Result<ValueId, BuildError> {
        let [height, width, channels_in] = self.image(name, x)?;
        let (groups, channels_out) = (conv.groups, conv.channels);
        let window = window(name, [height, width], conv.windows)?;
        at_least_one(name, "output channels", &[channels_out])?;
        at_least_one(name, "groups", &[groups])?;
        if !channels_in.is_multiple_of(groups) || !channels_out.is_multiple_of(groups) {
            return Err(BuildError::Groups {
                layer: name.to_owned(),
                groups,
                channels_in,
                channels_out,
            });
        }
        let [kernel_height, kernel_width] = window.kernel;
        let shape = [
            kernel_height,
            kernel_width,
            channels_in / groups,
            channels_out,
        ];
        let inputs = product(&format!("{name}.weight"), &shape[..3])?;
        let weight = self.block(
            name,
            "weight",
            &shape,
            ParameterRole::Weight,
            ParameterInit::he(inputs),
        )?;
        let bias = if conv.bias {
            self.bias(name, channels_out)?
        } else {
            weight.end..weight.end
        };
        let op = conv::Conv2d {
            window,
            channels_in,
            channels_out,
            groups,
            relu: conv.relu,
            weight,
            bias,
        };
        let [height, width] = window.output();
        let shape = vec![height, width, channels_out];
        self.push(name, Op::Conv(op), &[x], shape)
    }

    /// Adds max pooling; positions in the padding never win.
    ///
    /// # Errors
    /// If `x` is not an image or is smaller than the window, the window has more than 256
    /// positions, or the padding is more than half of it.
    pub fn max_pool(
        &mut self,
        name: &str,
        x: ValueId,
        windows: SlidingWindow,
    ) -> Result<ValueId, BuildError> {
        let (window, channels) = self.pool(name, x, windows)?;
        if window.taps() > MAX_TAPS {
            let layer = name.to_owned();
            let [height, width] = window.kernel;
            return Err(BuildError::LargeWindow {
                layer,
                height,
                width,
            });
        }
        let [height, width] = window.output();
        let op = Op::MaxPool(MaxPool { window, channels });
        self.push(name, op, &[x], vec![height, width, channels])
    }

    /// Adds average pooling; positions in the padding do not count.
    ///
    /// # Errors
    /// If `x` is not an image or is smaller than the window, or the padding is more than half of
    /// it.
    pub fn average_pool(
        &mut self,
        name: &str,
        x: ValueId,
        windows: SlidingWindow,
    ) -> Result<ValueId, BuildError> {
        let (window, channels) = self.pool(name, x, windows)?;
        let [height, width] = window.output();
        let op = Op::AveragePool(AveragePool { window, channels });
        self.push(name, op, &[x], vec![height, width, channels])
    }

    /// Adds the mean over all positions; the output has one element per channel.
    ///
    /// # Errors
    /// If `x` is not an image.
    pub fn global_average_pool(&mut self, name: &str, x: ValueId) -> Result<ValueId, BuildError> {
        let [height, width, _] = self.image(name, x)?;
        let (window, channels) = self.pool(name, x, SlidingWindow::oblong(height, width))?;
        let op = Op::AveragePool(AveragePool { window, channels });
        self.push(name, op, &[x], vec![channels])
    }

    /// Adds batch normalisation over examples and all dimensions but the last, followed by an
    /// optional ReLU. The statistics cover the examples that a worker processes in one pass.
    ///
    /// # Errors
    /// If the network would be too large.
    pub fn batch_norm(
        &mut self,
        name: &str,
        x: ValueId,
        relu: bool,
    ) -> Result<ValueId, BuildError> {
        let shape = self.shape(x).to_vec();
        let channels = *shape.last().expect("a value has a dimension");
        let mut block = |what, role, value| {
            self.block(
                name,
                what,
                &[channels],
                role,
                ParameterInit::Constant(value),
            )
        };
        let op = BatchNorm {
            channels,
            relu,
            scale: block("scale", ParameterRole::Bias, 1.0)?,
            shift: block("shift", ParameterRole::Bias, 0.0)?,
            mean: block("mean", ParameterRole::Statistic, 0.0)?,
            variance: block("variance", ParameterRole::Statistic, 1.0)?,
        };
        self.push(name, Op::BatchNorm(op), &[x], shape)
    }

    /// Adds `a + b`, followed by an optional ReLU.
    ///
    /// # Errors
    /// If their shapes differ.
    pub fn add(
        &mut self,
        name: &str,
        a: ValueId,
        b: ValueId,
        relu: bool,
    ) -> Result<ValueId, BuildError> {
        let shape = self.shape(a).to_vec();
        if shape != self.shape(b) {
            return Err(self.different(name, a, b));
        }
        let numbers = self.numbers(a);
        self.push(
            name,
            Op::Residual(Residual { numbers, relu }),
            &[a, b],
            shape,
        )
    }

    /// Returns the dimensions of a value but the last.
    fn row_shape(&self, value: ValueId) -> Option<&[usize]> {
        self.shape(value).split_last().map(|(_, rows)| rows)
    }

    /// Adds a concatenation along the last dimension.
    ///
    /// # Errors
    /// If there are no parts, or their other dimensions differ.
    pub fn concat(&mut self, name: &str, parts: &[ValueId]) -> Result<ValueId, BuildError> {
        let Some((&first, others)) = parts.split_first() else {
            let layer = name.to_owned();
            let what = "branches";
            return Err(BuildError::Empty { layer, what });
        };
        let rows = self.row_shape(first);
        if let Some(&other) = others.iter().find(|&&other| self.row_shape(other) != rows) {
            return Err(self.different(name, first, other));
        }
        let columns: Vec<usize> = parts
            .iter()
            .map(|&part| *self.shape(part).last().expect("a dimension"))
            .collect();
        let mut shape = self.shape(first).to_vec();
        *shape.last_mut().expect("a dimension") = columns.iter().sum();
        self.push(name, Op::Concat(Concat { parts: columns }), parts, shape)
    }

    /// Adds an activation function as a separate operation; [`Self::dense`], [`Self::conv`],
    /// [`Self::batch_norm`] and [`Self::add`] include an optional ReLU.
    ///
    /// # Errors
    /// If the network would be too large.
    pub fn activate(
        &mut self,
        name: &str,
        x: ValueId,
        function: ActivationFunction,
    ) -> Result<ValueId, BuildError> {
        let (shape, numbers) = (self.shape(x).to_vec(), self.numbers(x));
        let op = Op::Activate(ActivationLayer { function, numbers });
        self.push(name, op, &[x], shape)
    }

    /// Adds an upsampling that repeats each position of an image `factor` times in both directions.
    ///
    /// # Errors
    /// If `x` is not an image, `factor` is 0, or the image would be too large.
    pub fn upsample(
        &mut self,
        name: &str,
        x: ValueId,
        factor: usize,
    ) -> Result<ValueId, BuildError> {
        let [height, width, channels] = self.image(name, x)?;
        at_least_one(name, "as its factor", &[factor])?;
        let op = Upsample {
            width,
            channels,
            factor,
        };
        let sides = [height, width].map(|side| side.saturating_mul(factor));
        let shape = vec![sides[0], sides[1], channels];
        self.push(name, Op::Upsample(op), &[x], shape)
    }

    /// Adds a reshape; the elements keep their order.
    ///
    /// # Errors
    /// If the new shape has another number of elements.
    pub fn reshape(
        &mut self,
        name: &str,
        x: ValueId,
        shape: &[usize],
    ) -> Result<ValueId, BuildError> {
        if product(&format!("the output of {name}"), shape)? != self.numbers(x) || shape.is_empty()
        {
            return Err(BuildError::Different {
                layer: name.to_owned(),
                one: format!("{:?}", self.shape(x)),
                other: format!("{shape:?}"),
            });
        }
        self.push(name, Op::Reshape(Reshape), &[x], shape.to_vec())
    }

    fn pool(
        &self,
        name: &str,
        x: ValueId,
        windows: SlidingWindow,
    ) -> Result<(ImageWindows, usize), BuildError> {
        let [height, width, channels] = self.image(name, x)?;
        let window = window(name, [height, width], windows)?;
        if (0..2).any(|side| 2 * window.padding[side] > window.kernel[side]) {
            let layer = name.to_owned();
            return Err(BuildError::Padding { layer });
        }
        Ok((window, channels))
    }

    fn different(&self, layer: &str, one: ValueId, other: ValueId) -> BuildError {
        BuildError::Different {
            layer: layer.to_owned(),
            one: format!("{:?}", self.shape(one)),
            other: format!("{:?}", self.shape(other)),
        }
    }
}

/// Returns the windows on an image, of which there must be at least one.
fn window(
    layer: &str,
    image: [usize; 2],
    windows: SlidingWindow,
) -> Result<ImageWindows, BuildError> {
    let SlidingWindow {
        kernel,
        stride,
        padding,
    } = windows;
    at_least_one(layer, "rows or columns in its kernel", &kernel)?;
    at_least_one(layer, "as its stride", &stride)?;
    product(&format!("the windows of {layer}"), &kernel)?;
    product(&format!("the padding of {layer}"), &padding)?;
    if (0..2).any(|side| kernel[side] > image[side].saturating_add(2 * padding[side])) {
        return Err(BuildError::Kernel {
            layer: layer.to_owned(),
            kernel: format!("{}×{}", kernel[0], kernel[1]),
            image: format!("{}×{}", image[0], image[1]),
        });
    }
    Ok(ImageWindows {
        image,
        kernel,
        stride,
        padding,
    })
}

fn at_least_one(layer: &str, what: &'static str, numbers: &[usize]) -> Result<(), BuildError> {
    if numbers.contains(&0) {
        Err(BuildError::Empty {
            layer: layer.to_owned(),
            what,
        })
    } else {
        Ok(())
    }
}
