//! Replacement of placeholders by values.

use super::{ParameterType, TemplateDocument};
use crate::spec::FieldError;
use crate::text::similar;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Values of parameters by name.
pub type Values = BTreeMap<String, Value>;

/// A part of a string of the document.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    Parameter(&'a str),
    /// `${` without an end.
    Open,
}

impl TemplateDocument {
    /// Returns the job document with the values.
    ///
    /// # Errors
    /// One error per unknown parameter, missing value, and value that the parameter does not allow.
    pub fn fill(&self, given: &Values) -> Result<Value, Vec<FieldError>> {
        let mut errors = self.unknown(given);
        let mut values = Values::new();
        for parameter in &self.parameters {
            let name = &parameter.name;
            let value = given.get(name).or(parameter.default.as_ref());
            match value {
                Some(value) if parameter.allows(value) => {
                    values.insert(name.clone(), value.clone());
                }
                Some(value) => errors.push(FieldError {
                    field: format!("parameters.{name}"),
                    value: value.to_string(),
                    expected: parameter.expected(),
                }),
                None => errors.push(FieldError {
                    field: format!("parameters.{name}"),
                    value: "left out".to_owned(),
                    expected: format!("required: {}", parameter.expected()),
                }),
            }
        }
        if errors.is_empty() {
            Ok(filled(&self.job, &values))
        } else {
            Err(errors)
        }
    }

    /// Returns a value for each parameter: its default, or its first choice. `None` if a parameter
    /// has neither.
    #[must_use]
    pub fn example(&self) -> Option<Values> {
        let values = self.parameters.iter().map(|one| {
            let value = one.default.as_ref().or(one.choices.first())?;
            Some((one.name.clone(), value.clone()))
        });
        values.collect()
    }

    /// Returns the type of a parameter; `None` for an unknown one.
    #[must_use]
    pub fn type_of(&self, name: &str) -> Option<ParameterType> {
        let found = self.parameters.iter().find(|one| one.name == name);
        found.map(|parameter| parameter.kind)
    }

    fn unknown(&self, given: &Values) -> Vec<FieldError> {
        let known: Vec<&str> = self.names().collect();
        let unknown = given.keys().filter(|name| !known.contains(&name.as_str()));
        let errors = unknown.map(|name| FieldError {
            field: format!("parameters.{name}"),
            value: given[name].to_string(),
            expected: expected_name(name, &known),
        });
        errors.collect()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().map(|one| one.name.as_str())
    }

    /// Returns one error for each string with a placeholder of no parameter, and for each parameter
    /// that does not occur.
    pub(super) fn wrong_placeholders(&self) -> Vec<FieldError> {
        let known: Vec<&str> = self.names().collect();
        let mut errors = Vec::new();
        let mut used = BTreeSet::new();
        each_string(&self.job, "job", &mut |field, text| {
            for part in parts(text) {
                let expected = match part {
                    Part::Text(_) => continue,
                    Part::Parameter(name) if known.contains(&name) => {
                        used.insert(name.to_owned());
                        continue;
                    }
                    Part::Parameter(name) => expected_name(name, &known),
                    Part::Open => "${NAME}, or $${ for a text with ${".to_owned(),
                };
                errors.push(FieldError {
                    field: field.to_owned(),
                    value: format!("{text:?}"),
                    expected,
                });
            }
        });
        for (at, name) in known.iter().enumerate() {
            if !used.contains(*name) {
                errors.push(FieldError {
                    field: format!("parameters[{at}].name"),
                    value: format!("{name:?}"),
                    expected: format!("a parameter that occurs in `job` as ${{{name}}}"),
                });
            }
        }
        errors
    }
}

fn expected_name(name: &str, known: &[&str]) -> String {
    let hint = similar(name, known.iter().copied());
    let hint = hint.map_or_else(String::new, |other| format!("; did you mean {other}?"));
    format!(
        "a parameter of the template ({}), or $${{ for a text with ${{{hint}",
        known.join(", ")
    )
}

/// Calls `see` with the path and the text of each string.
fn each_string(value: &Value, path: &str, see: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => see(path, text),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                each_string(item, &format!("{path}[{at}]"), see);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                each_string(value, &format!("{path}.{name}"), see);
            }
        }
        _ => {}
    }
}

fn filled(value: &Value, values: &Values) -> Value {
    match value {
        Value::String(text) => filled_text(text, values),
        Value::Array(items) => items.iter().map(|item| filled(item, values)).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), filled(value, values)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

fn filled_text(text: &str, values: &Values) -> Value {
    let parts = parts(text);
    if let [Part::Parameter(name)] = parts.as_slice()
        && let Some(value) = values.get(*name)
    {
        return value.clone();
    }
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => (*text).to_owned(),
        Part::Open => "${".to_owned(),
        Part::Parameter(name) => match values.get(*name) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => format!("${{{name}}}"),
        },
    });
    Value::String(texts.collect())
}

