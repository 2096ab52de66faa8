//! Replacement of placeholders by values.

use super::placeholder::{Part, parts};
use super::{MAX_ERRORS, ParameterType, TemplateDocument, TemplateParameter, cut};
use crate::spec::FieldError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum length of a value, in bytes.
const MAX_VALUE_BYTES: usize = 256 << 10;
/// Maximum bytes of all texts of a filled document: the default limit of a request's body.
const MAX_FILLED_BYTES: usize = 1 << 20;

/// Fields of a document whose values are texts. A number stays a text there, such as `0.1` as an
/// argument of a program.
const TEXT_FIELDS: [&str; 4] = ["argv", "check", "env", "files"];

/// Values of parameters by name.
pub type Values = BTreeMap<String, Value>;

/// The filled document exceeds [`MAX_FILLED_BYTES`].
#[derive(Debug)]
struct TooLong;

impl TemplateDocument {
    /// Returns the job document with the values.
    ///
    /// # Errors
    /// One error per unknown parameter, missing value, and value that the parameter does not allow;
    /// at most 100. An error of `job` if the filled document is longer than 1 MiB.
    pub fn fill(&self, given: &Values) -> Result<Value, Vec<FieldError>> {
        let mut errors = self.unknown(given);
        let mut values = Values::new();
        for parameter in &self.parameters {
            let name = &parameter.name;
            match parameter.value(given) {
                Ok(value) => {
                    values.insert(name.clone(), value.clone());
                }
                Err(error) => errors.push(error),
            }
        }
        errors.truncate(MAX_ERRORS);
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut filling = Filling {
            values: &values,
            left: MAX_FILLED_BYTES,
        };
        let filled = filling.value(&self.job, false);
        filled.map_err(|TooLong| {
            vec![FieldError {
                field: "job".to_owned(),
                value: format!("more than {MAX_FILLED_BYTES} bytes with these values"),
                expected: "at most 1 MiB: shorter values, or fewer places for them".to_owned(),
            }]
        })
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
        let known = self.names();
        let unknown = given.keys().filter(|name| !known.contains(&name.as_str()));
        let errors = unknown.take(MAX_ERRORS).map(|name| FieldError {
            field: format!("parameters.{}", cut(name)),
            value: cut(&given[name].to_string()),
            expected: super::placeholder::expected_name(name, &known),
        });
        errors.collect()
    }
}

impl TemplateParameter {
    /// Returns the value of the parameter: the given one, or the default.
    fn value<'a>(&'a self, given: &'a Values) -> Result<&'a Value, FieldError> {
        let value = given.get(&self.name).or(self.default.as_ref());
        let Some(value) = value else {
            let expected = format!("{}, since it has no default", self.expected());
            return Err(self.wrong_value("left out".to_owned(), expected));
        };
        if !self.allows(value) {
            return Err(self.wrong_value(cut(&value.to_string()), self.expected()));
        }
        let bytes = value.as_str().map_or(0, str::len);
        if bytes > MAX_VALUE_BYTES {
            let found = format!("a text of {bytes} bytes");
            return Err(self.wrong_value(found, "at most 256 KiB".to_owned()));
        }
        Ok(value)
    }

    fn wrong_value(&self, value: String, expected: String) -> FieldError {
        FieldError {
            field: format!("parameters.{}", self.name),
            value,
            expected,
        }
    }
}

/// A document that is being filled.
struct Filling<'a> {
    values: &'a Values,
    /// Bytes that the rest of the document may have.
    left: usize,
}

