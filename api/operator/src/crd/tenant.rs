//! `Tenant`: owner of jobs with its quota and weight, as a cluster-scoped object.

use super::rules::short_name;
use super::{CustomResourceKind, age, column, conditions, flag, structural, text, whole, wide};
use muster_model::tenant::MAX_LIMIT;
use serde_json::{Value, json};

pub(super) fn definition(openapi: &Value) -> Value {
    CustomResourceKind {
        kind: "Tenant",
        plural: "tenants",
        singular: "tenant",
        short: &["mt"],
        scope: "Cluster",
        about: "A tenant of Muster's: how many GPUs its jobs may hold at once, and what share of the cluster is its own. Namespaces belong \
                to the tenant that their label muster.dev/tenant names. Deleting the object leaves the tenant and its jobs as they are.",
        columns: json!([
            column("Quota", "integer", ".spec.quota.gpus", "GPUs that its jobs may hold at once."),
            column("Weight", "number", ".spec.weight", "Its share beside the other tenants' weights."),
            column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", "Whether Muster has it so."),
            age(),
            wide("Reason", "string", ".status.reason", "Why Muster refused it."),
        ]),
        spec: json!({
            "type": "object",
            "description": "What is wanted of it.",
            "properties": {
                "quota": {
                    "type": "object",
                    "description": "What its jobs may hold at once. No limit when left out.",
                    "required": ["gpus"],
                    "properties": {
                        "gpus": {
                            "type": "integer",
                            "format": "int64",
                            "minimum": 0,
                            "maximum": u32::MAX,
                            "description": "GPUs (or CPU slots).",
                        },
                    },
                },
                "weight": {
                    "type": "number",
                    "minimum": 0.001,
                    "maximum": 1000,
                    "description": "Its share of the cluster beside the other tenants' weights: twice the weight, twice the share. As it is, or 1, \
                                    when left out.",
                },
                "pods": pods(openapi),
                "limits": limits(openapi),
                "preemption": preemption(openapi),
                "sharesFamilies": flag("Measured speeds of its job families count for equal families of other tenants that share, and theirs for \
                                        its own. As it is, or false, when left out."),
                "interactive": flag("Its members may open remote sessions (muster exec, port-forward, cp) in the tasks of its jobs. As it is, or \
                                     false, when left out."),
            },
        }),
        scales: false,
        status: json!({
            "type": "object",
            "description": "What became of it; written by the operator alone.",
            "properties": {
                "tenantId": text("Its id in Muster."),
                "reason": text("Why Muster refused it."),
                "message": text("The same in a sentence."),
                "observedGeneration": whole("The metadata.generation that was last acted upon."),
                "pods": flag("spec.pods has said what the pods of its tasks may have: once it does not any more, all of that is taken away."),
                "conditions": conditions("Ready, Misconfigured."),
            },
        }),
        rules: short_name(63),
    }
    .definition()
}

fn limits(openapi: &Value) -> Value {
    let mut limits = structural(openapi, "TenantLimits");
    let fields = limits.as_object_mut().expect("a schema is an object");
    fields.remove("required");
    for limit in fields["properties"].as_object_mut().into_iter().flatten() {
        limit.1["maximum"] = MAX_LIMIT.into();
    }
    fields.insert(
        "description".to_owned(),
        "What its users may have open at once, and what is stored of one of its jobs. A limit that is left out stays as \
         `muster tenants limits` has set it."
            .into(),
    );
    limits
}

fn preemption(openapi: &Value) -> Value {
    let mut caps = structural(openapi, "TenantPreemption");
    caps["description"] = "Caps on what the documents of its jobs demand in preemption. A cap that is left out stays as `muster tenants \
                           preemption` has set it."
        .into();
    caps
}

fn pods(openapi: &Value) -> Value {
    let mut pods = structural(openapi, "TenantPods");
    pods["description"] = "What the pods of its tasks may have, all of it. Left out, what `muster tenants pods` says holds; what stood here before is \
                           taken away with it."
        .into();
    pods
}
