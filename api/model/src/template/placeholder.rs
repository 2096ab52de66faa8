//! Placeholders in the strings of a template's job.

use super::{MAX_ERRORS, MAX_NAME_BYTES, MAX_SHOWN_CHARS, TemplateDocument, cut, cut_to};
use crate::spec::FieldError;
use crate::text::similar;
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum length of a path in an error, in characters.
const MAX_PATH_CHARS: usize = 2 * MAX_SHOWN_CHARS;

/// A part of a string of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Text(&'a str),
    Parameter(&'a str),
    /// `${` without an end.
    Open,
}

/// Splits a string at its placeholders. After `${` without an end the rest is text.
pub(super) fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let before = &rest[..at];
        if let Some(before) = before.strip_suffix('$') {
            // `$${` is the text `${`.
            parts.push(Part::Text(before));
            parts.push(Part::Text("${"));
            rest = &rest[at + 2..];
            continue;
        }
        parts.push(Part::Text(before));
        rest = &rest[at + 2..];
        let Some(end) = rest.find('}') else {
            parts.push(Part::Open);
            break;
        };
        parts.push(Part::Parameter(&rest[..end]));
        rest = &rest[end + 1..];
    }
    parts.push(Part::Text(rest));
    parts.retain(|part| *part != Part::Text(""));
    parts
}

/// Returns the expectation in the error for an unknown parameter.
pub(super) fn expected_name(name: &str, known: &[&str]) -> String {
    // The time of the comparison grows with the length of the name.
    let hint = Some(name).filter(|name| name.len() <= MAX_NAME_BYTES);
    let hint = hint.and_then(|name| similar(name, known.iter().copied()));
    let hint = hint.map_or_else(String::new, |other| format!("; did you mean {other}?"));
    format!("a parameter of the template ({}){hint}", known.join(", "))
}

impl TemplateDocument {
    pub(super) fn names(&self) -> Vec<&str> {
        let names = self.parameters.iter().map(|one| one.name.as_str());
        names.collect()
    }

    /// Returns errors for strings with a placeholder of no parameter, for placeholders in names of
    /// fields, and for parameters that do not occur.
    pub(super) fn wrong_placeholders(&self) -> Vec<FieldError> {
        let mut search = Search {
            known: self.names(),
            path: Vec::new(),
            used: BTreeSet::new(),
            errors: Vec::new(),
        };
        search.value(&self.job);
        if search.errors.len() >= MAX_ERRORS {
            return search.errors;
        }
        for (at, name) in search.known.iter().enumerate() {
            if !search.used.contains(*name) {
                search.errors.push(FieldError {
                    field: format!("parameters[{at}].name"),
                    value: format!("{name:?}"),
                    expected: format!("a parameter that occurs in `job` as ${{{name}}}"),
                });
            }
        }
        search.errors
    }
}

/// Step from a value of the document to a part of it.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

/// Search for placeholders. It ends with the hundredth error.
struct Search<'a> {
    known: Vec<&'a str>,
    /// Position in the job; becomes text only in an error.
    path: Vec<Step<'a>>,
    used: BTreeSet<&'a str>,
    errors: Vec<FieldError>,
}

impl<'a> Search<'a> {
    fn value(&mut self, value: &'a Value) {
        if self.errors.len() >= MAX_ERRORS {
            return;
        }
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.path.push(Step::Item(at));
                    self.value(item);
                    self.path.pop();
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.path.push(Step::Field(name));
                    if name.contains("${") {
                        let expected = "a name without ${: parameters stand in values only";
                        self.wrong(name, expected.to_owned());
                    }
                    self.value(value);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    /// Adds at most one error for the string.
    fn text(&mut self, text: &'a str) {
        let mut wrong = None;
        for part in parts(text) {
            match part {
                Part::Text(_) => {}
                Part::Parameter(name) if self.known.contains(&name) => {
                    self.used.insert(name);
                }
                Part::Parameter(_) | Part::Open => wrong = wrong.or(Some(part)),
            }
        }
        let expected = match wrong {
            Some(Part::Parameter(name)) => {
                let expected = expected_name(name, &self.known);
                format!("{expected}, or $${{ for a text with ${{")
            }
            Some(_) => "${NAME}, or $${ for a text with ${".to_owned(),
            None => return,
        };
        self.wrong(text, expected);
    }

    fn wrong(&mut self, text: &str, expected: String) {
        let steps = self.path.iter().map(|step| match step {
            Step::Field(name) => format!(".{name}"),
            Step::Item(at) => format!("[{at}]"),
        });
        let path: String = std::iter::once("job".to_owned()).chain(steps).collect();
        self.errors.push(FieldError {
            field: cut_to(&path, MAX_PATH_CHARS),
            value: format!("{:?}", cut(text)),
            expected,
        });
    }
}
