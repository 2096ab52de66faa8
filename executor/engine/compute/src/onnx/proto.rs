//! Messages of `onnx.proto3` that a graph needs, encoded by hand. A code generator would add a
//! compiler for a page of fields that have not changed since 2017.

/// `TensorProto.DataType`.
pub const FLOAT: i64 = 1;
pub const INT64: i64 = 7;

/// Version of the message format.
const IR_VERSION: u64 = 9;
/// Version of the operator set, the first with Gelu.
const OPSET: u64 = 20;

/// Message under construction.
#[derive(Debug, Clone, Default)]
pub struct ProtoMessage(Vec<u8>);

/// `AttributeProto`.
#[derive(Debug, Clone)]
pub struct AttributeProto(ProtoMessage);

impl ProtoMessage {
    /// Appends an integer field; negative values take ten bytes, as the format requires.
    #[must_use]
    pub fn int(mut self, field: u32, value: u64) -> Self {
        varint(&mut self.0, u64::from(field) << 3);
        varint(&mut self.0, value);
        self
    }

    #[must_use]
    pub fn float(mut self, field: u32, value: f32) -> Self {
        varint(&mut self.0, u64::from(field) << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    #[must_use]
    pub fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        varint(&mut self.0, u64::from(field) << 3 | 2);
        varint(&mut self.0, value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    #[must_use]
    pub fn message(self, field: u32, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl AttributeProto {
    pub fn int(name: &str, value: i64) -> Self {
        let message = ProtoMessage::default().bytes(1, name.as_bytes());
        Self(message.int(3, value as u64).int(20, 2))
    }

    pub fn ints(name: &str, values: &[i64]) -> Self {
        let message = ProtoMessage::default().bytes(1, name.as_bytes());
        let all = values
            .iter()
            .fold(message, |message, &value| message.int(8, value as u64));
        Self(all.int(20, 7))
    }

    pub fn float(name: &str, value: f32) -> Self {
        let message = ProtoMessage::default().bytes(1, name.as_bytes());
        Self(message.float(2, value).int(20, 1))
    }

    pub fn text(name: &str, value: &str) -> Self {
        let message = ProtoMessage::default().bytes(1, name.as_bytes());
        Self(message.bytes(4, value.as_bytes()).int(20, 3))
    }
}

/// `NodeProto`.
pub fn node(
    kind: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: &[AttributeProto],
) -> ProtoMessage {
    let mut message = ProtoMessage::default();
    for input in inputs {
        message = message.bytes(1, input.as_bytes());
    }
    for output in outputs {
        message = message.bytes(2, output.as_bytes());
    }
    message = message.bytes(3, outputs[0].as_bytes());
    message = message.bytes(4, kind.as_bytes());
    attributes.iter().fold(message, |message, attribute| {
        message.message(5, &attribute.0)
    })
}

/// `TensorProto` of integers.
pub fn integers(name: &str, values: &[i64]) -> ProtoMessage {
    let raw: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    ProtoMessage::default()
        .int(1, values.len() as u64)
        .int(2, INT64 as u64)
        .bytes(8, name.as_bytes())
        .bytes(9, &raw)
}

/// `TensorProto` of floats.
pub fn floats(name: &str, values: &[f32]) -> ProtoMessage {
    let raw: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    ProtoMessage::default()
        .int(1, values.len() as u64)
        .int(2, FLOAT as u64)
        .bytes(8, name.as_bytes())
        .bytes(9, &raw)
}

/// `ValueInfoProto` of examples × elements.
pub fn value(name: &str, numbers: usize) -> ProtoMessage {
    let examples = ProtoMessage::default().bytes(2, b"examples");
    let numbers = ProtoMessage::default().int(1, numbers as u64);
    let shape = ProtoMessage::default()
        .message(1, &examples)
        .message(1, &numbers);
    let tensor = ProtoMessage::default()
        .int(1, FLOAT as u64)
        .message(2, &shape);
    let kind = ProtoMessage::default().message(1, &tensor);
    ProtoMessage::default()
        .bytes(1, name.as_bytes())
        .message(2, &kind)
}

/// `ModelProto` around a `GraphProto`.
pub fn model(graph: &ProtoMessage) -> Vec<u8> {
    let opset = ProtoMessage::default().int(2, OPSET);
    ProtoMessage::default()
        .int(1, IR_VERSION)
        .bytes(2, b"muster")
        .message(8, &opset)
        .message(7, graph)
        .into_bytes()
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
