//! Words of a YAML document that its reader took for numbers and that are spelled otherwise than a number is written: the argument `0x1F` of a
//! program would become `31`, and nobody would be told.
//!
//! The reader gives numbers without their spelling. So every such spelling in the text is changed into that of another number, the text is read
//! once more, and the numbers that differ are those that were spelled so; in a comment or in quotes nothing changes.

use muster_model::spec::FieldError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// So many are tried: each takes reading the document twice.
const TRIED: usize = 64;

/// A number and where it stands: as a JSON pointer, and as people are told.
struct Place {
    pointer: String,
    field: String,
}

/// The first number in a document, which is right, that is spelled otherwise than a number is written and stands where a `T` wants a text.
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
    let root = Place {
        pointer: String::new(),
        field: String::new(),
    };
    differing(document, &changed, root, &mut places);
    let mut places = places.into_iter().take(TRIED);
    let place = places.find(|place| wants_text::<T>(document, &place.pointer))?;
    let number = document.pointer(&place.pointer)?;
    let reads_so = |spelling: &str| {
        muster_document::yaml(spelling.as_bytes()).is_ok_and(|read| read == *number)
    };
    let spelling = spellings.into_iter().map(|(_, spelling)| spelling);
    let value = spelling.into_iter().find(|spelling| reads_so(spelling));
    Some(FieldError {
        field: place.field,
        value: value.unwrap_or("a number").to_owned(),
        expected: format!(
            "a text in quotes, or a number in plain decimals: YAML reads this as {number}"
        ),
    })
}

/// Whole numbers as YAML has them and no program prints them (`0x1F`, `0o17`, `0b1`, `+5`, `-0`), each with where it ends.
fn odd_spellings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let apart = |next: char| next.is_whitespace() || ",[]{}".contains(next);
    let words = text.split(apart).filter(|word| is_odd(word));
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
    let of_base = |prefix: &str, base: u32| {
        let digits = rest.strip_prefix(prefix);
        digits.is_some_and(|digits| {
            !digits.is_empty() && digits.chars().all(|next| next.is_digit(base))
        })
    };
    let is_decimal = !rest.is_empty() && rest.bytes().all(|next| next.is_ascii_digit());
    of_base("0x", 16)
        || of_base("0o", 8)
        || of_base("0b", 2)
        || (sign == "+" && is_decimal)
        || (sign == "-" && rest == "0")
}

fn differing(one: &Value, other: &Value, at: Place, found: &mut Vec<Place>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            for ((name, one), other) in one.iter().zip(other.values()) {
                let dot = if at.field.is_empty() { "" } else { "." };
                let place = Place {
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
                let place = Place {
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

/// A text takes any, but no truth value; what takes anything (a choice of a study) keeps a number as one.
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
    fn a_word_that_reads_as_another_number_is_told_and_a_number_is_none() {
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
