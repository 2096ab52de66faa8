//! Templates: job documents with parameters.
//!
//! `${name}` in a string of the document stands for a parameter. A string that is only `${name}`
//! becomes the typed value. Elsewhere in a string the value becomes text. Values replace parts of
//! parsed strings, so they cannot add fields to the document. `$${` stands for `${`.

mod fill;
mod placeholder;

pub use fill::Values;

use crate::spec::FieldError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

/// Label of jobs from a template; its value is the name of the template.
pub const TEMPLATE_LABEL: &str = "template";
/// Maximum number of parameters.
pub const MAX_PARAMETERS: usize = 64;
/// Maximum length of the template as JSON, in bytes.
pub const MAX_TEMPLATE_BYTES: usize = 256 << 10;
/// Maximum number of choices of a parameter.
const MAX_CHOICES: usize = 100;
/// Maximum length of descriptions, in characters.
const MAX_DESCRIPTION: usize = 1_000;
/// Maximum length of the name of a parameter, in bytes.
const MAX_NAME_BYTES: usize = 63;
/// Maximum number of errors of a template or of its values.
const MAX_ERRORS: usize = 100;
/// Maximum length of a value in an error, in characters.
const MAX_SHOWN_CHARS: usize = 100;

/// A template as users write it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TemplateDocument {
    /// Text for users, at most 1000 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_length = 1000))]
    pub description: String,
    /// At most 64; each must occur in `job`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 64))]
    pub parameters: Vec<TemplateParameter>,
    /// Job document in which `${NAME}` stands for a parameter, and `$${` for `${`. A string that is
    /// only `${NAME}` becomes a value of the parameter's type.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub job: Value,
}

/// A parameter of a template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TemplateParameter {
    /// 1 to 63 characters of `a-z`, `0-9` and `_`, beginning with a letter.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 63))]
    pub name: String,
    #[serde(rename = "type")]
    pub kind: ParameterType,
    /// Value if a submission gives none. Without it the parameter is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Text for users.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_length = 1000))]
    pub description: String,
    /// Allowed values; empty: all of the type. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 100))]
    pub choices: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ParameterType {
    String,
    Int,
    Float,
    Bool,
}

impl ParameterType {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Int => "int",
            Self::Float => "float",
            Self::Bool => "bool",
        }
    }

    fn has(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Int => value.is_i64() || value.is_u64(),
            Self::Float => value.is_number(),
            Self::Bool => value.is_boolean(),
        }
    }
}

impl TemplateParameter {
    /// Returns what a value must be, for messages.
    fn expected(&self) -> String {
        if self.choices.is_empty() {
            return format!("a value of type {}", self.kind.as_str());
        }
        let choices: Vec<String> = self.choices.iter().map(Value::to_string).collect();
        format!("one of {}", choices.join(", "))
    }

    fn allows(&self, value: &Value) -> bool {
        let mut choices = self.choices.iter();
        let is_allowed =
            self.choices.is_empty() || choices.any(|choice| self.is_same(choice, value));
        self.kind.has(value) && is_allowed
    }

    /// Whether two values of the type are equal: the floats `1` and `1.0` are.
    fn is_same(&self, one: &Value, other: &Value) -> bool {
        match self.kind {
            ParameterType::Float => one.as_f64() == other.as_f64(),
            _ => one == other,
        }
    }
}

impl TemplateDocument {
    /// Checks sizes, then parameters, then placeholders. The job is checked when its parameters
    /// have values.
    ///
    /// # Errors
    /// The wrong fields of the first of these steps, at most 100.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut errors = self.wrong_sizes();
        if errors.is_empty() {
            errors = self.wrong_parameters();
        }
        if errors.is_empty() {
            errors = self.wrong_placeholders();
        }
        errors.truncate(MAX_ERRORS);
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    fn wrong_sizes(&self) -> Vec<FieldError> {
        let characters = self.description.chars().count();
        let number = self.parameters.len();
        let bytes = serde_json::to_string(self).map_or(0, |text| text.len());
        let checks = [
            (
                "template",
                format!("a document of {bytes} bytes"),
                bytes <= MAX_TEMPLATE_BYTES,
                "at most 256 KiB as JSON",
            ),
            (
                "description",
                format!("a text of {characters} characters"),
                characters <= MAX_DESCRIPTION,
                "at most 1000 characters",
            ),
            (
                "parameters",
                format!("{number} parameters"),
                number <= MAX_PARAMETERS,
                "at most 64",
            ),
            (
                "job",
                "no map of fields".to_owned(),
                self.job.is_object(),
                "a job document",
            ),
        ];
        let wrong = checks.into_iter().filter(|(.., is_right, _)| !is_right);
        let errors = wrong.map(|(field, value, _, expected)| FieldError {
            field: field.to_owned(),
            value,
            expected: expected.to_owned(),
        });
        errors.collect()
    }

    fn wrong_parameters(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut names = BTreeSet::new();
        for (at, parameter) in self.parameters.iter().enumerate() {
            let is_new = names.insert(parameter.name.as_str());
            errors.extend(parameter.wrong(at, is_new));
        }
        errors
    }
}

impl TemplateParameter {
    /// Returns the errors of the parameter at a position.
    fn wrong(&self, at: usize, is_new: bool) -> Vec<FieldError> {
        let mut wrong: Vec<(&str, String, String)> = Vec::new();
        let name = format!("{:?}", cut(&self.name));
        if !is_name(&self.name) {
            let expected = "1 to 63 characters of a-z, 0-9 and '_', beginning with a letter";
            wrong.push(("name", name.clone(), expected.to_owned()));
        }
        if !is_new {
            wrong.push(("name", name, "each name once".to_owned()));
        }
        let length = self.description.chars().count();
        if length > MAX_DESCRIPTION {
            let found = format!("a text of {length} characters");
            wrong.push(("description", found, "at most 1000 characters".to_owned()));
        }
        let choices = self.choices.len();
        if choices > MAX_CHOICES {
            let found = format!("{choices} values");
            wrong.push(("choices", found, "at most 100".to_owned()));
        }
        for choice in self.choices.iter().take(MAX_CHOICES) {
            if !self.kind.has(choice) {
                let expected = format!("values of type {}", self.kind.as_str());
                wrong.push(("choices", cut(&choice.to_string()), expected));
            }
        }
        if let Some(default) = self.default.as_ref().filter(|value| !self.allows(value)) {
            wrong.push(("default", cut(&default.to_string()), self.expected()));
        }
        let errors = wrong
            .into_iter()
            .map(|(field, value, expected)| FieldError {
                field: format!("parameters[{at}].{field}"),
                value,
                expected,
            });
        errors.collect()
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Returns a text of an error with at most [`MAX_SHOWN_CHARS`] characters of it.
fn cut(text: &str) -> String {
    cut_to(text, MAX_SHOWN_CHARS)
}

fn cut_to(text: &str, most_chars: usize) -> String {
    match text.char_indices().nth(most_chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