impl Filling<'_> {
    fn value(&mut self, value: &Value, is_text: bool) -> Result<Value, TooLong> {
        match value {
            Value::String(text) => self.text(text, is_text),
            Value::Array(items) => {
                let items = items.iter().map(|item| self.value(item, is_text));
                Ok(Value::Array(items.collect::<Result<_, _>>()?))
            }
            Value::Object(fields) => {
                let mut filled = Map::new();
                for (name, value) in fields {
                    self.take(name.len())?;
                    let is_text = is_text || TEXT_FIELDS.contains(&name.as_str());
                    filled.insert(name.clone(), self.value(value, is_text)?);
                }
                Ok(Value::Object(filled))
            }
            other => {
                self.take(other.to_string().len())?;
                Ok(other.clone())
            }
        }
    }

    fn text(&mut self, text: &str, is_text: bool) -> Result<Value, TooLong> {
        let values = self.values;
        let parts = parts(text);
        if let [Part::Parameter(name)] = parts.as_slice()
            && !is_text
            && let Some(value) = values.get(*name)
        {
            self.take(value.to_string().len())?;
            return Ok(value.clone());
        }
        let mut filled = String::new();
        for part in parts {
            match part {
                Part::Text(text) => self.push(&mut filled, text)?,
                Part::Open => self.push(&mut filled, "${")?,
                Part::Parameter(name) => match values.get(name) {
                    Some(Value::String(text)) => self.push(&mut filled, text)?,
                    Some(value) => self.push(&mut filled, &value.to_string())?,
                    None => self.push(&mut filled, &format!("${{{name}}}"))?,
                },
            }
        }
        Ok(Value::String(filled))
    }

    fn push(&mut self, filled: &mut String, text: &str) -> Result<(), TooLong> {
        self.take(text.len())?;
        filled.push_str(text);
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), TooLong> {
        self.left = self.left.checked_sub(bytes).ok_or(TooLong)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MAX_SHOWN_CHARS, MAX_TEMPLATE_BYTES};
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
                "command": {
                    "argv": ["sh", "-c", "echo $${HOME} ${fast} $0", "${lr}"],
                    "env": { "SIZE": "${size}", "N": "${workers}" },
                    "steps": "${workers}",
                },
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
            "command": {
                "argv": ["sh", "-c", "echo ${HOME} false $0", "1"],
                "env": { "SIZE": "large", "N": "2" },
                "steps": 2,
            },
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
            (
                parameter(json!({})),
                json!({ "name": "${a}", "env": { "${a}": "x" } }),
                "job.env.${a}",
            ),
            (
                json!([]),
                json!({ "name": "x".repeat(MAX_TEMPLATE_BYTES) }),
                "template",
            ),
        ] {
            let errors = template(parameters, job).validate().expect_err(field);
            assert_eq!(errors[0].field, field, "{errors:?}");
        }
    }

    #[test]
    fn errors_of_hostile_templates_are_bounded() {
        let opening = json!({ "name": "${".repeat(100_000) });
        let errors = template(json!([]), opening).validate().expect_err("open");
        assert_eq!(errors.len(), 1);
        assert!(errors[0].value.chars().count() <= MAX_SHOWN_CHARS + 3);
        let unknown = json!({ "list": vec!["${x}"; 10_000] });
        let errors = template(json!([]), unknown).validate().expect_err("x");
        assert_eq!(errors.len(), MAX_ERRORS);
        let given = (0..1_000).map(|number| (format!("p{number}"), json!("x".repeat(1_000))));
        let given: Values = given.collect();
        let errors = training().fill(&given).expect_err("unknown");
        assert_eq!(errors.len(), MAX_ERRORS);
        assert!(errors.iter().all(|error| error.value.len() < 200));
    }

    #[test]
    fn filled_document_and_values_have_a_maximum_length() {
        let text = json!([{ "name": "a", "type": "string" }]);
        let one = template(text, json!({ "list": vec!["${a} ${a}"; 100] }));
        for (bytes, field) in [
            (5_000, None),
            (10_000, Some("job")),
            (MAX_VALUE_BYTES + 1, Some("parameters.a")),
        ] {
            let filled = one.fill(&values(json!({ "a": "x".repeat(bytes) })));
            let errors = filled.err().unwrap_or_default();
            let found = errors.first().map(|error| error.field.as_str());
            assert_eq!(found, field);
        }
    }

    #[test]
    fn float_choices_compare_as_numbers() {
        let choices = json!([{ "name": "a", "type": "float", "choices": [1, 0.5] }]);
        let one = template(choices, json!({ "name": "${a}" }));
        assert!(one.fill(&values(json!({ "a": 1.0 }))).is_ok());
        assert!(one.fill(&values(json!({ "a": 1.5 }))).is_err());
    }

    #[test]
    fn example_needs_a_default_or_a_choice() {
        let example = training().example().expect("every parameter has one");
        assert_eq!(example["size"], "small");
        let bare = template(json!([{ "name": "a", "type": "int" }]), json!({}));
        assert_eq!(bare.example(), None);
    }
}
