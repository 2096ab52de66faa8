use super::*;

/// Keywords that Kubernetes accepts in a structural schema.
const KNOWN: [&str; 26] = [
    "exclusiveMaximum",
    "exclusiveMinimum",
    "additionalProperties",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "oneOf",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
    "not",
    "anyOf",
];
/// Keywords that Kubernetes accepts in a rule beside the structure.
const RULE: [&str; 6] = ["properties", "required", "not", "anyOf", "enum", "oneOf"];

fn schemas() -> Vec<(String, Value)> {
    all()
        .iter()
        .map(|definition| {
            let kind = definition["spec"]["names"]["kind"].as_str();
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            (kind.expect("a kind").to_owned(), schema.clone())
        })
        .collect()
}

#[test]
fn chart_contains_the_printed_definitions() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../charts/muster/crds/muster.yaml"
    );
    if std::env::var_os("MUSTER_GOLDEN").is_some_and(|word| word == "write") {
        std::fs::write(path, yaml()).expect("the chart can be written");
    }
    let carried = std::fs::read_to_string(path).expect("the chart has definitions");
    assert!(
        carried == yaml(),
        "charts/muster/crds/muster.yaml is not what `muster-operator crds` prints; MUSTER_GOLDEN=write renews it"
    );
}

/// `kubectl apply` stores the definition in an annotation, whose limit is 256 KiB.
#[test]
fn definitions_fit_into_the_apply_annotation() {
    for definition in all() {
        let bytes = definition.to_string().len();
        assert!(
            bytes < 200_000,
            "{} has {bytes} bytes",
            definition["metadata"]["name"]
        );
    }
}

#[test]
fn byte_quantities_accept_units_of_the_job_document() {
    let schemas: std::collections::BTreeMap<String, Value> = schemas().into_iter().collect();
    let job = &schemas["TrainingJob"]["properties"]["spec"]["properties"];
    let worker = &job["resources"]["properties"]["worker"]["properties"]["memory_bytes"];
    let shard = &job["resources"]["properties"]["ps_shard"]["properties"]["memory_bytes"];
    let volume = &job["pod"]["properties"]["volumes"]["items"]["properties"]["bytes"];
    for amount in [worker, shard, volume] {
        assert_eq!(amount["x-kubernetes-int-or-string"], true, "{amount}");
        assert_eq!(
            amount["anyOf"],
            json!([{ "type": "integer" }, { "type": "string" }])
        );
        assert!(amount["pattern"].is_string() && amount["minimum"].is_number());
    }
}

#[test]
fn schemas_are_structural() {
    fn structural(schema: &Value, at: &str) {
        for keyword in schema.as_object().expect(at).keys() {
            assert!(KNOWN.contains(&keyword.as_str()), "{at}: {keyword}");
        }
        let free = schema["x-kubernetes-preserve-unknown-fields"] == true;
        let int_or_string = schema["x-kubernetes-int-or-string"] == true;
        assert!(
            schema["type"].is_string() || free || int_or_string,
            "{at} has no type"
        );
        if schema["type"] == "array" {
            structural(&schema["items"], &format!("{at}[]"));
        }
        assert!(
            !(schema["properties"].is_object() && schema["additionalProperties"].is_object()),
            "{at} is an object and a map"
        );
        if schema["additionalProperties"].is_object() {
            structural(&schema["additionalProperties"], &format!("{at}.*"));
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            // Kubernetes defines the metadata itself.
            if name == "metadata" && !at.contains('.') {
                continue;
            }
            structural(field, &format!("{at}.{name}"));
        }
        for choice in schema["oneOf"].as_array().into_iter().flatten() {
            rule(choice, schema, at);
        }
    }
    /// A rule contains no structure, and names only existing fields.
    fn rule(rule_: &Value, schema: &Value, at: &str) {
        for (keyword, value) in rule_.as_object().expect(at) {
            assert!(
                RULE.contains(&keyword.as_str()),
                "{at}: {keyword} in a rule"
            );
            let named: Vec<&str> = match keyword.as_str() {
                "properties" => value
                    .as_object()
                    .expect(at)
                    .keys()
                    .map(String::as_str)
                    .collect(),
                "required" => value
                    .as_array()
                    .expect(at)
                    .iter()
                    .filter_map(Value::as_str)
                    .collect(),
                "not" => {
                    rule(value, schema, at);
                    continue;
                }
                "anyOf" => {
                    for choice in value.as_array().expect(at) {
                        rule(choice, schema, at);
                    }
                    continue;
                }
                _ => continue,
            };
            for name in named {
                assert!(
                    schema["properties"].get(name).is_some(),
                    "{at}: {name} of a rule is no field"
                );
            }
        }
    }
    for (kind, schema) in schemas() {
        structural(&schema, &kind);
    }
}

