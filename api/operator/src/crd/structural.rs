//! Conversion of the REST interface's OpenAPI 3.1 schemas to structural schemas of custom
//! resources.
//!
//! The model defines the job document. This module adapts it to what Kubernetes can express.
//! References are expanded. A choice between objects becomes one object with the fields of all
//! variants, and rules that state which fields belong together. Content without a structure that
//! Kubernetes supports (a number or a list of two; nested layers) is accepted as it is, and the
//! REST interface validates it.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const PREFIX: &str = "#/components/schemas/";
/// Keyword that makes Kubernetes keep content without a structure.
const KEPT: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
/// Marks a field of the REST interface that also accepts bytes with a unit.
const QUANTITY: &str = "x-muster-quantity";
/// Format that `lenient::bytes` of the model accepts.
const QUANTITY_PATTERN: &str = r"^[0-9]+(\.[0-9]{1,9})? ?([kKmMgGtTpP]i?[bB]?|[bB])?$";
/// Keywords with the same meaning in both schema languages.
const SAME: [&str; 9] = [
    "enum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
];

/// Returns the structural schema of a named schema of the document.
///
/// # Panics
/// If the document has no such schema, or the schema uses an unsupported construct; a test converts
/// all schemas that are used.
#[must_use]
pub fn structural(openapi: &Value, name: &str) -> Value {
    let schemas = openapi["components"]["schemas"]
        .as_object()
        .expect("the document has schemas");
    let mut conversion = Conversion {
        schemas,
        within: Vec::new(),
    };
    conversion.named(name)
}

struct Conversion<'a> {
    schemas: &'a Map<String, Value>,
    /// Named schemas that are being expanded, outermost first.
    within: Vec<&'a str>,
}

impl<'a> Conversion<'a> {
    fn named(&mut self, name: &str) -> Value {
        let (name, schema) = self
            .schemas
            .get_key_value(name)
            .unwrap_or_else(|| panic!("the document has no schema {name}"));
        if self.within.contains(&name.as_str()) {
            return described(json!({ "type": "object", KEPT: true }), schema);
        }
        self.within.push(name);
        let converted = self.convert(schema);
        self.within.pop();
        converted
    }

    fn convert(&mut self, schema: &'a Value) -> Value {
        let converted = if let Some(name) = reference(schema) {
            self.named(name)
        } else if let Some(choices) = choices(schema) {
            match choices.as_slice() {
                [one] => self.convert(one),
                _ => self.choice(schema),
            }
        } else {
            self.plain(schema)
        };
        described(converted, schema)
    }

    fn plain(&mut self, schema: &'a Value) -> Value {
        let mut converted = Map::new();
        for keyword in SAME {
            if let Some(value) = schema.get(keyword) {
                converted.insert(keyword.to_owned(), value.clone());
            }
        }
        let Some(kind) = kind(schema) else {
            return json!({ KEPT: true });
        };
        if schema[QUANTITY] == true {
            return quantity(converted);
        }
        converted.insert("type".to_owned(), kind.into());
        // An exclusive bound is a number in OpenAPI 3.1, and a flag beside the bound in Kubernetes'
        // version.
        for (exclusive, bound) in [
            ("exclusiveMinimum", "minimum"),
            ("exclusiveMaximum", "maximum"),
        ] {
            if let Some(value) = schema.get(exclusive).filter(|value| value.is_number()) {
                converted.insert(bound.to_owned(), value.clone());
                converted.insert(exclusive.to_owned(), true.into());
            }
        }
        match kind {
            "array" => {
                let items = schema
                    .get("items")
                    .map_or(json!({ KEPT: true }), |items| self.convert(items));
                converted.insert("items".to_owned(), items);
            }
            "object" => self.object(schema, &mut converted),
            _ => {}
        }
        Value::Object(converted)
    }

