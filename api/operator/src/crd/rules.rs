//! CEL rules: constraints between fields, and immutable fields. Servers with CEL reject a violation
//! at admission; on other servers the REST interface rejects it.
//!
//! No rule rejects an object that the REST interface accepts. No rule names a field without a type,
//! because a server would reject the definition. Tests check both. Servers estimate the cost of a
//! rule from the largest object that the schema permits, so no rule iterates over a list or a map.

use serde_json::{Value, json};

/// Sizes of a job with `power_of_two`.
const POWERS: &str = "[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]";

/// Limits the object's name, because it becomes a name in Muster, which is a DNS label.
pub(super) fn short_name(most: u32) -> Value {
    json!([{
        "rule": format!("self.metadata.name.size() <= {most} && !self.metadata.name.contains('.')"),
        "message": format!("metadata.name: expected at most {most} characters of a-z, 0-9 and '-', since it becomes the name in Muster"),
    }])
}

/// Makes a field of the spec immutable once the status names the id; a rejected object may still be
/// corrected. On servers without CEL the operator shows the condition `Misconfigured`. `changeable`
/// names the fields that can change.
pub(super) fn fixed(field: &str, id: &str, changeable: &str) -> Value {
    let (mut has, mut has_had, mut path) = (Vec::new(), Vec::new(), String::new());
    // Every field on the path may be absent.
    for part in field.split('.') {
        path = format!("{path}.{part}");
        has.push(format!("has(self.spec{path})"));
        has_had.push(format!("has(oldSelf.spec{path})"));
    }
    let (has, has_had) = (has.join(" && "), has_had.join(" && "));
    json!({
        "rule": format!(
            "!has(oldSelf.status) || !has(oldSelf.status.{id}) || \
             ({has_had} ? {has} && self.spec{path} == oldSelf.spec{path} : !({has}))"
        ),
        "message": format!("spec.{field}: it cannot change any more; only {changeable} can"),
    })
}

/// Metrics of a target that evaluations measure.
const EVALUATED: &str = "['test_accuracy', 'test_loss']";

/// Adds the rules to the fields of a job document. An absent field has its default, which violates
/// no rule.
pub(super) fn of_job(spec: &mut Value) {
    spec["x-kubernetes-validations"] = of_spec();
    let fields = &mut spec["properties"];
    for range in ["workers", "ps_shards"] {
        fields["scale"]["properties"][range]["x-kubernetes-validations"] = json!([{
            "rule": "self.min <= self.max",
            "message": format!("scale.{range}: expected min to be at most max"),
        }]);
    }
    fields["command"]["x-kubernetes-validations"] = json!([{
        "rule": "!has(self.working_dir) || !has(self.files) || self.files.size() == 0",
        "message": "command.files: expected none beside working_dir, as files lie in a new folder of the task, where the program is then started",
    }]);
    fields["stop"]["properties"]["target"]["x-kubernetes-validations"] = of_target();
    fields["verdicts"]["x-kubernetes-validations"] =
        json!([verdict_rule("straggler_s"), verdict_rule("hang_s")]);
}

fn of_target() -> Value {
    json!([
        rule(
            "self.metric != 'test_accuracy' || self.value <= 1.0",
            "stop.target.value: expected at most 1 of test_accuracy",
        ),
        rule(
            &format!("!(self.metric in {EVALUATED}) || self.value > 0.0"),
            "stop.target.value: expected above 0",
        ),
        rule(
            &format!("self.metric in {EVALUATED} || has(self.goal)"),
            "stop.target.goal: expected minimize or maximize for a metric that the program logs",
        ),
        rule(
            "!has(self.goal) || self.metric != 'test_accuracy' || self.goal == 'maximize'",
            "stop.target.goal: expected none, or maximize, the goal of test_accuracy",
        ),
        rule(
            "!has(self.goal) || self.metric != 'test_loss' || self.goal == 'minimize'",
            "stop.target.goal: expected none, or minimize, the goal of test_loss",
        ),
    ])
}

fn verdict_rule(field: &str) -> Value {
    rule(
        &format!(
            "!has(self.{field}) || self.{field} == 0 || (self.{field} >= 5 && self.{field} <= 86400)"
        ),
        &format!("verdicts.{field}: expected 5 to 86400 seconds, or 0: never"),
    )
}

fn rule(rule: &str, message: &str) -> Value {
    json!({ "rule": rule, "message": message })
}

fn of_spec() -> Value {
    let powers = format!(
        "!has(self.scale) || !has(self.scale.power_of_two) || !self.scale.power_of_two || \
         (has(self.replicas) ? self.replicas in {POWERS} : !has(self.scale.workers) || \
         (self.scale.workers.min in {POWERS} && self.scale.workers.max in {POWERS}))"
    );
    json!([
        rule(
            "has(self.engine) != has(self.command)",
            "spec: expected engine, for what the built-in engine trains, or command, for a program of your own: one of the two",
        ),
        rule(
            "!has(self.engine) || (has(self.stop) && (has(self.stop.epochs) || has(self.stop.steps) || has(self.stop.wall_minutes)))",
            "spec.stop: expected epochs, steps or wall_minutes, since the engine must know when to stop",
        ),
        rule(
            "!has(self.command) || !has(self.stop) || \
             !(has(self.stop.epochs) || has(self.stop.steps) || has(self.stop.convergence))",
            "spec.stop: expected at most wall_minutes and target, since a command is done when its workers have ended; command.steps says how long it is",
        ),
        rule(
            &format!(
                "!has(self.engine) || !has(self.stop) || !has(self.stop.target) || self.stop.target.metric in {EVALUATED}"
            ),
            "spec.stop.target.metric: expected test_accuracy or test_loss, since the engine logs no other metric",
        ),
        rule(
            "!has(self.interactive) || has(self.command)",
            "spec.interactive: expected none beside engine, since users work only in programs of their own",
        ),
        rule(
            "!has(self.command) || !has(self.scale) || !has(self.scale.ps_shards)",
            "spec.scale.ps_shards: expected none beside command, whose parameter_servers says how many there are",
        ),
        rule(
            "!has(self.engine) || has(self.replicas) || !has(self.scale) || !has(self.scale.workers) || \
             self.scale.workers.max <= self.engine.batch",
            "spec.scale.workers: expected max to be at most engine.batch, so that every worker has an example",
        ),
        rule(
            "!has(self.engine) || !has(self.replicas) || self.replicas <= self.engine.batch",
            "spec.replicas: expected at most engine.batch, so that every worker has an example",
        ),
        rule(
            &powers,
            "spec.scale.workers: expected 1, 2, 4, 8 and so on with power_of_two, or such a spec.replicas",
        ),
        rule(
            "!has(self.engine) || !has(self.exchange) || !has(self.exchange.topology) || self.exchange.topology != 'all_reduce' || \
             !has(self.scale) || !has(self.scale.ps_shards) || self.scale.ps_shards.max == 0",
            "spec.scale.ps_shards: expected none with all_reduce",
        ),
    ])
}

#[cfg(test)]
mod tests;