/// Splits a string at its placeholders.
fn parts(text: &str) -> Vec<Part<'_>> {
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
        let inner = &rest[at + 2..];
        let Some(end) = inner.find('}') else {
            parts.push(Part::Open);
            rest = inner;
            continue;
        };
        parts.push(Part::Parameter(&inner[..end]));
        rest = &inner[end + 1..];
    }
    parts.push(Part::Text(rest));
    parts.retain(|part| *part != Part::Text(""));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(parameters: Value, job: Value) -> TemplateDocument {
        let document = json!({ "parameters": parameters, "job": job });
        serde_json::from_value(document).expect("a template")
    }

    fn values(given: Value) -> Values {
        serde_json::from_value(given).expect("values")
    }

    fn training() -> TemplateDocument {
        template(
            json!([
                { "name": "lr", "type": "float", "default": 0.1 },
                { "name": "size", "type": "string", "choices": ["small", "large"] },
                { "name": "workers", "type": "int", "default": 2 },
                { "name": "fast", "type": "bool", "default": false },
            ]),
            json!({
                "name": "train-${size}",
                "command": { "argv": ["sh", "-c", "echo $${HOME} ${lr} ${fast}"], "env": { "SIZE": "${size}" } },
                "scale": { "workers": { "min": "${workers}", "max": "${workers}" } },
                "retries": 3,
            }),
        )
    }

    #[test]
    fn values_keep_their_type_or_become_text() {
        let template = training();
        template.validate().expect("valid");
        let filled = template.fill(&values(json!({ "size": "large", "lr": 1 })));
        let expected = json!({
            "name": "train-large",
            "command": { "argv": ["sh", "-c", "echo ${HOME} 1 false"], "env": { "SIZE": "large" } },
            "scale": { "workers": { "min": 2, "max": 2 } },
            "retries": 3,
        });
        assert_eq!(filled, Ok(expected));
    }

    #[test]
    fn values_cannot_add_fields_or_placeholders() {
        let one = template(
            json!([{ "name": "a", "type": "string" }, { "name": "b", "type": "string", "default": "x" }]),
            json!({ "name": "${a}", "env": { "B": "${b}-${a}" } }),
        );
        let hostile = "x\nretries: 9\n\"}, ${b} {";
        let filled = one.fill(&values(json!({ "a": hostile }))).expect("filled");
        let expected = json!({ "name": hostile, "env": { "B": format!("x-{hostile}") } });
        assert_eq!(filled, expected);
    }

    /// Returns the fields of the refusal.
    fn fields(given: Value) -> Vec<String> {
        let errors = training().fill(&values(given)).expect_err("wrong");
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        assert_eq!(fields(json!({})), ["parameters.size"]);
        let all = json!({ "size": "medium", "lr": "0.1", "workers": 1.5, "fast": 1, "sise": 1 });
        let wrong = ["sise", "lr", "size", "workers", "fast"];
        assert_eq!(fields(all), wrong.map(|name| format!("parameters.{name}")));
    }

    fn parameter(change: Value) -> Value {
        let mut one = json!({ "name": "a", "type": "int" });
        for (field, value) in change.as_object().expect("an object") {
            one[field] = value.clone();
        }
        json!([one])
    }

    #[test]
    fn wrong_templates_are_refused_by_field() {
        let job = json!({ "name": "${a}" });
        for (parameters, job, field) in [
            (
                parameter(json!({ "name": "A" })),
                job.clone(),
                "parameters[0].name",
            ),
            (
                parameter(json!({ "default": "x" })),
                job.clone(),
                "parameters[0].default",
            ),
            (
                parameter(json!({ "choices": [1, true] })),
                job.clone(),
                "parameters[0].choices",
            ),
            (
                parameter(json!({ "choices": [1], "default": 2 })),
                job.clone(),
                "parameters[0].default",
            ),
            (
                parameter(json!({})),
                json!({ "name": "x" }),
                "parameters[0].name",
            ),
            (
                parameter(json!({})),
                json!({ "name": "${a}", "b": ["${HOME}"] }),
                "job.b[0]",
            ),
            (
                parameter(json!({})),
                json!({ "name": "${a}", "c": "${a" }),
                "job.c",
            ),
            (json!([]), json!([1]), "job"),
        ] {
            let errors = template(parameters, job).validate().expect_err(field);
            assert_eq!(errors[0].field, field, "{errors:?}");
        }
    }

    #[test]
    fn example_needs_a_default_or_a_choice() {
        let example = training().example().expect("every parameter has one");
        assert_eq!(example["size"], "small");
        let bare = template(json!([{ "name": "a", "type": "int" }]), json!({}));
        assert_eq!(bare.example(), None);
    }
}
