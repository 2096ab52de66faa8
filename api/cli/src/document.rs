//! Documents as people write them: YAML, of which JSON is a part, as the JSON that REST takes. What JSON cannot say, or would say
//! otherwise than it was meant, is refused here by its field: a key that is given twice, a number that is none or too large.

use crate::command::UsageError;
use anyhow::Context as _;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;
use std::io::Read as _;
use std::path::Path;

/// # Errors
/// When the file cannot be read (`-` is standard input), or is no document.
pub fn read(file: &Path) -> anyhow::Result<Value> {
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin()
            .read_to_string(&mut text)
            .context("read the document from standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    }
    let file = file.display();
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        anyhow::bail!(UsageError(format!("{file} is empty; expected a document")));
    }
    parse(&text).map_err(|error| {
        UsageError(format!("{file} cannot be read as YAML or JSON: {error}")).into()
    })
}

/// # Errors
/// What is wrong, with its field and line.
pub fn parse(text: &str) -> Result<Value, serde_norway::Error> {
    serde_norway::from_str::<Strict>(text).map(|strict| strict.0)
}

struct Strict(Value);

struct Reader;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON knows")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        Err(too_large(&value))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        Err(too_large(&value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) => Ok(number.into()),
            None if value.is_nan() => Err(E::custom("the value is .nan; expected a number")),
            None => Err(E::custom("the value is infinite; expected a number")),
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if map.contains_key(&name) {
                let twice = format!("{name} is given twice; expected one value");
                return Err(A::Error::custom(twice));
            }
            let Strict(value) = fields.next_value()?;
            map.insert(name, value);
        }
        Ok(map.into())
    }
}

fn too_large<E: Error>(value: &dyn fmt::Display) -> E {
    let least = i64::MIN;
    let most = u64::MAX;
    E::custom(format!(
        "the value is {value}; expected a whole number from {least} to {most}"
    ))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use serde_json::json;

    #[test]
    fn yaml_and_json_are_read_alike() {
        let expected =
            json!({ "name": "a", "n": 1, "x": -0.5, "none": null, "list": [true, "no"] });
        let yaml = "name: a\nn: 1\nx: -0.5\nnone:\nlist:\n- true\n- no\n";
        assert_eq!(parse(yaml).expect("YAML"), expected);
        assert_eq!(parse(&expected.to_string()).expect("JSON"), expected);
    }

    #[test]
    fn what_json_cannot_say_is_refused_by_its_field() {
        for (text, field, what) in [
            ("name: a\nname: b\n", "name", "given twice"),
            (
                "engine:\n  seed: 1\n  seed: 2\n",
                "engine: seed",
                "given twice",
            ),
            ("{\"name\": \"a\", \"name\": \"b\"}", "name", "given twice"),
            ("stop:\n  epochs: .nan\n", "stop.epochs", ".nan"),
            ("stop:\n  epochs: -.inf\n", "stop.epochs", "infinite"),
            (
                "seed: 18446744073709551616\n",
                "seed",
                "18446744073709551615",
            ),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(field) && error.contains(what), "{error}");
        }
    }
}
