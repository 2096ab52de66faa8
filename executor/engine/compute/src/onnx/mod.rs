//! Export of a network as an ONNX graph without parameter values. Every parameter has the same name
//! as in a checkpoint's safetensors files, so that an export only appends the values.
//!
//! Values are flat, examples × elements, as in the engine; each operation reshapes them. Nodes
//! convert images and weights from NHWC and HWIO, and runtimes fold these nodes away, so that the
//! bytes of a parameter are the checkpoint's. Operations that do nothing in evaluation (dropout)
//! are omitted.
//!
//! This module must stay independent of files, jobs and parameter values.

mod graph;
mod image;
mod proto;
mod sequence;

use crate::layer::{ActivationFunction, Op};
use crate::model::Network;
use graph::OnnxGraph;
use proto::AttributeProto;

/// Returns the bytes of a `ModelProto` without parameters. It has one input `input` (examples ×
/// elements, tokens as floats too) and one output `output`, before the softmax or sigmoid of the
/// loss.
///
/// Further `ModelProto.graph.initializer` fields can be appended to these bytes, because repeated
/// fields of a message in several pieces are concatenated.
#[must_use]
pub fn graph(network: &Network) -> Vec<u8> {
    let mut graph = OnnxGraph::new(network.blocks());
    let mut values = vec!["input".to_owned()];
    for (node, &len) in network.nodes.iter().zip(&network.lens[1..]) {
        let inputs: Vec<(&str, usize)> = node
            .inputs
            .iter()
            .map(|&value| (values[value].as_str(), network.lens[value]))
            .collect();
        let output = operation(&mut graph, &node.op, &inputs);
        values.push(graph.reshape(&output, &[-1, len as i64]));
    }
    let last = values.last().expect("a network has an input");
    graph.named("Identity", &[last], "output");
    graph.model(network.input().len(), network.outputs())
}

/// Adds the nodes of an operation and returns the name of its output, in any shape.
fn operation(graph: &mut OnnxGraph<'_>, op: &Op, inputs: &[(&str, usize)]) -> String {
    let (x, len) = inputs[0];
    match op {
        Op::Activate(op) => activate(graph, x, op.function),
        Op::AveragePool(op) => image::pool(graph, x, &op.window, op.channels, "AveragePool"),
        Op::MaxPool(op) => image::pool(graph, x, &op.window, op.channels, "MaxPool"),
        Op::BatchNorm(op) => {
            let channels = [op.channels as i64];
            let rows = graph.reshape(x, &[-1, channels[0]]);
            let blocks = [&op.scale, &op.shift, &op.mean, &op.variance];
            let [scale, shift, mean, variance] =
                blocks.map(|block| graph.parameter(block, &channels));
            let inputs = [&rows, &scale, &shift, &mean, &variance].map(String::as_str);
            let epsilon = [AttributeProto::float("epsilon", 1e-5)];
            let out = graph.node("BatchNormalization", &inputs, &epsilon);
            relu(graph, out, op.relu)
        }
        Op::Concat(op) => {
            let parts: Vec<String> = inputs
                .iter()
                .zip(&op.parts)
                .map(|(&(x, len), &columns)| {
                    graph.reshape(x, &[-1, (len / columns) as i64, columns as i64])
                })
                .collect();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            graph.node("Concat", &parts, &[AttributeProto::int("axis", 2)])
        }
        Op::Conv(op) => image::conv(graph, x, op),
        Op::ConvPool(op) => image::conv_pool(graph, x, op),
        Op::Upsample(op) => image::upsample(graph, x, len, op),
        Op::Reshape(_) | Op::Dropout(_) => x.to_owned(),
        Op::Residual(op) => {
            let out = graph.node("Add", &[x, inputs[1].0], &[]);
            relu(graph, out, op.relu)
        }
        Op::Dense(op) => {
            let rows = graph.reshape(x, &[-1, op.inputs as i64]);
            let (columns, turned) = (op.outputs as i64, i64::from(op.tied));
            let shape = if op.tied {
                [columns, op.inputs as i64]
            } else {
                [op.inputs as i64, columns]
            };
            let mut operands = vec![rows, graph.parameter(&op.weight, &shape)];
            if !op.bias.is_empty() {
                operands.push(graph.parameter(&op.bias, &[columns]));
            }
            let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
            let out = graph.node("Gemm", &operands, &[AttributeProto::int("transB", turned)]);
            relu(graph, out, op.relu)
        }
        Op::Embedding(op) => {
            let table = graph.parameter(&op.table, &[op.vocabulary as i64, op.width as i64]);
            let tokens = graph.node("Cast", &[x], &[AttributeProto::int("to", proto::INT64)]);
            graph.node("Gather", &[&table, &tokens], &[])
        }
        Op::Positions(op) => {
            let table = graph.parameter(&op.table, &[1, op.table.len() as i64]);
            graph.node("Add", &[x, &table], &[])
        }
        Op::LayerNorm(op) => {
            let width = op.width as i64;
            let rows = graph.reshape(x, &[-1, op.rows as i64, width]);
            let [scale, shift] =
                [&op.scale, &op.shift].map(|block| graph.parameter(block, &[width]));
            let attributes = [
                AttributeProto::int("axis", -1),
                AttributeProto::float("epsilon", 1e-5),
            ];
            graph.node("LayerNormalization", &[&rows, &scale, &shift], &attributes)
        }
        Op::Attention(op) => sequence::attention(graph, x, op),
        Op::Lstm(op) => sequence::lstm(graph, x, op),
        Op::Gru(op) => sequence::gru(graph, x, op),
    }
}

fn activate(graph: &mut OnnxGraph<'_>, x: &str, function: ActivationFunction) -> String {
    match function {
        ActivationFunction::Relu => graph.node("Relu", &[x], &[]),
        ActivationFunction::LeakyRelu { slope } => {
            graph.node("LeakyRelu", &[x], &[AttributeProto::float("alpha", slope)])
        }
        ActivationFunction::Gelu => graph.node("Gelu", &[x], &[]),
        ActivationFunction::GeluTanh => {
            graph.node("Gelu", &[x], &[AttributeProto::text("approximate", "tanh")])
        }
        ActivationFunction::Sigmoid => graph.node("Sigmoid", &[x], &[]),
        ActivationFunction::Tanh => graph.node("Tanh", &[x], &[]),
        ActivationFunction::Silu => {
            let gate = graph.node("Sigmoid", &[x], &[]);
            graph.node("Mul", &[x, &gate], &[])
        }
    }
}

fn relu(graph: &mut OnnxGraph<'_>, x: String, wanted: bool) -> String {
    if wanted {
        graph.node("Relu", &[&x], &[])
    } else {
        x
    }
}
