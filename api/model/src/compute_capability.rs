//! Compute capability of NVIDIA GPUs.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::{Serialize, Serializer};
use std::fmt;

/// Version of the instructions and features of an NVIDIA GPU: 8.0 is an A100, 9.0 an H100. Higher
/// versions have the features of lower ones. The minor number has one digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    pub major: u32,
    pub minor: u32,
}

impl ComputeCapability {
    /// Returns the capability of these numbers; `None` if one is out of range.
    #[must_use]
    pub fn new(major: u32, minor: u32) -> Option<Self> {
        let is_known = (1..=99).contains(&major) && minor <= 9;
        is_known.then_some(Self { major, minor })
    }

    fn parse(text: &str) -> Option<Self> {
        let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
        let (major, minor) = text.split_once('.')?;
        if !is_digits(major) || !is_digits(minor) {
            return None;
        }
        Self::new(major.parse().ok()?, minor.parse().ok()?)
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Serialize for ComputeCapability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ComputeCapability {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = ComputeCapability;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a compute capability such as 8.0, from 1.0 to 99.9")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let parsed = ComputeCapability::parse(text);
        parsed.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    /// YAML reads `8.0` as a number.
    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        let parsed = ComputeCapability::parse(&format!("{number:?}"));
        parsed.ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        let major = u32::try_from(number).ok();
        let parsed = major.and_then(|major| ComputeCapability::new(major, 0));
        parsed.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }
}

#[cfg(feature = "schema")]
impl utoipa::PartialSchema for ComputeCapability {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some(
                "Compute capability of an NVIDIA GPU: major and minor version, such as 8.0.",
            ))
            .pattern(Some(r"^[1-9][0-9]?\.[0-9]$"))
            .into()
    }
}

#[cfg(feature = "schema")]
impl utoipa::ToSchema for ComputeCapability {}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<String, String> {
        let read = serde_json::from_str::<ComputeCapability>(json);
        let read = read.map_err(|error| error.to_string())?;
        Ok(serde_json::to_string(&read).expect("a text"))
    }

    #[test]
    fn text_and_number_are_the_same_capability() {
        for (given, stored) in [
            (r#""8.0""#, r#""8.0""#),
            ("8.0", r#""8.0""#),
            ("8.6", r#""8.6""#),
            ("12", r#""12.0""#),
            (r#""10.3""#, r#""10.3""#),
        ] {
            assert_eq!(read(given).as_deref(), Ok(stored), "{given}");
        }
        for wrong in [
            r#""8""#,
            r#""8.10""#,
            r#""0.9""#,
            "8.65",
            "-1",
            r#""+8.0""#,
            "100",
            "null",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn capabilities_are_ordered_by_number() {
        let parse = |text| ComputeCapability::parse(text).expect("right");
        assert!(parse("10.0") > parse("9.0") && parse("8.9") > parse("8.6"));
    }
}
