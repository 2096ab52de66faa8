//! Operations on images. ONNX uses NCHW with weights in OIHW; the engine uses NHWC with HWIO.

use super::graph::OnnxGraph;
use super::proto::AttributeProto;
use super::relu;
use crate::layer::ConvPool;
use crate::layer::conv::Conv2d;
use crate::layer::upsample::Upsample;
use crate::layer::window::ImageWindows;

const TO_NCHW: [i64; 4] = [0, 3, 1, 2];
const TO_NHWC: [i64; 4] = [0, 2, 3, 1];
const HWIO_TO_OIHW: [i64; 4] = [3, 2, 0, 1];

pub fn pool(
    graph: &mut OnnxGraph<'_>,
    x: &str,
    window: &ImageWindows,
    channels: usize,
    kind: &str,
) -> String {
    let x = planes(graph, x, window.image, channels);
    let out = graph.node(kind, &[&x], &window_attributes(window));
    graph.transpose(&out, &TO_NHWC)
}

pub fn conv(graph: &mut OnnxGraph<'_>, x: &str, op: &Conv2d) -> String {
    let x = planes(graph, x, op.window.image, op.channels_in);
    let inputs = op.channels_in / op.groups;
    let weight = [
        op.window.kernel[0],
        op.window.kernel[1],
        inputs,
        op.channels_out,
    ];
    let weight = graph.parameter(&op.weight, &weight.map(|side| side as i64));
    let mut operands = vec![x, graph.transpose(&weight, &HWIO_TO_OIHW)];
    if !op.bias.is_empty() {
        operands.push(graph.parameter(&op.bias, &[op.channels_out as i64]));
    }
    let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
    let mut attributes = window_attributes(&op.window).to_vec();
    attributes.push(AttributeProto::int("group", op.groups as i64));
    let out = graph.node("Conv", &operands, &attributes);
    let out = relu(graph, out, op.relu);
    graph.transpose(&out, &TO_NHWC)
}

pub fn conv_pool(graph: &mut OnnxGraph<'_>, x: &str, op: &ConvPool) -> String {
    let x = planes(graph, x, [op.height, op.width], op.channels_in);
    let weight = [3, 3, op.channels_in as i64, op.channels_out as i64];
    let weight = graph.parameter(&op.weight, &weight);
    let weight = graph.transpose(&weight, &HWIO_TO_OIHW);
    let bias = graph.parameter(&op.bias, &[op.channels_out as i64]);
    let around = [AttributeProto::ints("pads", &[1, 1, 1, 1])];
    let out = graph.node("Conv", &[&x, &weight, &bias], &around);
    let out = relu(graph, out, true);
    let halves = [
        AttributeProto::ints("kernel_shape", &[2, 2]),
        AttributeProto::ints("strides", &[2, 2]),
    ];
    let out = graph.node("MaxPool", &[&out], &halves);
    graph.transpose(&out, &TO_NHWC)
}

/// `len` is the number of input elements per example.
pub fn upsample(graph: &mut OnnxGraph<'_>, x: &str, len: usize, op: &Upsample) -> String {
    let height = len / (op.width * op.channels);
    let sides = [height, 1, op.width, 1, op.channels].map(|side| side as i64);
    let [height, one, width, other, channels] = sides;
    let x = graph.reshape(x, &[-1, height, one, width, other, channels]);
    let factor = op.factor as i64;
    let repeats = graph.integers(&[1, 1, factor, 1, factor, 1]);
    graph.node("Tile", &[&x, &repeats], &[])
}

fn planes(graph: &mut OnnxGraph<'_>, x: &str, image: [usize; 2], channels: usize) -> String {
    let [height, width] = image.map(|side| side as i64);
    let x = graph.reshape(x, &[-1, height, width, channels as i64]);
    graph.transpose(&x, &TO_NCHW)
}

fn window_attributes(window: &ImageWindows) -> [AttributeProto; 3] {
    let [kernel, stride, [rows, columns]] =
        [window.kernel, window.stride, window.padding].map(|sides| sides.map(|side| side as i64));
    [
        AttributeProto::ints("kernel_shape", &kernel),
        AttributeProto::ints("strides", &stride),
        AttributeProto::ints("pads", &[rows, columns, rows, columns]),
    ]
}
