//! Messages of event files, as far as scalars need them: `tensorflow.Event` and its parts.

use prost::Message;

/// `DataType` of tensors.
const DT_FLOAT: i32 = 1;
const DT_DOUBLE: i32 = 2;
const DT_INT32: i32 = 3;
const DT_INT64: i32 = 9;
const DT_BFLOAT16: i32 = 14;
const DT_HALF: i32 = 19;
/// `DataClass` of scalars.
const DATA_CLASS_SCALAR: i32 = 1;
const SCALARS: &str = "scalars";

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    #[prost(int64, tag = "2")]
    pub step: i64,
    #[prost(message, optional, tag = "5")]
    pub summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<SummaryValue>,
}

// The parts are boxed, because an empty value has two bytes in the file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SummaryValue {
    #[prost(string, tag = "1")]
    pub tag: String,
    #[prost(float, optional, tag = "2")]
    pub simple_value: Option<f32>,
    #[prost(message, optional, boxed, tag = "8")]
    pub tensor: Option<Box<Tensor>>,
    #[prost(message, optional, boxed, tag = "9")]
    pub metadata: Option<Box<Metadata>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(message, optional, tag = "1")]
    pub plugin: Option<Plugin>,
    #[prost(int32, tag = "4")]
    pub data_class: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Plugin {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Tensor {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(bytes = "vec", tag = "4")]
    pub content: Vec<u8>,
    #[prost(float, repeated, tag = "5")]
    pub floats: Vec<f32>,
    #[prost(double, repeated, tag = "6")]
    pub doubles: Vec<f64>,
    #[prost(int32, repeated, tag = "7")]
    pub ints: Vec<i32>,
    #[prost(int64, repeated, tag = "10")]
    pub longs: Vec<i64>,
    /// Bits of `DT_HALF` and `DT_BFLOAT16`.
    #[prost(int32, repeated, tag = "13")]
    pub halves: Vec<i32>,
}

impl SummaryValue {
    /// Whether the metadata say that the values of the tag are scalars.
    pub(super) fn is_declared_scalar(&self) -> bool {
        self.metadata.as_ref().is_some_and(|metadata| {
            let plugin = metadata.plugin.as_ref();
            plugin.is_some_and(|plugin| plugin.name == SCALARS)
                || metadata.data_class == DATA_CLASS_SCALAR
        })
    }

    /// Returns the number. `is_scalar` tells whether an earlier value of the tag was declared one.
    pub(super) fn number(&self, is_scalar: bool) -> Option<f64> {
        if let Some(value) = self.simple_value {
            return Some(f64::from(value));
        }
        let tensor = self.tensor.as_ref()?;
        let is_scalar = is_scalar || self.is_declared_scalar();
        is_scalar.then(|| tensor.number()).flatten()
    }
}

impl Tensor {
    /// Returns the only element.
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating-point")]
    fn number(&self) -> Option<f64> {
        let content = &self.content;
        if !content.is_empty() {
            let content = content.as_slice();
            return match self.kind {
                DT_FLOAT => Some(f32::from_le_bytes(content.try_into().ok()?).into()),
                DT_DOUBLE => Some(f64::from_le_bytes(content.try_into().ok()?)),
                DT_INT32 => Some(i32::from_le_bytes(content.try_into().ok()?).into()),
                DT_INT64 => Some(i64::from_le_bytes(content.try_into().ok()?) as f64),
                DT_HALF => Some(half(u16::from_le_bytes(content.try_into().ok()?))),
                DT_BFLOAT16 => Some(bfloat(u16::from_le_bytes(content.try_into().ok()?))),
                _ => None,
            };
        }
        match self.kind {
            DT_FLOAT => only(&self.floats).map(f64::from),
            DT_DOUBLE => only(&self.doubles),
            DT_INT32 => only(&self.ints).map(f64::from),
            DT_INT64 => only(&self.longs).map(|value| value as f64),
            DT_HALF => only(&self.halves).and_then(|bits| Some(half(bits.try_into().ok()?))),
            DT_BFLOAT16 => only(&self.halves).and_then(|bits| Some(bfloat(bits.try_into().ok()?))),
            _ => None,
        }
    }
}

fn only<T: Copy>(values: &[T]) -> Option<T> {
    match values {
        [value] => Some(*value),
        _ => None,
    }
}

/// Returns the value of an IEEE 754 number of 16 bits.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from((bits >> 10) & 0x1F);
    let fraction = f64::from(bits & 0x3FF) / 1024.0;
    sign * match exponent {
        0 => fraction * 2_f64.powi(-14),
        31 if fraction > 0.0 => f64::NAN,
        31 => f64::INFINITY,
        exponent => (1.0 + fraction) * 2_f64.powi(exponent - 15),
    }
}

fn bfloat(bits: u16) -> f64 {
    f32::from_bits(u32::from(bits) << 16).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tensor: Tensor, plugin: &str) -> SummaryValue {
        let name = plugin.to_owned();
        SummaryValue {
            tag: "loss".to_owned(),
            simple_value: None,
            tensor: Some(Box::new(tensor)),
            metadata: Some(Box::new(Metadata {
                plugin: Some(Plugin { name }),
                data_class: 0,
            })),
        }
    }

    #[test]
    fn scalars_of_all_types_are_read() {
        let content = |kind, bytes: &[u8]| Tensor {
            kind,
            content: bytes.to_vec(),
            ..Tensor::default()
        };
        let listed = Tensor {
            kind: DT_HALF,
            halves: vec![0x3C00],
            ..Tensor::default()
        };
        for (tensor, number) in [
            (content(DT_FLOAT, &0.5_f32.to_le_bytes()), Some(0.5)),
            (content(DT_DOUBLE, &0.1_f64.to_le_bytes()), Some(0.1)),
            (content(DT_INT64, &(-3_i64).to_le_bytes()), Some(-3.0)),
            (content(DT_HALF, &0xC100_u16.to_le_bytes()), Some(-2.5)),
            (
                content(DT_HALF, &0x0001_u16.to_le_bytes()),
                Some(2_f64.powi(-24)),
            ),
            (content(DT_BFLOAT16, &0x3FC0_u16.to_le_bytes()), Some(1.5)),
            (content(DT_FLOAT, &[0; 8]), None),
            (content(7, b"text"), None),
            (listed, Some(1.0)),
        ] {
            let shown = format!("{tensor:?}");
            assert_eq!(value(tensor, "scalars").number(false), number, "{shown}");
        }
    }

    #[test]
    fn tensors_of_other_plugins_are_no_scalars() {
        let tensor = Tensor {
            kind: DT_FLOAT,
            floats: vec![0.5],
            ..Tensor::default()
        };
        let other = value(tensor.clone(), "histograms");
        assert_eq!((other.number(false), other.number(true)), (None, Some(0.5)));
        let mut declared = value(tensor, "own");
        declared.metadata.as_mut().expect("set").data_class = DATA_CLASS_SCALAR;
        assert_eq!(declared.number(false), Some(0.5));
    }
}
