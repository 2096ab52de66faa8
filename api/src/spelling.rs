//! Detects words of a YAML document that were read as numbers but have another spelling. The
//! argument `0x1F` of a program would silently become `31`.
//!
//! The YAML reader returns numbers without their spelling. So each such spelling in the text is
//! replaced by that of another number, and the text is read again. The numbers that differ had such
//! a spelling; text in comments and quotes does not change.

use muster_model::spec::FieldError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Maximum number of tried values: each one parses the document twice.
const TRIED: usize = 64;

/// A number and its position, as a JSON pointer and as errors show it.
struct NumberPosition {
    pointer: String,
    field: String,
}

/// Returns an error for the first number with an unusual spelling where `T` expects a text. The
/// document must be valid.
pub fn odd_word<T: DeserializeOwned>(text: &[u8], document: &Value) -> Option<FieldError> {
    let spellings: Vec<(usize, &str)> = odd_spellings(std::str::from_utf8(text).ok()?).collect();
    if spellings.is_empty() {
        return None;
    }
    let mut changed = text.to_vec();
    for (end, _) in &spellings {
        changed[end - 1] = if changed[end - 1] == b'0' { b'1' } else { b'0' };
    }
    let changed = muster_document::yaml(&changed).ok()?;
    let mut places = Vec::new();
    let root = NumberPosition {
        pointer: String::new(),
        field: String::new(),
    };
    differing(document, &changed, root, &mut places);
    let mut places = places.into_iter().take(TRIED);
    let place = places.find(|place| wants_text::<T>(document, &place.pointer))?;
    let number = document.pointer(&place.pointer)?;
    let spelling = spellings.into_iter().map(|(_, spelling)| spelling);
    let value = spelling.into_iter().find(|spelling| {
        muster_document::yaml(spelling.as_bytes()).is_ok_and(|read| read == *number)
    });
    Some(FieldError {
        field: place.field,
        value: value.unwrap_or("a number").to_owned(),
        expected: format!(
            "a text in quotes, or a number in plain decimals: YAML reads this as {number}"
        ),
    })
}

/// Returns whole numbers in YAML spellings that no program prints (`0x1F`, `0o17`, `0b1`, `+5`,
/// `-0`), each with its end in the text.
fn odd_spellings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let words = text
        .split(|next: char| next.is_whitespace() || ",[]{}".contains(next))
        .filter(|word| is_odd(word));
    words.map(|word| {
        let begins = word.as_ptr() as usize - text.as_ptr() as usize;
        (begins + word.len(), word)
    })
}

fn is_odd(word: &str) -> bool {
    let (sign, rest) = match word.as_bytes().first() {
        Some(b'+' | b'-') => word.split_at(1),
        _ => ("", word),
    };
    let is_decimal = !rest.is_empty() && rest.bytes().all(|next| next.is_ascii_digit());
    is_of_base(rest, "0x", 16)
        || is_of_base(rest, "0o", 8)
        || is_of_base(rest, "0b", 2)
        || (sign == "+" && is_decimal)
        || (sign == "-" && rest == "0")
}

/// Whether the text is the prefix and digits of this base.
fn is_of_base(text: &str, prefix: &str, base: u32) -> bool {
    let digits = text.strip_prefix(prefix);
    digits
        .is_some_and(|digits| !digits.is_empty() && digits.chars().all(|next| next.is_digit(base)))
}

fn differing(one: &Value, other: &Value, at: NumberPosition, found: &mut Vec<NumberPosition>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            for ((name, one), other) in one.iter().zip(other.values()) {
                let dot = if at.field.is_empty() { "" } else { "." };
                let place = NumberPosition {
                    pointer: format!(
                        "{}/{}",
                        at.pointer,
                        name.replace('~', "~0").replace('/', "~1")
                    ),
                    field: format!("{}{dot}{name}", at.field),
                };
                differing(one, other, place, found);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                let place = NumberPosition {
                    pointer: format!("{}/{index}", at.pointer),
                    field: format!("{}[{index}]", at.field),
                };
                differing(one, other, place, found);
            }
        }
        (Value::Number(one), Value::Number(other)) if one != other => found.push(at),
        _ => {}
    }
}

/// Whether the field is a text: it accepts every text and no boolean. A field that accepts any
/// value, such as a choice of a study, keeps a number as a number.
fn wants_text<T: DeserializeOwned>(document: &Value, pointer: &str) -> bool {
    let takes = |value: Value| {
        let mut tried = document.clone();
        let Some(place) = tried.pointer_mut(pointer) else {
            return false;
        };
        *place = value;
        T::deserialize(tried).is_ok()
    };
    takes(Value::String("x".to_owned())) && !takes(Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::odd_word;
    use muster_model::spec::JobSpec;

    fn odd(command: &str) -> Option<String> {
        let text = format!(
            "version: muster/v1\nname: own # 0x10\npriority: +7\n{command}\nresources: {{ worker: {{ memory_bytes: 0x40000000 }} }}\n"
        );
        let document = muster_document::yaml(text.as_bytes()).expect("YAML");
        serde_json::from_value::<JobSpec>(document.clone()).expect("a job");
        odd_word::<JobSpec>(text.as_bytes(), &document).map(|error| error.to_string())
    }

    #[test]
    fn unusual_spelling_of_a_number_is_refused_as_text() {
        for right in [
            "command: { argv: [sleep, 5, -3, 10, 007, 0x] }",
            "command: { argv: [sleep, '0x1F', \"0x1F\"] }",
            "command:\n  argv:\n    - sh\n    - |\n      x = 0x1F\n      echo 0x1F\n",
        ] {
            assert_eq!(odd(right), None, "{right}");
        }
        for (wrong, field, spelling, read) in [
            (
                "command: { argv: [run, 0x1F] }",
                "command.argv[1]",
                "0x1F",
                "31",
            ),
            (
                "command: { argv: [run, 31, 0x1f] }",
                "command.argv[2]",
                "0x1f",
                "31",
            ),
            (
                "command: { argv: [run], env: { A.B/C: 0o17 } }",
                "command.env.A.B/C",
                "0o17",
                "15",
            ),
            (
                "command:\n  argv:\n  - run\n  - +5\n",
                "command.argv[1]",
                "+5",
                "5",
            ),
        ] {
            let told = odd(wrong).expect(wrong);
            let is = format!("{field} is {spelling}; expected a text in quotes");
            assert!(
                told.starts_with(&is) && told.ends_with(&format!("reads this as {read}")),
                "{told}"
            );
        }
    }
}
