//! Parsers of values with several spellings: byte quantities (`16Gi`) and texts that look like
//! numbers (`argv: [sleep, 5]`).
//!
//! Ambiguous values are refused: a fraction could lose digits (`1.10`), a boolean its spelling.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Prefixes and their powers. `Ki` and `KiB` are powers of 1024; `k`, `kB` and `K` are powers of
/// 1000.
const UNITS: [(&str, u32); 5] = [("k", 1), ("m", 2), ("g", 3), ("t", 4), ("p", 5)];

/// Parses a whole number of bytes, or a text with a unit.
pub(super) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(Bytes)
}

/// Parses a quantity of bytes that may be absent.
pub(super) fn optional_bytes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    struct Quantity(u64);

    impl<'de> Deserialize<'de> for Quantity {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            bytes(deserializer).map(Self)
        }
    }

    let quantity = Option::<Quantity>::deserialize(deserializer)?;
    Ok(quantity.map(|quantity| quantity.0))
}

/// Parses a list of texts; whole numbers are taken as written.
pub(super) fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let words = Vec::<Word>::deserialize(deserializer)?;
    Ok(words.into_iter().map(|word| word.0).collect())
}

/// Parses a map of texts; whole numbers are taken as written.
pub(super) fn texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let texts = BTreeMap::<String, Word>::deserialize(deserializer)?;
    Ok(texts
        .into_iter()
        .map(|(name, word)| (name, word.0))
        .collect())
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of bytes or a text such as 16Gi or 500M")
    }

    fn visit_u64<E>(self, bytes: u64) -> Result<u64, E> {
        Ok(bytes)
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
        u64::try_from(bytes).map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        quantity(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// Parses `16Gi`, `1.5 GiB`, `500M` or `1024`, rounded down to whole bytes.
fn quantity(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|next: char| !next.is_ascii_digit() && next != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = unit.trim_start();
    // Ambiguous: a thousandth in Kubernetes, a million elsewhere.
    if unit == "m" {
        return None;
    }
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let (prefix, base) = match unit.strip_suffix('i') {
        Some(prefix) => (prefix, 1024_u64),
        None => (unit, 1000),
    };
    let power = match (prefix, base) {
        ("", 1000) => 0,
        _ => UNITS.iter().find(|(name, _)| *name == prefix)?.1,
    };
    let factor = base.pow(power);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let part: u64 = match fraction {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    let part = u128::from(part) * u128::from(factor) / u128::from(scale);
    let bytes = u128::from(whole) * u128::from(factor) + part;
    u64::try_from(bytes).ok()
}

struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl Visitor<'_> for Reader {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, in quotes where it looks like something else")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::quantity;

    #[test]
    fn byte_quantities_are_parsed_by_their_units() {
        for (text, bytes) in [
            ("1024", 1024),
            ("16Gi", 16 << 30),
            ("1GiB", 1 << 30),
            (" 1.5 gib ", 3 << 29),
            ("500M", 500_000_000),
            ("64MB", 64_000_000),
            ("0.5k", 500),
            ("2Ti", 2 << 40),
            ("7B", 7),
        ] {
            assert_eq!(quantity(text), Some(bytes), "{text}");
        }
        for wrong in [
            "",
            "Gi",
            ".5G",
            "1.G",
            "1.2.3G",
            "-1G",
            "1Xi",
            "1iB",
            "1e9",
            "1 G B",
            "99999999P",
            "5m",
            "１G",
        ] {
            assert_eq!(quantity(wrong), None, "{wrong}");
        }
    }
}
