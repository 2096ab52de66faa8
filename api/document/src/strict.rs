//! Reads a document as a JSON value. An error names the first field that JSON or the store cannot
//! represent.

use muster_model::spec::FieldError;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt::{self, Display};

/// Expectation in errors about a text with a NUL.
pub const NO_NUL: &str = "a text without NUL (U+0000)";

/// Maximum length of a refused text in a message, in characters.
const SHOWN_CHARS: usize = 100;

/// Why a value cannot be read.
pub enum StrictReadError<E> {
    /// A wrong field, and the error of the reader, which has the line.
    Field(FieldError, E),
    Syntax(E),
}

/// Reads one value of any reader.
///
/// # Errors
/// [`StrictReadError`] of the first error.
pub fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<Value, StrictReadError<D::Error>> {
    let mut place = FieldTracker::default();
    StrictSeed(&mut place)
        .deserialize(reader)
        .map_err(|error| match place.wrong.take() {
            Some(wrong) => StrictReadError::Field(wrong, error),
            None => StrictReadError::Syntax(error),
        })
}

/// Path of the field that is being read, and the error at which reading ended.
#[derive(Default)]
struct FieldTracker {
    /// Such as `scale.workers[2].min`; empty for the document itself.
    path: String,
    wrong: Option<FieldError>,
}

impl FieldTracker {
    /// Records an error of the current field, and returns it as an error of the reader.
    fn refuse<E: Error>(&mut self, value: impl Display, expected: impl Into<String>) -> E {
        let field = if self.path.is_empty() {
            "the document"
        } else {
            &self.path
        };
        let wrong = self.wrong.insert(FieldError {
            field: field.to_owned(),
            value: value.to_string(),
            expected: expected.into(),
        });
        E::custom(wrong)
    }

    /// Appends a field to the path. Returns the length before, for [`leave`](Self::leave).
    fn enter(&mut self, name: &str) -> usize {
        let parent_length = self.path.len();
        if parent_length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        parent_length
    }

    fn leave(&mut self, parent_length: usize) {
        self.path.truncate(parent_length);
    }
}

struct StrictSeed<'a>(&'a mut FieldTracker);

impl<'de> DeserializeSeed<'de> for StrictSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON knows")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
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
        Err(self.0.refuse(value, integer_range()))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        Err(self.0.refuse(value, integer_range()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) => Ok(number.into()),
            None => {
                let written = match value {
                    _ if value.is_nan() => ".nan",
                    _ if value > 0.0 => ".inf",
                    _ => "-.inf",
                };
                Err(self.0.refuse(written, "a finite number"))
            }
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        if value.contains('\0') {
            return Err(self.0.refuse(shown(value), NO_NUL));
        }
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        let parent_length = self.0.path.len();
        loop {
            self.0.path.push_str(&format!("[{}]", list.len()));
            let Some(item) = items.next_element_seed(StrictSeed(self.0))? else {
                break;
            };
            self.0.leave(parent_length);
            list.push(item);
        }
        self.0.leave(parent_length);
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name.contains('\0') {
                let expected = "a name without NUL (U+0000)";
                return Err(self.0.refuse(shown(&name), expected));
            }
            let parent_length = self.0.enter(&name);
            if map.contains_key(&name) {
                return Err(self.0.refuse("given twice", "one value"));
            }
            let value = fields.next_value_seed(StrictSeed(self.0))?;
            self.0.leave(parent_length);
            map.insert(name, value);
        }
        Ok(map.into())
    }
}

fn integer_range() -> String {
    let least = i64::MIN;
    let most = u64::MAX;
    format!("a whole number from {least} to {most}")
}

/// Returns a text in quotes, with escapes, cut to [`SHOWN_CHARS`].
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
