//! Headers by which the tensors of a checkpoint become one safetensors or ONNX file. The bytes of
//! the tensors are copied unchanged between the headers.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Name of a checkpoint's graph file: an ONNX model without its tensors.
pub const GRAPH_FILE: &str = "graph.onnx";

/// Largest ONNX file: protobuf counts in 31 bits.
pub const MAX_ONNX_BYTES: u64 = i32::MAX as u64;

const FLOAT_BYTES: u64 = 4;

/// Tensor of 32-bit floats as a safetensors header lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub shape: Vec<u64>,
}

/// Why a header cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is not a safetensors file of 32-bit floats without gaps: {0}")]
pub struct BadHeader(String);

impl Listed {
    /// Returns the size of the tensor in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * FLOAT_BYTES
    }
}

/// Returns the tensors of a safetensors file in the order of their data. `header` is its JSON.
///
/// # Errors
/// [`BadHeader`] if the file contains anything but contiguous tensors of 32-bit floats.
pub fn listed(header: &[u8]) -> Result<Vec<Listed>, BadHeader> {
    #[derive(Deserialize)]
    struct Entry {
        #[serde(default)]
        dtype: String,
        #[serde(default)]
        shape: Vec<u64>,
        #[serde(default)]
        data_offsets: (u64, u64),
    }
    let entries: BTreeMap<String, Entry> =
        serde_json::from_slice(header).map_err(|error| BadHeader(error.to_string()))?;
    let mut out: Vec<(u64, u64, Listed)> = Vec::new();
    for (name, entry) in entries {
        if name == "__metadata__" {
            continue;
        }
        if entry.dtype != "F32" {
            return Err(BadHeader(format!("{name} is of type {}", entry.dtype)));
        }
        let (from, to) = entry.data_offsets;
        let shape = entry.shape;
        out.push((from, to, Listed { name, shape }));
    }
    out.sort_by_key(|(from, to, _)| (*from, *to));
    let mut at = 0u64;
    for (from, to, tensor) in &out {
        // Checked arithmetic: the numbers of a header may be larger than any file.
        let sides = tensor.shape.iter();
        let bytes = sides.copied().try_fold(FLOAT_BYTES, u64::checked_mul);
        let end = bytes.and_then(|bytes| at.checked_add(bytes));
        if *from != at || Some(*to) != end {
            return Err(BadHeader(format!("{} lies elsewhere", tensor.name)));
        }
        at = *to;
    }
    Ok(out.into_iter().map(|(_, _, tensor)| tensor).collect())
}

/// Returns the header of one safetensors file that contains all these tensors in this order.
#[must_use]
pub fn safetensors_head(tensors: &[Listed]) -> Vec<u8> {
    let mut text = String::from(r#"{"__metadata__":{"format":"pt"}"#);
    let mut at = 0;
    for tensor in tensors {
        let end = at + tensor.bytes();
        let (name, shape) = (quoted(&tensor.name), &tensor.shape);
        let _ = write!(
            text,
            r#",{name}:{{"dtype":"F32","shape":{shape:?},"data_offsets":[{at},{end}]}}"#
        );
        at = end;
    }
    text.push('}');
    let length = text.len().next_multiple_of(8);
    let mut out = (length as u64).to_le_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out.resize(8 + length, b' ');
    out
}

fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

/// Returns the header of one tensor that is appended to an ONNX model:
/// `ModelProto { graph { initializer { … } } }` up to `raw_data`. Protobuf readers merge
/// concatenated messages and append repeated fields.
#[must_use]
pub fn onnx_head(tensor: &Listed) -> Vec<u8> {
    const FLOAT: u64 = 1;
    let mut head = Vec::new();
    for &side in &tensor.shape {
        varint(&mut head, 1 << 3);
        varint(&mut head, side);
    }
    varint(&mut head, 2 << 3);
    varint(&mut head, FLOAT);
    varint(&mut head, 8 << 3 | 2);
    varint(&mut head, tensor.name.len() as u64);
    head.extend_from_slice(tensor.name.as_bytes());
    varint(&mut head, 9 << 3 | 2);
    varint(&mut head, tensor.bytes());

    let initializer = head.len() as u64 + tensor.bytes();
    let mut graph = Vec::new();
    varint(&mut graph, 5 << 3 | 2);
    varint(&mut graph, initializer);
    let mut out = Vec::new();
    varint(&mut out, 7 << 3 | 2);
    varint(&mut out, graph.len() as u64 + initializer);
    out.append(&mut graph);
    out.append(&mut head);
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[u64]) -> Listed {
        Listed {
            name: name.to_owned(),
            shape: shape.to_vec(),
        }
    }

    #[test]
    fn safetensors_header_lists_its_tensors() {
        let tensors = [
            tensor("b", &[2, 3]),
            tensor("a \"quoted\"", &[]),
            tensor("c", &[0]),
        ];
        let head = safetensors_head(&tensors);
        assert_eq!(head.len() % 8, 0);
        assert_eq!(listed(&head[8..]).expect("sound")[0], tensors[0]);
        assert_eq!(listed(&head[8..]).expect("sound").len(), 3);
    }

    #[test]
    fn header_without_contiguous_floats_is_refused() {
        for wrong in [
            r#"{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}"#,
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#,
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
            "[",
        ] {
            assert!(listed(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn onnx_header_lengths_nest() {
        let tensor = tensor("w", &[1, 2]);
        let head = onnx_head(&tensor);
        let expected = [
            0x3a, 21, 0x2a, 19, 0x08, 1, 0x08, 2, 0x10, 1, 0x42, 1, b'w', 0x4a, 8,
        ];
        assert_eq!(head, expected);
        assert_eq!(usize::from(head[1]), head.len() - 2 + 8);
    }
}
