//! Finds the field of a document that causes an error, from the text of serde's message.
//!
//! The texts are serde's own. `tests/api/bad_input.rs` compares the resulting answers, so that an
//! update of serde that changes a text is noticed.

use crate::suggestion::suggestion;
use muster_model::spec::FieldError;
use serde_json::Value;

/// Converts a message of serde into an error of a field.
pub fn field_error(path: &str, message: &str, document: &Value) -> FieldError {
    let path = if path == "." { "" } else { path };
    if let Some((name, rest)) = quoted(message, "unknown field `") {
        let field = if path.rsplit('.').next() == Some(name) {
            path.to_owned()
        } else {
            join(path, name)
        };
        let value = shown_at(document, &field);
        return FieldError {
            field,
            value,
            expected: format!("no such field; {}", suggested(name, rest)),
        };
    }
    if let Some((name, _)) = quoted(message, "missing field `") {
        return FieldError {
            field: join(path, name),
            value: "missing".to_owned(),
            expected: "a value; the field is required".to_owned(),
        };
    }
    if let Some((name, _)) = quoted(message, "duplicate field `") {
        return FieldError {
            field: join(path, name),
            value: "given twice".to_owned(),
            expected: "one value".to_owned(),
        };
    }
    if let Some((name, rest)) = quoted(message, "unknown variant `") {
        let field =
            tag_of(document, path, name).map_or_else(|| path.to_owned(), |tag| join(path, &tag));
        return FieldError {
            field,
            value: format!("{name:?}"),
            expected: suggested(name, rest),
        };
    }
    if message.starts_with("invalid length ") {
        // serde accepts a list as the fields of an object in order, and reports only a wrong number
        // of them.
        let field = if path.is_empty() {
            named(None)
        } else {
            path.to_owned()
        };
        return FieldError {
            value: shown_at(document, path),
            field,
            expected: "an object".to_owned(),
        };
    }
    // The last part of the name of a field with an id gives its kind.
    if message.starts_with("UUID parsing failed") {
        let what = path
            .rsplit('.')
            .next()
            .unwrap_or(path)
            .trim_end_matches("_id");
        let article = if what.starts_with(['a', 'e', 'i', 'o', 'u']) {
            "an"
        } else {
            "a"
        };
        return FieldError {
            value: shown_at(document, path),
            field: path.to_owned(),
            expected: format!("{article} {what}'s id, which is a UUID"),
        };
    }
    // "invalid type: string \"x\", expected u32"
    let (found, wanted) = message
        .split_once(": ")
        .and_then(|(_, rest)| rest.rsplit_once(", expected "))
        .unwrap_or(("", message));
    let field = if path.is_empty() {
        named(culprit(document, found))
    } else {
        inside(document, path, found)
    };
    let value = match find(document, &field) {
        Some(value) => short(value),
        None => found.to_owned(),
    };
    FieldError {
        field,
        value,
        expected: in_words(wanted),
    }
}

/// Returns the value at the path as text.
fn shown_at(document: &Value, path: &str) -> String {
    find(document, path).map_or_else(|| "missing".to_owned(), short)
}

/// Returns the path of a field below `path`.
fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Returns the text between `before` and the next backtick, and the rest.
fn quoted<'a>(message: &'a str, before: &str) -> Option<(&'a str, &'a str)> {
    let start = message.find(before)? + before.len();
    message[start..].split_once('`')
}

/// Returns the valid names, after the one that was probably meant.
fn suggested(name: &str, rest: &str) -> String {
    // serde quotes each name by backticks.
    let valid: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let valid_names = expected(rest, "one of ");
    match suggestion(name, &valid) {
        Some(meant) => format!("did you mean {meant}? {valid_names}"),
        None => valid_names,
    }
}

