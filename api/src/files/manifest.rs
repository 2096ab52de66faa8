//! Finds the checksum of a file in the manifest of a checkpoint.
//!
//! A job's tasks can write any content into the manifest. It is parsed as a stream, so that memory
//! holds only the checksum and not the other values.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::io::Read;

/// Returns `files.<name>.sha256` of the manifest. `None` if it is missing or not 64 hexadecimal
/// digits, or if the manifest is not valid JSON.
pub fn stated_sha256(manifest: impl Read, name: &str) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_reader(manifest);
    let sha256 = FieldTextSeed(&["files", name, "sha256"])
        .deserialize(&mut reader)
        .ok()??;
    reader.end().ok()?;
    (sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(sha256)
}

/// Deserializes the text at a path through nested objects. All other values are skipped, and the
/// result is `None` if a field of the path is missing.
#[derive(Clone, Copy)]
struct FieldTextSeed<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for FieldTextSeed<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Option<String>, D::Error> {
        if self.0.is_empty() {
            deserializer.deserialize_str(self)
        } else {
            deserializer.deserialize_map(self)
        }
    }
}

impl<'de> Visitor<'de> for FieldTextSeed<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a manifest")
    }

    fn visit_str<E>(self, text: &str) -> Result<Option<String>, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Option<String>, A::Error> {
        let (wanted, rest) = self.0.split_first().expect("only a path leads into a map");
        let mut found = None;
        while let Some(name) = fields.next_key::<String>()? {
            if name == *wanted {
                found = fields.next_value_seed(FieldTextSeed(rest))?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::stated_sha256;

    fn stated(text: &str, name: &str) -> Option<String> {
        stated_sha256(text.as_bytes(), name)
    }

    #[test]
    fn checksum_of_the_named_file_is_found() {
        let sum = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
        let manifest = format!(
            r#"{{"step": 3, "files": {{"a": {{"crcs": [1, 2], "sha256": "{sum}"}}, "b": {{}}, "c": {{"sha256": "short"}}}}, "sha256": []}}"#
        );
        assert_eq!(stated(&manifest, "a").as_deref(), Some(sum));
        for name in ["b", "c", "none", "sha256"] {
            assert_eq!(stated(&manifest, name), None, "{name}");
        }
        for text in [
            "",
            "[]",
            "{",
            r#"{"files": 3}"#,
            &manifest[1..],
            &manifest[..100],
        ] {
            assert_eq!(stated(text, "a"), None, "{text}");
        }
    }
}