/// `kubectl explain` describes every field of the status.
#[test]
fn status_fields_are_described() {
    for (kind, schema) in schemas() {
        for (name, field) in schema["properties"]["status"]["properties"]
            .as_object()
            .expect("a status")
        {
            assert!(field["description"].is_string(), "{kind}.status.{name}");
        }
    }
}

/// Layers within layers would expand without end.
#[test]
fn choice_becomes_one_object_with_rules() {
    let openapi = serde_json::json!({ "components": { "schemas": {
        "Model": { "description": "What is trained.", "oneOf": [
            { "type": "object", "required": ["kind", "hidden"], "properties": {
                "kind": { "type": "string", "enum": ["mlp"] },
                "hidden": { "type": "array", "items": { "type": "integer", "minimum": 1, "maximum": 9 } },
                "share": { "type": "number", "default": 0.5, "description": "Of it." },
            } },
            { "type": "object", "required": ["kind"], "properties": {
                "kind": { "type": "string", "enum": ["nested"] },
                "inner": { "oneOf": [{ "$ref": "#/components/schemas/Model", "description": "Another." }, { "type": "null" }] },
                "side": { "oneOf": [{ "type": "integer" }, { "type": "array", "items": { "type": "integer" } }] },
            } },
        ] },
    } } });
    let model = structural(&openapi, "Model");
    assert_eq!(
        model["properties"]["kind"]["enum"],
        json!(["mlp", "nested"])
    );
    assert_eq!(model["required"], json!(["kind"]));
    assert_eq!(
        model["properties"]["share"]["description"],
        "Of it. 0.5 when left out."
    );
    assert_eq!(
        model["properties"]["inner"],
        json!({ "type": "object", "description": "Another.", "x-kubernetes-preserve-unknown-fields": true })
    );
    assert_eq!(
        model["properties"]["side"],
        json!({ "x-kubernetes-preserve-unknown-fields": true })
    );
    assert_eq!(
        model["oneOf"][0],
        json!({
            "properties": { "kind": { "enum": ["mlp"] } },
            "required": ["kind", "hidden"],
            "not": { "anyOf": [{ "required": ["inner"] }, { "required": ["side"] }] },
        })
    );
}

/// The definition has every field of the example documents and accepts them; Kubernetes would drop
/// unknown fields.
#[test]
fn examples_match_the_definitions() {
    for (kind, folder, fewest) in [
        ("TrainingJob", "examples", 8),
        ("Study", "examples/studies", 3),
    ] {
        let examples = examples(folder);
        assert!(examples.len() >= fewest, "{} of {kind}", examples.len());
        for (path, mut document) in examples {
            let fields = document.as_object_mut().expect("a document");
            for elsewhere in ["version", "kind", "name"] {
                fields.remove(elsewhere);
            }
            let found = faults(kind, &document);
            assert!(found.is_empty(), "{path}: {found:?}");
        }
    }
}

/// Returns the documents directly in this folder of the repository, with their paths.
pub(super) fn examples(folder: &str) -> Vec<(String, Value)> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut examples = Vec::new();
    for entry in std::fs::read_dir(format!("{root}/{folder}")).expect("examples") {
        let path = entry.expect("an example").path();
        if let Some("yaml" | "json") = path.extension().and_then(|end| end.to_str()) {
            let text = std::fs::read_to_string(&path).expect("an example");
            let document = serde_norway::from_str(&text).expect("YAML");
            examples.push((path.display().to_string(), document));
        }
    }
    examples
}

