//! Evaluates the rules of the definitions as a server with CEL does, and compares the result with
//! the REST interface's.

use crate::crd::all;
use crate::crd::tests::examples;
use cel::{Context, Program, Value as Cel};
use muster_model::spec::JobSpec;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};

/// A valid object, and changes of it that make it invalid or keep it valid.
fn objects() -> Value {
    serde_norway::from_str(include_str!("../objects.yaml")).expect("YAML")
}

/// Schema of the objects of a kind.
fn schema(kind: &str) -> Value {
    let definition = all()
        .into_iter()
        .find(|definition| definition["spec"]["names"]["kind"] == kind)
        .expect("a kind");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Returns the object with these fields; null removes a field.
fn with(object: &Value, fields: &Value) -> Value {
    let mut object = object.clone();
    for (path, value) in fields.as_object().expect("fields") {
        let (parents, field) = path.rsplit_once('.').expect("a path");
        let mut at = &mut object;
        for name in parents.split('.') {
            let fields = at.as_object_mut().expect("an object");
            at = fields.entry(name).or_insert_with(|| json!({}));
        }
        let fields = at.as_object_mut().expect("an object");
        match value {
            Value::Null => drop(fields.remove(field)),
            value => drop(fields.insert(field.to_owned(), value.clone())),
        }
    }
    object
}

fn field_schema<'a>(schema: &'a Value, name: &str) -> &'a Value {
    let field = schema["properties"].get(name);
    field.unwrap_or(&schema["additionalProperties"])
}

/// Converts a value as a server passes it to a rule: the schema decides whether a number is a
/// float.
fn to_cel(value: &Value, schema: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) if schema["type"] == "number" || !number.is_i64() => {
            Cel::Float(number.as_f64().expect("a number"))
        }
        Value::Number(number) => Cel::Int(number.as_i64().expect("a whole number")),
        Value::String(text) => text.clone().into(),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_cel(item, &schema["items"]));
            items.collect::<Vec<Cel>>().into()
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields
                .map(|(name, value)| (name.clone(), to_cel(value, field_schema(schema, name))));
            fields.collect::<HashMap<String, Cel>>().into()
        }
    }
}

/// Returns the messages of the rules that `new` violates, as an update of `old` if there is one.
fn broken(kind: &str, old: Option<&Value>, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    judge(&schema(kind), old, new, &mut found);
    found
}