    fn object(&mut self, schema: &'a Value, converted: &mut Map<String, Value>) {
        if let Some(values) = schema
            .get("additionalProperties")
            .filter(|values| values.is_object())
        {
            converted.insert("additionalProperties".to_owned(), self.convert(values));
            return;
        }
        let Some(fields) = schema.get("properties").and_then(Value::as_object) else {
            converted.insert(KEPT.to_owned(), true.into());
            return;
        };
        let fields: Map<String, Value> = fields
            .iter()
            .map(|(name, field)| (name.clone(), self.convert(field)))
            .collect();
        converted.insert("properties".to_owned(), fields.into());
        if let Some(required) = schema.get("required") {
            converted.insert("required".to_owned(), required.clone());
        }
    }

    fn choice(&mut self, schema: &'a Value) -> Value {
        let mut raw = Vec::new();
        self.flatten(schema, &mut raw);
        let variants: Vec<Value> = raw
            .into_iter()
            .map(|variant| self.convert(variant))
            .collect();
        if are_all_of_kind(&variants, "object")
            && variants
                .iter()
                .all(|variant| variant["properties"].is_object())
        {
            return one_of(&variants);
        }
        if are_all_of_kind(&variants, "string") {
            return variants
                .into_iter()
                .reduce(|a, b| either(&a, &b))
                .expect("a choice has variants");
        }
        json!({ KEPT: true })
    }

    /// Collects the variants of a choice, including those of nested choices.
    fn flatten(&self, schema: &'a Value, into: &mut Vec<&'a Value>) {
        if let Some(choices) = choices(schema) {
            for choice in choices {
                self.flatten(choice, into);
            }
        } else if let Some(named) = reference(schema)
            .map(|name| &self.schemas[name])
            .filter(|named| choices(named).is_some())
        {
            self.flatten(named, into);
        } else {
            into.push(schema);
        }
    }
}

fn are_all_of_kind(variants: &[Value], kind: &str) -> bool {
    variants.iter().all(|variant| variant["type"] == kind)
}

/// Schema of an integer number of bytes or a text with a unit, like Kubernetes' own quantities.
/// Bounds apply to numbers only; the REST interface validates the text.
fn quantity(mut converted: Map<String, Value>) -> Value {
    converted.remove("format");
    converted.insert(
        "anyOf".to_owned(),
        json!([{ "type": "integer" }, { "type": "string" }]),
    );
    converted.insert("pattern".to_owned(), QUANTITY_PATTERN.into());
    converted.insert(INT_OR_STRING.to_owned(), true.into());
    Value::Object(converted)
}

/// Merges the variants into one object with the fields of all, and rules that state which fields
/// belong together.
fn one_of(variants: &[Value]) -> Value {
    let mut fields: BTreeMap<&str, Value> = BTreeMap::new();
    for (name, field) in variants.iter().flat_map(fields_of) {
        let field = match fields.get(name.as_str()) {
            Some(before) => either(before, field),
            None => field.clone(),
        };
        fields.insert(name, field);
    }
    let in_all: Vec<&str> = fields
        .keys()
        .copied()
        .filter(|name| {
            variants
                .iter()
                .all(|variant| required(variant).contains(name))
        })
        .collect();
    let rules: Vec<Value> = variants
        .iter()
        .map(|variant| rule(variant, fields.keys()))
        .collect();
    let mut one = json!({ "type": "object", "properties": fields, "oneOf": rules });
    if !in_all.is_empty() {
        one["required"] = json!(in_all);
    }
    one
}

/// Rule that holds for an object of this variant and of no other.
fn rule<'a>(variant: &'a Value, all: impl Iterator<Item = &'a &'a str>) -> Value {
    let own: BTreeSet<&str> = fields_of(variant).map(|(name, _)| name.as_str()).collect();
    let foreign: Vec<Value> = all
        .filter(|name| !own.contains(*name))
        .map(|name| json!({ "required": [name] }))
        .collect();
    let fixed: Map<String, Value> = fields_of(variant)
        .filter(|(_, field)| {
            field["enum"]
                .as_array()
                .is_some_and(|values| values.len() == 1)
        })
        .map(|(name, field)| (name.clone(), json!({ "enum": field["enum"] })))
        .collect();
    let mut rule = Map::new();
    if !fixed.is_empty() {
        rule.insert("properties".to_owned(), fixed.into());
    }
    if !required(variant).is_empty() {
        rule.insert("required".to_owned(), variant["required"].clone());
    }
    if !foreign.is_empty() {
        rule.insert("not".to_owned(), json!({ "anyOf": foreign }));
    }
    rule.into()
}