/// Verifies that the checker of `examples_match_the_definitions` finds faults.
#[test]
fn checker_finds_invalid_specs() {
    let right = json!({
        "engine": {
            "model": { "kind": "mlp", "hidden": [8] },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "sgd", "learning_rate": 0.1 },
            "batch": 128,
        },
        "stop": { "epochs": 1 },
    });
    assert_eq!(faults("TrainingJob", &right), Vec::<String>::new());
    for (place, value, fault) in [
        ("/engine/batch", json!(0), "spec.engine.batch: minimum"),
        ("/engine/batch", json!("many"), "spec.engine.batch: type"),
        (
            "/engine/model/kind",
            json!("tree"),
            "spec.engine.model.kind: enum",
        ),
        (
            "/engine/model",
            json!({ "kind": "mlp" }),
            "spec.engine.model: oneOf",
        ),
        (
            "/engine/model",
            json!({ "kind": "mlp", "hidden": [8], "depth": 18 }),
            "spec.engine.model: oneOf",
        ),
        (
            "/engine/optimizer",
            json!({ "kind": "sgd" }),
            "spec.engine.optimizer: required",
        ),
        ("/stop", json!({ "epoch": 1 }), "spec.stop.epoch: unknown"),
        ("", json!({}), "spec: oneOf"),
    ] {
        let mut wrong = right.clone();
        *wrong.pointer_mut(place).expect("a field") = value;
        let found = faults("TrainingJob", &wrong);
        assert!(found.iter().any(|one| one == fault), "{place}: {found:?}");
    }
}

/// Returns the violations of the kind's definition by this spec: places and keywords.
fn faults(kind: &str, spec: &Value) -> Vec<String> {
    let all = schemas();
    let (_, schema) = all
        .iter()
        .find(|(of, _)| of == kind)
        .expect("a kind that there is");
    let mut found = Vec::new();
    check(spec, &schema["properties"]["spec"], "spec", &mut found);
    found
}

fn check(value: &Value, schema: &Value, at: &str, found: &mut Vec<String>) {
    // A null field counts as absent.
    if value.is_null() {
        return;
    }
    for (keyword, said) in schema.as_object().into_iter().flatten() {
        if !passes(value, keyword, said, schema) {
            found.push(format!("{at}: {keyword}"));
        }
    }
    let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
    for (name, inner) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        let of_map = &schema["additionalProperties"];
        match schema["properties"].get(name) {
            Some(field) => check(inner, field, &at, found),
            None if of_map.is_object() => check(inner, of_map, &at, found),
            None if keeps => {}
            None => found.push(format!("{at}: unknown")),
        }
    }
    for inner in value.as_array().into_iter().flatten() {
        check(inner, &schema["items"], &format!("{at}[]"), found);
    }
}

/// Whether the value satisfies one keyword of a schema or of a rule, without its inner structure.
fn passes(value: &Value, keyword: &str, said: &Value, beside: &Value) -> bool {
    match keyword {
        "type" => match said.as_str().expect("a type") {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            _ => value.is_number(),
        },
        "enum" => items(said).any(|one| one == value),
        "required" => items(said).all(|name| {
            let name = name.as_str().expect("a name");
            value.get(name).is_some_and(|inner| !inner.is_null())
        }),
        "minimum" => is_within(value, said, &beside["exclusiveMinimum"], |value, least| {
            value >= least
        }),
        "maximum" => is_within(value, said, &beside["exclusiveMaximum"], |value, most| {
            value <= most
        }),
        "minItems" | "minLength" => length(value) >= said.as_u64().expect("a number"),
        "maxItems" | "maxLength" | "maxProperties" => {
            length(value) <= said.as_u64().expect("a number")
        }
        "not" => !passes_all(value, said, beside),
        "anyOf" => items(said).any(|rule| passes_all(value, rule, beside)),
        "oneOf" => {
            items(said)
                .filter(|rule| passes_all(value, rule, beside))
                .count()
                == 1
        }
        _ => true,
    }
}

/// Whether the value passes a schema of its own, such as one of a choice.
fn passes_all(value: &Value, rule: &Value, beside: &Value) -> bool {
    let mut rule = rule.as_object().into_iter().flatten();
    rule.all(|(keyword, said)| match keyword.as_str() {
        "properties" => said.as_object().into_iter().flatten().all(|(name, field)| {
            let inner = value.get(name);
            inner.is_none_or(|inner| passes(inner, "enum", &field["enum"], field))
        }),
        _ => passes(value, keyword, said, beside),
    })
}

/// Whether the value keeps a bound; a value that is not a number does.
fn is_within(
    value: &Value,
    bound: &Value,
    is_exclusive: &Value,
    is_right: fn(f64, f64) -> bool,
) -> bool {
    let (Some(value), Some(bound)) = (value.as_f64(), bound.as_f64()) else {
        return true;
    };
    is_right(value, bound) && (*is_exclusive != true || value != bound)
}

/// Number of items, characters or fields; 0 for other values.
fn length(value: &Value) -> u64 {
    let length = match value {
        Value::Array(items) => items.len(),
        Value::String(text) => text.chars().count(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    length as u64
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