fn judge(schema: &Value, old: Option<&Value>, new: &Value, found: &mut Vec<String>) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let text = rule["rule"].as_str().expect("a rule");
        let is_of_change = text.contains("oldSelf");
        if is_of_change && old.is_none() {
            continue;
        }
        let mut context = Context::default();
        context.add_variable_from_value("self", to_cel(new, schema));
        if let Some(old) = old.filter(|_| is_of_change) {
            context.add_variable_from_value("oldSelf", to_cel(old, schema));
        }
        let program = Program::compile(text).expect(text);
        match program.execute(&context) {
            Ok(Cel::Bool(true)) => {}
            Ok(Cel::Bool(false)) => {
                found.push(rule["message"].as_str().expect("a message").to_owned());
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    for (name, value) in new.as_object().into_iter().flatten() {
        if let Some(field) = schema["properties"].get(name) {
            judge(field, old.and_then(|old| old.get(name)), value, found);
        }
    }
}

/// Returns the REST interface's rejection of the object's job, or `None`.
fn refused(object: &Value) -> Option<String> {
    let mut document = object["spec"].as_object().expect("a spec").clone();
    document.remove("suspend");
    if let Some(replicas) = document.remove("replicas") {
        let scale = document.entry("scale").or_insert_with(|| Map::new().into());
        scale["workers"] = json!({ "min": replicas, "max": replicas });
    }
    document.insert("version".to_owned(), "muster/v1".into());
    document.insert("name".to_owned(), object["metadata"]["name"].clone());
    match serde_json::from_value::<JobSpec>(document.into()) {
        Err(error) => Some(error.to_string()),
        Ok(spec) => spec.validate().err().map(|errors| format!("{errors:?}")),
    }
}

#[test]
fn field_comparisons_are_rejected_by_rules_and_rest() {
    let objects = objects();
    let rows = objects["compared"].as_array().expect("a list");
    assert!(rows.len() >= 20);
    let mut seen = BTreeSet::new();
    for row in rows {
        let wrong = with(&objects["right"], &row[1]);
        let found = broken("TrainingJob", None, &wrong);
        let message = row[0].as_str().expect("how the message begins");
        assert_eq!(found.len(), 1, "{row}: {found:?}");
        assert!(found[0].starts_with(message), "{row}: {found:?}");
        assert!(
            refused(&wrong).is_some(),
            "{row} is right for the REST interface"
        );
        seen.extend(found);
    }
    // Every rule that compares fields of one object must have been violated once.
    let mut rules = Vec::new();
    messages(&schema("TrainingJob")["properties"]["spec"], &mut rules);
    let never: Vec<&String> = rules.iter().filter(|rule| !seen.contains(*rule)).collect();
    assert!(never.is_empty(), "{never:?}");
}

fn messages(schema: &Value, into: &mut Vec<String>) {
    let rules = schema["x-kubernetes-validations"].as_array();
    into.extend(
        rules
            .into_iter()
            .flatten()
            .map(|rule| rule["message"].as_str().expect("a message").to_owned()),
    );
    for (_, field) in schema["properties"].as_object().into_iter().flatten() {
        messages(field, into);
    }
}

#[test]
fn documents_accepted_by_rest_violate_no_rule() {
    let objects = objects();
    let right = &objects["right"];
    let mut all = vec![right.clone()];
    for fields in objects["also_right"].as_array().expect("a list") {
        all.push(with(right, fields));
    }
    for object in &all {
        assert_eq!(refused(object), None, "{object}");
        assert_eq!(
            broken("TrainingJob", None, object),
            Vec::<String>::new(),
            "{object}"
        );
    }
    // Objects that are invalid for other reasons: no rule finds a violation that the REST interface
    // accepts.
    for row in objects["wrong"].as_array().expect("a list") {
        let value = row[1].as_str().expect("a value");
        let value: Value = serde_norway::from_str(value).expect("YAML");
        let path = row[0].as_str().expect("a path");
        // These two fields do not exist in the REST interface.
        if !["spec", "spec.suspend"].contains(&path) {
            let wrong = with(right, &json!({ path: value }));
            assert!(refused(&wrong).is_some(), "{row}");
        }
    }
}

#[test]
fn examples_violate_no_rule() {
    let examples = examples("examples");
    assert!(examples.len() >= 8, "{}", examples.len());
    for (path, spec) in examples {
        let object = json!({ "metadata": { "name": spec["name"] }, "spec": spec });
        let found = broken("TrainingJob", None, &object);
        assert!(found.is_empty(), "{path}: {found:?}");
    }
}

#[test]
fn submitted_specs_are_immutable_except_changeable_fields() {
    let right = &objects()["right"];
    let submitted = with(right, &json!({ "status.jobId": "x" }));
    let engine = json!({ "spec.engine.seed": 7 });
    let less = json!({ "spec.checkpoint": null });
    let more = json!({ "spec.retries": 1 });
    let shards = json!({ "spec.scale.ps_shards": { "min": 1, "max": 2 } });
    for (fields, field) in [
        (&engine, "engine"),
        (&less, "checkpoint"),
        (&more, "retries"),
        (&shards, "scale.ps_shards"),
    ] {
        let found = broken("TrainingJob", Some(&submitted), &with(&submitted, fields));
        assert_eq!(found.len(), 1, "{fields}: {found:?}");
        let begins = format!("spec.{field}: it cannot change any more");
        assert!(found[0].starts_with(&begins), "{fields}: {found:?}");
        // Before the submission a rejected object may be corrected.
        let found = broken("TrainingJob", Some(right), &with(right, fields));
        assert_eq!(found, Vec::<String>::new(), "{fields}");
    }
    for fields in [
        json!({ "spec.suspend": true }),
        json!({ "spec.replicas": 2 }),
        json!({ "spec.priority": 5 }),
        json!({ "spec.priority_class": "urgent" }),
        json!({ "spec.scale.workers": { "min": 1, "max": 8 } }),
        json!({ "status.phase": "Running" }),
        json!({}),
    ] {
        let found = broken("TrainingJob", Some(&submitted), &with(&submitted, &fields));
        assert_eq!(found, Vec::<String>::new(), "{fields}");
    }
    let job = json!({ "command": { "argv": ["true"] } });
    let study = json!({
        "metadata": { "name": "s" }, "spec": { "job": job, "search": { "trials": 3 } }, "status": { "studyId": "x" },
    });
    let changed = with(&study, &json!({ "spec.search.trials": 4 }));
    let found = broken("Study", Some(&study), &changed);
    assert!(
        found.len() == 1 && found[0].starts_with("spec.search:"),
        "{found:?}"
    );
    let held = with(&study, &json!({ "spec.suspend": true }));
    assert_eq!(broken("Study", Some(&study), &held), Vec::<String>::new());
}

#[test]
fn long_names_and_names_with_dots_are_rejected() {
    let long = "a".repeat(56);
    for (kind, name, is_right) in [
        ("Tenant", "vision", true),
        ("Tenant", "vision.old", false),
        ("Tenant", long.as_str(), true),
        ("Study", long.as_str(), false),
    ] {
        let object = json!({ "metadata": { "name": name }, "spec": {} });
        let found = broken(kind, None, &object);
        assert_eq!(found.is_empty(), is_right, "{kind} {name}: {found:?}");
    }
}

/// A server rejects a definition with a rule on a field that is not in the schema or has no type.
#[test]
fn rules_name_only_typed_fields_of_the_schema() {
    fn check(schema: &Value, at: &str) {
        for rule in schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            for path in paths(rule["rule"].as_str().expect("a rule")) {
                // Servers show this metadata of the object itself, independently of the schema.
                if at.is_empty() && path.starts_with("metadata.name") {
                    continue;
                }
                let mut field = schema;
                for name in path
                    .split('.')
                    .filter(|name| !["size", "contains"].contains(name))
                {
                    field = &field["properties"][name];
                    assert!(field["type"].is_string(), "{at}: {path}: {name}");
                }
            }
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            check(field, &format!("{at}.{name}"));
        }
    }
    for definition in all() {
        let kind = definition["spec"]["names"]["kind"]
            .as_str()
            .expect("a kind");
        check(&schema(kind), "");
    }
}

/// Returns the paths after `self.` and `oldSelf.`.
fn paths(rule: &str) -> Vec<String> {
    let words = rule.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
    let of_self = words.filter_map(|word| {
        word.strip_prefix("self.")
            .or_else(|| word.strip_prefix("oldSelf."))
    });
    of_self.map(str::to_owned).collect()
}
