//! Graph under construction: names of values, and parameters by their range in the arena.

use super::proto::{self, AttributeProto, ProtoMessage};
use crate::model::ParameterBlock;
use std::ops::Range;

/// Nodes and small constants added so far.
#[derive(Debug)]
pub struct OnnxGraph<'a> {
    blocks: &'a [ParameterBlock],
    message: ProtoMessage,
    count: usize,
}

impl<'a> OnnxGraph<'a> {
    pub fn new(blocks: &'a [ParameterBlock]) -> Self {
        Self {
            blocks,
            message: ProtoMessage::default().bytes(2, b"network"),
            count: 0,
        }
    }

    /// Adds a node with one output and returns the name of the output.
    pub fn node(&mut self, kind: &str, inputs: &[&str], attributes: &[AttributeProto]) -> String {
        let name = self.name();
        self.push(proto::node(kind, inputs, &[&name], attributes));
        name
    }

    /// Adds a node whose output has the name `output`.
    pub fn named(&mut self, kind: &str, inputs: &[&str], output: &str) {
        self.push(proto::node(kind, inputs, &[output], &[]));
    }

    /// Adds a node that splits its input into equal parts.
    pub fn split(&mut self, x: &str, axis: i64, parts: usize) -> Vec<String> {
        let names: Vec<String> = (0..parts).map(|_| self.name()).collect();
        let outputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let attributes = [
            AttributeProto::int("axis", axis),
            AttributeProto::int("num_outputs", parts as i64),
        ];
        self.push(proto::node("Split", &[x], &outputs, &attributes));
        names
    }

    pub fn reshape(&mut self, x: &str, shape: &[i64]) -> String {
        let shape = self.integers(shape);
        self.node("Reshape", &[x, &shape], &[])
    }

    pub fn transpose(&mut self, x: &str, order: &[i64]) -> String {
        self.node("Transpose", &[x], &[AttributeProto::ints("perm", order)])
    }

    /// Adds a constant.
    pub fn integers(&mut self, values: &[i64]) -> String {
        let name = self.name();
        let tensor = proto::integers(&name, values);
        self.initializer(&tensor);
        name
    }

    /// Adds a constant.
    pub fn floats(&mut self, values: &[f32]) -> String {
        let name = self.name();
        let tensor = proto::floats(&name, values);
        self.initializer(&tensor);
        name
    }

    /// Returns the name of the parameters at this range of the arena, in this shape.
    ///
    /// # Panics
    /// If no block has this range.
    pub fn parameter(&mut self, range: &Range<usize>, shape: &[i64]) -> String {
        let block = self
            .blocks
            .iter()
            .find(|block| block.range() == *range)
            .expect("an operation's parameters are blocks");
        let name = block.name.clone();
        let own = block.shape.iter().map(|&side| side as i64);
        if own.eq(shape.iter().copied()) {
            name
        } else {
            self.reshape(&name, shape)
        }
    }

    /// Returns the encoded model. `inputs` and `outputs` are the numbers of elements per example.
    pub fn model(self, inputs: usize, outputs: usize) -> Vec<u8> {
        let graph = self
            .message
            .message(11, &proto::value("input", inputs))
            .message(12, &proto::value("output", outputs));
        proto::model(&graph)
    }

    fn initializer(&mut self, tensor: &ProtoMessage) {
        self.message = std::mem::take(&mut self.message).message(5, tensor);
    }

    fn push(&mut self, node: ProtoMessage) {
        self.message = std::mem::take(&mut self.message).message(1, &node);
    }

    /// Returns a new name; no block's name begins with `%`.
    fn name(&mut self) -> String {
        self.count += 1;
        format!("%{}", self.count)
    }
}