/// Returns a schema that accepts the values of both.
fn either(a: &Value, b: &Value) -> Value {
    if a == b {
        return a.clone();
    }
    let told = match (a["description"].as_str(), b["description"].as_str()) {
        (Some(a), Some(b)) if a != b => Some(format!("{a} Or: {b}")),
        (a, b) => a.or(b).map(str::to_owned),
    };
    let mut both = match (a["type"].as_str(), b["type"].as_str()) {
        (Some("object"), Some("object"))
            if a["properties"].is_object() && b["properties"].is_object() =>
        {
            one_of(&[a.clone(), b.clone()])
        }
        (Some("array"), Some("array")) => {
            json!({ "type": "array", "items": either(&a["items"], &b["items"]) })
        }
        (Some(kind), Some(other)) if kind == other && kind != "object" => scalar(kind, a, b),
        (Some("integer" | "number"), Some("integer" | "number")) => scalar("number", a, b),
        (None, None) if a[INT_OR_STRING] == true && b[INT_OR_STRING] == true => {
            let mut both = a.clone();
            both.as_object_mut()
                .expect("a schema")
                .remove("description");
            both
        }
        _ => json!({ KEPT: true }),
    };
    // Variants differ in more than their fields only if one of them is itself a choice; the REST
    // interface validates that case.
    if a.get("oneOf").is_some() || b.get("oneOf").is_some() {
        both.as_object_mut().expect("a schema").remove("oneOf");
    }
    if let Some(told) = told {
        both["description"] = told.into();
    }
    both
}

fn scalar(kind: &str, a: &Value, b: &Value) -> Value {
    let mut both = json!({ "type": kind });
    if let (Some(values), Some(others)) = (a["enum"].as_array(), b["enum"].as_array()) {
        let mut union = values.clone();
        union.extend(
            others
                .iter()
                .filter(|value| !values.contains(value))
                .cloned(),
        );
        both["enum"] = union.into();
    }
    if let (Some(least), Some(other)) = (a["minimum"].as_f64(), b["minimum"].as_f64()) {
        both["minimum"] = if least <= other {
            &a["minimum"]
        } else {
            &b["minimum"]
        }
        .clone();
    }
    if let (Some(most), Some(other)) = (a["maximum"].as_f64(), b["maximum"].as_f64()) {
        both["maximum"] = if most >= other {
            &a["maximum"]
        } else {
            &b["maximum"]
        }
        .clone();
    }
    if a["format"] == b["format"] && a["format"].is_string() {
        both["format"] = a["format"].clone();
    }
    both
}

/// Adds the description of the source schema, and the default as text. Kubernetes receives no
/// defaults, so that an object keeps exactly what its user wrote.
fn described(mut converted: Value, from: &Value) -> Value {
    if let Some(words) = from["description"].as_str() {
        converted["description"] = words.replace('\n', " ").into();
    }
    let default = &from["default"];
    if default.is_number() || default.is_string() || default.is_boolean() {
        let words = converted["description"].as_str().unwrap_or_default();
        converted["description"] = format!("{words} {default} when left out.").trim().into();
    }
    converted
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix(PREFIX)
}

/// Returns the variants of the schema's choice without null, because a null field counts as absent.
fn choices(schema: &Value) -> Option<Vec<&Value>> {
    let all = schema["oneOf"].as_array()?;
    Some(
        all.iter()
            .filter(|choice| choice["type"] != "null")
            .collect(),
    )
}

/// Returns the type other than null; `None` if any type is permitted.
fn kind(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::String(kind) => Some(kind),
        Value::Array(kinds) => kinds
            .iter()
            .filter_map(Value::as_str)
            .find(|kind| *kind != "null"),
        _ => None,
    }
}

fn fields_of(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object["properties"].as_object().into_iter().flatten()
}

fn required(object: &Value) -> Vec<&str> {
    let names = object["required"].as_array().into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}
