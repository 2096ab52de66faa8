//! Operations on sequences.

use super::graph::OnnxGraph;
use super::proto::AttributeProto;
use crate::layer::attention::Attention;
use crate::layer::gru::Gru;
use crate::layer::lstm::Lstm;
use std::ops::Range;

/// Score that softmax turns into 0.
const NEVER: f32 = -1e30;

pub fn attention(graph: &mut OnnxGraph<'_>, x: &str, op: &Attention) -> String {
    let [positions, heads, head] = [op.positions, op.heads, op.head].map(|side| side as i64);
    let x = graph.reshape(x, &[-1, positions, 3, heads, head]);
    let parts = graph.split(&x, 2, 3);
    let orders = [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]];
    let [queries, keys, values] = [0, 1, 2].map(|part| {
        let by_position = graph.reshape(&parts[part], &[-1, positions, heads, head]);
        graph.transpose(&by_position, &orders[part])
    });
    let scores = graph.node("MatMul", &[&queries, &keys], &[]);
    let scale = graph.floats(&[1.0 / (op.head as f32).sqrt()]);
    let scores = graph.node("Mul", &[&scores, &scale], &[]);
    // Later positions are above the diagonal.
    let never = graph.floats(&[NEVER]);
    let square = graph.integers(&[positions, positions]);
    let never = graph.node("Expand", &[&never, &square], &[]);
    let first = graph.integers(&[1]);
    let first = graph.reshape(&first, &[]);
    let mask = graph.node(
        "Trilu",
        &[&never, &first],
        &[AttributeProto::int("upper", 1)],
    );
    let scores = graph.node("Add", &[&scores, &mask], &[]);
    let weights = graph.node("Softmax", &[&scores], &[AttributeProto::int("axis", -1)]);
    let out = graph.node("MatMul", &[&weights, &values], &[]);
    graph.transpose(&out, &[0, 2, 1, 3])
}

/// The engine has gates i, f, g, o and one bias; ONNX has i, o, f, g and two.
pub fn lstm(graph: &mut OnnxGraph<'_>, x: &str, op: &Lstm) -> String {
    let order = [0, 3, 1, 2];
    let input = weight(graph, &op.input_weight, op.inputs, op.hidden, &order);
    let recurrent = weight(graph, &op.recurrent_weight, op.hidden, op.hidden, &order);
    let bias = bias(graph, &op.bias, op.hidden, &order);
    let zeros = graph.node("Sub", &[&bias, &bias], &[]);
    let biases = both(graph, &bias, &zeros);
    let x = steps(graph, x, op.positions, op.inputs);
    let hidden = [AttributeProto::int("hidden_size", op.hidden as i64)];
    let out = graph.node("LSTM", &[&x, &input, &recurrent, &biases], &hidden);
    examples(graph, &out, op.positions, op.hidden)
}

/// The engine has gates r, z, n; ONNX has z, r, n. The reset gate follows the product in both.
pub fn gru(graph: &mut OnnxGraph<'_>, x: &str, op: &Gru) -> String {
    let order = [1, 0, 2];
    let input = weight(graph, &op.input_weight, op.inputs, op.hidden, &order);
    let recurrent = weight(graph, &op.recurrent_weight, op.hidden, op.hidden, &order);
    let first = bias(graph, &op.bias, op.hidden, &order);
    let second = bias(graph, &op.recurrent_bias, op.hidden, &order);
    let biases = both(graph, &first, &second);
    let x = steps(graph, x, op.positions, op.inputs);
    let attributes = [
        AttributeProto::int("hidden_size", op.hidden as i64),
        AttributeProto::int("linear_before_reset", 1),
    ];
    let out = graph.node("GRU", &[&x, &input, &recurrent, &biases], &attributes);
    examples(graph, &out, op.positions, op.hidden)
}

/// Converts inputs × gates · hidden to 1 × gates · hidden × inputs, with the gates in another
/// order.
fn weight(
    graph: &mut OnnxGraph<'_>,
    range: &Range<usize>,
    inputs: usize,
    hidden: usize,
    order: &[usize],
) -> String {
    let rows = (order.len() * hidden) as i64;
    let block = graph.parameter(range, &[inputs as i64, rows]);
    let turned = graph.transpose(&block, &[1, 0]);
    let gates = ordered(graph, &turned, order);
    graph.reshape(&gates, &[1, rows, inputs as i64])
}

fn bias(graph: &mut OnnxGraph<'_>, range: &Range<usize>, hidden: usize, order: &[usize]) -> String {
    let rows = (order.len() * hidden) as i64;
    let block = graph.parameter(range, &[rows]);
    let gates = ordered(graph, &block, order);
    graph.reshape(&gates, &[1, rows])
}

fn ordered(graph: &mut OnnxGraph<'_>, x: &str, order: &[usize]) -> String {
    let gates = graph.split(x, 0, order.len());
    let gates: Vec<&str> = order.iter().map(|&gate| gates[gate].as_str()).collect();
    graph.node("Concat", &gates, &[AttributeProto::int("axis", 0)])
}

fn both(graph: &mut OnnxGraph<'_>, first: &str, second: &str) -> String {
    graph.node(
        "Concat",
        &[first, second],
        &[AttributeProto::int("axis", 1)],
    )
}

/// Converts to positions × examples × inputs, the layout of recurrent operators.
fn steps(graph: &mut OnnxGraph<'_>, x: &str, positions: usize, inputs: usize) -> String {
    let x = graph.reshape(x, &[-1, positions as i64, inputs as i64]);
    graph.transpose(&x, &[1, 0, 2])
}

/// Converts from positions × 1 × examples × hidden.
fn examples(graph: &mut OnnxGraph<'_>, x: &str, positions: usize, hidden: usize) -> String {
    let x = graph.reshape(x, &[positions as i64, -1, hidden as i64]);
    graph.transpose(&x, &[1, 0, 2])
}
