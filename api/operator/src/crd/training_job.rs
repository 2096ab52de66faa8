//! `TrainingJob`: a job document as an object of a namespace.

use super::rules::{self, fixed, short_name};
use super::{
    CustomResourceKind, age, column, conditions, flag, structural, text, time, whole, wide,
};
use crate::job::edit::CHANGEABLE;
use serde_json::{Value, json};

/// Fields of the job document that Kubernetes has in another place.
const ELSEWHERE: [&str; 2] = ["version", "name"];

pub(super) fn definition(openapi: &Value) -> Value {
    let spec = spec(openapi);
    CustomResourceKind {
        kind: "TrainingJob",
        plural: "trainingjobs",
        singular: "trainingjob",
        short: &["mj"],
        scope: "Namespaced",
        about: "A training job of Muster's: what the built-in engine shall train, or a program of the user's own. Its name is the object's. \
                Deleting the object cancels the job.",
        columns: columns(),
        scales: true,
        status: status(),
        rules: whole_rules(&spec),
        spec,
    }
    .definition()
}

fn columns() -> Value {
    json!([
        column("Phase", "string", ".status.phase", "Where the job stands."),
        column(
            "Queue",
            "string",
            ".status.queue",
            "The tenant whose quota it counts against."
        ),
        column(
            "Pos",
            "integer",
            ".status.position",
            "Its place among the waiting jobs."
        ),
        column(
            "Workers",
            "string",
            ".status.workers",
            "Workers that run, and between which numbers the scheduler may choose."
        ),
        column("PS", "string", ".status.psShards", "The same of PS shards."),
        column(
            "Progress",
            "string",
            ".status.progress",
            "How much of the training is done."
        ),
        column(
            "ETA",
            "string",
            ".status.eta",
            "How long it will still take, as estimated."
        ),
        age(),
        wide(
            "Reason",
            "string",
            ".status.reason",
            "Why it does not run, or why it failed."
        ),
        wide("Job", "string", ".status.jobId", "Its id in Muster."),
    ])
}

fn spec(openapi: &Value) -> Value {
    let mut spec = structural(openapi, "JobSpec");
    let fields = spec["properties"]
        .as_object_mut()
        .expect("the document has fields");
    for field in ELSEWHERE {
        fields.remove(field);
    }
    let suspend = "Hold the job: one that was not submitted yet is not submitted, one that was is paused, and gives its GPUs back after a \
                   checkpoint. Without it, the job goes on.";
    fields.insert("suspend".to_owned(), flag(suspend));
    fields.insert("replicas".to_owned(), replicas());
    let document = spec.as_object_mut().expect("a schema");
    document.remove("required");
    // Constraints that every server supports come first; CEL adds constraints between fields.
    document.insert(
        "oneOf".to_owned(),
        json!([{ "required": ["engine"] }, { "required": ["command"] }]),
    );
    rules::of_job(&mut spec);
    spec
}

/// Field that `kubectl scale` sets.
fn replicas() -> Value {
    json!({
        "type": "integer", "format": "int32", "minimum": 1, "maximum": 1024,
        "description": "Exact number of workers, in place of scale.workers; kubectl scale sets it. Without it scale.workers applies.",
    })
}

/// Rules of the whole object. After the submission, only the range of workers, the priority and
/// its class can be changed by the REST interface.
fn whole_rules(spec: &Value) -> Value {
    let mut rules = short_name(63);
    let list = rules.as_array_mut().expect("a list of rules");
    let fields = spec["properties"].as_object().into_iter().flatten();
    let fixed_ones = fields.flat_map(|(field, of)| match field.as_str() {
        "suspend" | "replicas" | "priority" | "priority_class" => Vec::new(),
        "scale" => {
            let parts = of["properties"].as_object().into_iter().flatten();
            let parts = parts.filter(|(part, _)| *part != "workers");
            parts.map(|(part, _)| format!("scale.{part}")).collect()
        }
        _ => vec![field.clone()],
    });
    list.extend(fixed_ones.map(|field| fixed(&field, "jobId", CHANGEABLE)));
    rules
}

fn status() -> Value {
    json!({
        "type": "object",
        "description": "What became of it; written by the operator alone.",
        "properties": {
            "phase": text("Where the job stands: Held where spec.suspend keeps it from being submitted, then as Muster has it: Queued, \
                           Starting, Running, Suspended, Stopping, Paused, Succeeded, Failed, Cancelled; and Misconfigured where Muster \
                           refused it."),
            "jobId": text("Its id in Muster."),
            "queue": text("The tenant whose job it is, and whose quota it counts against."),
            "position": whole("Its place among the waiting jobs, from 1."),
            "workers": text("Workers that run, and between which numbers the scheduler may choose, such as 3/2..8."),
            "psShards": text("The same of PS shards."),
            "replicas": whole("Workers that run."),
            "progress": text("Share of the steps that are done, or the step if the number of steps is not known."),
            "step": whole("The newest step that is known."),
            "eta": text("How long it will still take, as estimated."),
            "reason": text("Why it does not run, in Kueue's words, or why it failed."),
            "message": text("The same in a sentence, with the smallest change that would let it start."),
            "modelPath": text("Where the trained model is, relative to the checkpoint root."),
            "failures": whole("Restarts that were charged to spec.retries."),
            "submittedAt": time("When it was submitted."),
            "startedAt": time("When it first started."),
            "finishedAt": time("When it ended."),
            "suspended": flag("Whether it was spec.suspend that stopped it; only then is it resumed when that is taken away."),
            "observedGeneration": whole("The metadata.generation that was last acted upon."),
            "conditions": conditions("Submitted, Admitted (False with Kueue's reason while it waits), Suspended, Finished, Misconfigured."),
        },
    })
}
