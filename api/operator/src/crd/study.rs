//! Definition of the custom resource `Study`, a hyper-parameter search. Its spec is the study
//! document of the OpenAPI description. Every text here is part of the definition.

use super::rules::{fixed, short_name};
use super::{
    CustomResourceKind, age, column, conditions, flag, structural, text, time, whole, wide,
};
use serde_json::{Value, json};

/// Fields of the study document for which an object has fields of its own, outside the spec.
const OBJECT_FIELDS: [&str; 3] = ["version", "kind", "name"];

pub(super) fn definition(openapi: &Value) -> Value {
    CustomResourceKind {
        kind: "Study",
        plural: "studies",
        singular: "study",
        short: &["mstudy"],
        scope: "Namespaced",
        about: "A search of Muster's over parameters, whose trials are jobs. Its name is the object's. Deleting the object cancels the study.",
        columns: json!([
            column("Phase", "string", ".status.phase", "Where the study stands."),
            column("Queue", "string", ".status.queue", "The tenant whose quota its trials count against."),
            column("Trials", "string", ".status.trials", "Trials that have ended, of how many there may be."),
            column("Running", "integer", ".status.running", "Trials that run."),
            column("Best", "string", ".status.best", "What the best trial has reached."),
            age(),
            wide("Reason", "string", ".status.reason", "Why Muster refused it."),
            wide("Study", "string", ".status.studyId", "Its id in Muster."),
        ]),
        spec: spec(openapi),
        scales: false,
        status: status(),
        rules: object_rules(),
    }
    .definition()
}

fn spec(openapi: &Value) -> Value {
    let mut spec = structural(openapi, "StudySpec");
    let fields = spec["properties"]
        .as_object_mut()
        .expect("the document has fields");
    for field in OBJECT_FIELDS {
        fields.remove(field);
    }
    let suspend = "Hold the study: one that was not created yet is not created, one that was is paused: no new trial starts, \
                   and those that run go on. Without it, the study goes on.";
    fields.insert("suspend".to_owned(), flag(suspend));
    spec["required"] = json!(["search"]);
    spec
}

/// Returns the CEL rules of the whole object. A study name has at most 55 characters, because its
/// trials are named `name-0` and so on.
fn object_rules() -> Value {
    let mut rules = short_name(55);
    let list = rules.as_array_mut().expect("a list of rules");
    list.extend(["job", "labels", "search"].map(|field| fixed(field, "studyId", "spec.suspend")));
    rules
}

fn status() -> Value {
    json!({
        "type": "object",
        "description": "What became of it; written by the operator alone.",
        "properties": {
            "phase": text("Where the study stands: Held where spec.suspend keeps it from being created, then as Muster has it, and \
                           Misconfigured where Muster refused it."),
            "studyId": text("Its id in Muster."),
            "queue": text("The tenant whose study it is."),
            "trials": text("Trials that have ended, of how many there may be, such as 12/40."),
            "running": whole("Trials that run."),
            "failed": whole("Trials that failed."),
            "best": text("Number and values of the best trial."),
            "reason": text("Why Muster refused it."),
            "message": text("The same in a sentence."),
            "finishedAt": time("When it ended."),
            "suspended": flag("Whether it was spec.suspend that paused it; only then is it resumed when that is taken away."),
            "observedGeneration": whole("The metadata.generation that was last acted upon."),
            "conditions": conditions("Submitted, Suspended, Finished, Misconfigured."),
        },
    })
}
