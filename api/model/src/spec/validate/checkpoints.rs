//! Rules for the checkpoints of a command, and for the fields that only one kind of job has.

use super::Errors;
use crate::metric::{NAME_RULE, is_name};
use crate::program_checkpoint::is_program_path;
use crate::spec::{CheckpointPolicy, KeepBest, Measure};

const WRITES_ITSELF: &str = "left out: a command decides itself when it writes a checkpoint into $MUSTER_CHECKPOINT_DIR; it may have files, keep and keep_best";
const ONLY_COMMANDS: &str = "left out: only commands have it";

/// Checks the policy of a command.
pub(super) fn check(errors: &mut Errors, policy: &CheckpointPolicy) {
    let default = CheckpointPolicy::default();
    for (field, is_left_out) in [
        ("every_steps", policy.every_steps == default.every_steps),
        (
            "every_minutes",
            policy.every_minutes == default.every_minutes,
        ),
        ("keep_every_steps", policy.keep_every_steps.is_none()),
    ] {
        let field = format!("checkpoint.{field}");
        errors.check(&field, &"given", is_left_out, WRITES_ITSELF);
    }
    if let Some(pattern) = &policy.files {
        let is_name = (1..=255).contains(&pattern.len())
            && !pattern.contains('/')
            && is_program_path(pattern);
        errors.check(
            "checkpoint.files",
            &format!("{pattern:?}"),
            is_name,
            "a pattern of 1 to 255 bytes for one name, such as \"checkpoint-*\", without / and control characters",
        );
    }
    if let Some(best) = &policy.keep_best {
        check_best(errors, best);
    }
}

fn check_best(errors: &mut Errors, best: &KeepBest) {
    let name = best.metric.as_deref().unwrap_or_default();
    errors.check(
        "checkpoint.keep_best.metric",
        &format!("{name:?}"),
        is_name(name),
        &format!("a metric that the command logs: {NAME_RULE}"),
    );
    errors.check(
        "checkpoint.keep_best.goal",
        &"left out",
        best.goal.is_some(),
        "minimize or maximize",
    );
    errors.check(
        "checkpoint.keep_best.by",
        &"given",
        best.by == Measure::default(),
        "left out: metric names what a command is compared by",
    );
}

/// Checks that the policy of an engine job has no field of commands.
pub(super) fn check_engine(errors: &mut Errors, policy: &CheckpointPolicy) {
    let files = policy.files.is_none();
    errors.check("checkpoint.files", &"given", files, ONLY_COMMANDS);
    if let Some(best) = &policy.keep_best {
        for (field, is_left_out) in [
            ("metric", best.metric.is_none()),
            ("goal", best.goal.is_none()),
        ] {
            let field = format!("checkpoint.keep_best.{field}");
            let expected = "left out: by names what checkpoints of the engine are compared by";
            errors.check(&field, &"given", is_left_out, expected);
        }
    }
}