fn expected(rest: &str, list: &str) -> String {
    let names = rest
        .trim_start_matches(", expected ")
        .trim_start_matches("one of ")
        .replace('`', "");
    if names.contains(", ") || names.contains(" or ") {
        format!("{list}{names}")
    } else {
        names.trim_start_matches(", ").to_owned()
    }
}

/// Returns the path of the wrong field. serde reads a tagged enum as a whole and loses the path
/// within it. A field with the reported value is therefore searched. It is named if there is
/// exactly one.
fn inside(document: &Value, path: &str, found: &str) -> String {
    match find(document, path) {
        Some(whole @ (Value::Object(_) | Value::Array(_))) => match culprit(whole, found) {
            Some(below) if !below.is_empty() => {
                if below.starts_with('[') {
                    format!("{path}{below}")
                } else {
                    format!("{path}.{below}")
                }
            }
            _ => path.to_owned(),
        },
        _ => path.to_owned(),
    }
}

fn named(path: Option<String>) -> String {
    path.filter(|path| !path.is_empty())
        .unwrap_or_else(|| "the document".to_owned())
}

fn culprit(whole: &Value, found: &str) -> Option<String> {
    let mut hits = Vec::new();
    walk(whole, String::new(), &mut |path, value| {
        if unexpected(value).is_some_and(|text| text == found) {
            hits.push(path.to_owned());
        }
    });
    if hits.len() == 1 { hits.pop() } else { None }
}

fn walk(value: &Value, path: String, visit: &mut impl FnMut(&str, &Value)) {
    visit(&path, value);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let below = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                walk(value, below, visit);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                walk(value, format!("{path}[{index}]"), visit);
            }
        }
        _ => {}
    }
}

/// Formats a value as serde's messages do.
fn unexpected(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some("null".to_owned()),
        Value::Bool(value) => Some(format!("boolean `{value}`")),
        Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            Some(format!("floating point `{text}`"))
        }
        Value::Number(number) => Some(format!("integer `{number}`")),
        Value::String(text) => Some(format!("string {text:?}")),
        Value::Array(_) => Some("sequence".to_owned()),
        Value::Object(_) => Some("map".to_owned()),
    }
}

/// Returns the field of the object at `path` that contains `name`, unless the path contains it.
fn tag_of(document: &Value, path: &str, name: &str) -> Option<String> {
    let fields = if path.is_empty() {
        document
    } else {
        find(document, path)?
    }
    .as_object()?;
    fields
        .iter()
        .find(|(_, value)| value.as_str() == Some(name))
        .map(|(field, _)| field.clone())
}

/// Returns the value at a path such as `scale.workers.min` or `engine.model.hidden[0]`.
pub fn find<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() || path == "the document" {
        return Some(document);
    }
    let mut value = document;
    for part in path.split('.') {
        let mut names = part.split('[');
        let name = names.next().filter(|name| !name.is_empty());
        if let Some(name) = name {
            value = value.get(name)?;
        }
        for index in names {
            value = value.get(index.trim_end_matches(']').parse::<usize>().ok()?)?;
        }
    }
    Some(value)
}

/// Returns the mutable value at a path, as [`find`].
pub fn find_mut<'a>(document: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let steps = path.replace('[', ".").replace(']', "");
    let mut value = document;
    for step in steps.split('.').filter(|step| !step.is_empty()) {
        value = match value {
            Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?)?,
            other => other.get_mut(step)?,
        };
    }
    Some(value)
}

fn short(value: &Value) -> String {
    const LONGEST: usize = 100;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn in_words(wanted: &str) -> String {
    match wanted {
        "u8" => limited(u64::from(u8::MAX)),
        "u16" => limited(u64::from(u16::MAX)),
        "u32" => limited(u64::from(u32::MAX)),
        "u64" | "usize" => limited(u64::MAX),
        "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        other => other
            .strip_prefix("struct ")
            .map_or_else(|| other.to_owned(), |name| format!("an object ({name})")),
    }
}

fn limited(most: u64) -> String {
    format!("a whole number, 0 or more and at most {most}")
}
