//! Rules of a well-formed job document. Every error names the field, its value and the expected
//! value.

mod checkpoints;
mod command;
mod compression;
mod cpu_only;
mod dataset;
mod engine;
mod exchange;
mod git;
mod layers;
mod model;
mod node_constraints;
mod not_yet;
mod optimizer;
mod pod;
mod secrets;

pub use node_constraints::{MAX_NODE_LABELS, check_labels};
pub(crate) use pod::{is_image, is_object_name};

use super::{Engine, JobSpec, Range, Topology};
use crate::priority::PRIORITY_RANGE;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One error of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FieldError {
    /// Path in the document, such as `scale.workers.min`.
    pub field: String,
    /// The value found, as JSON.
    pub value: String,
    /// The expected value.
    pub expected: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is {}; expected {}",
            self.field, self.value, self.expected
        )
    }
}

/// Further GPUs of an engine worker would be idle.
const AT_MOST_ONE_GPU: &str = "0 or 1, and more workers (scale.workers) where more GPUs are to compute: a worker of the built-in engine uses at most one";

const MAX_LABELS: usize = 64;
const MIB: u64 = 1 << 20;
/// Maximum size of an engine job's document as JSON times its tasks: the daemon of a node keeps one
/// copy with each task.
const MAX_BYTES_OF_ALL_TASKS: u64 = 16 * MIB;
const TIB: u64 = 1 << 40;

impl JobSpec {
    /// Checks all rules and reports every broken one.
    ///
    /// # Errors
    /// One [`FieldError`] per broken rule, in the order of the document.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut errors = Errors::default();
        errors.check(
            "name",
            &format!("{:?}", self.name),
            is_dns_label(&self.name),
            DNS_LABEL_RULE,
        );
        errors.check(
            "name",
            &format!("{:?}", self.name),
            !is_id(&self.name),
            NO_ID,
        );
        self.check_labels(&mut errors);
        self.check_after(&mut errors);
        self.check_array(&mut errors);
        self.check_node_constraints(&mut errors);
        errors.check(
            "priority",
            &self.priority(),
            PRIORITY_RANGE.contains(&self.priority()),
            "-100 to 100",
        );
        let class = self.priority_class.as_deref();
        errors.check(
            "priority_class",
            &format!("{:?}", class.unwrap_or_default()),
            class.is_none_or(is_dns_label),
            "the name of a priority class: 1 to 63 characters of a-z, 0-9 and '-'",
        );
        errors.range("scale.workers", self.scale.workers);
        self.check_power_of_two(&mut errors);
        self.check_resources(&mut errors);
        self.pod.check(&mut errors, self.command.is_some());
        match (&self.engine, &self.command) {
            (Some(engine), None) => {
                self.check_engine(&mut errors, engine);
                self.check_exchange(&mut errors, engine);
                self.check_scale(&mut errors, engine);
                self.check_checkpoint(&mut errors);
                checkpoints::check_engine(&mut errors, &self.checkpoint);
                self.check_stop(&mut errors);
                self.check_bytes_of_all_tasks(&mut errors);
            }
            (None, Some(command)) => self.check_command(&mut errors, command),
            (Some(_), Some(_)) => errors.check(
                "command",
                &"given beside engine",
                false,
                "one of the two: engine for what the built-in engine trains, command for a program of your own",
            ),
            (None, None) => errors.check(
                "engine",
                &"missing",
                false,
                "a value, or command in its place: what the built-in engine trains, or a program of your own",
            ),
        }
        self.preemption.check(&mut errors, self);
        self.check_verdicts(&mut errors);
        if let Some(interactive) = &self.interactive {
            interactive.check(&mut errors, self);
        }
        errors.check("retries", &self.retries, self.retries <= 100, "0 to 100");
        errors.into_result()
    }

    fn check_bytes_of_all_tasks(&self, errors: &mut Errors) {
        let bytes = serde_json::to_string(self).map_or(0, |text| text.len() as u64);
        let tasks = u64::from(self.scale.workers.max) + u64::from(self.ps_shards().max);
        errors.check(
            "engine",
            &format!("in a document of {bytes} bytes of JSON for each of {tasks} tasks"),
            bytes.saturating_mul(tasks) <= MAX_BYTES_OF_ALL_TASKS,
            &format!("at most {MAX_BYTES_OF_ALL_TASKS} bytes for all tasks together: a smaller document, or fewer tasks (scale)"),
        );
    }

    fn check_labels(&self, errors: &mut Errors) {
        errors.check(
            "labels",
            &format!("{} labels", self.labels.len()),
            self.labels.len() <= MAX_LABELS,
            "at most 64 labels",
        );
        for (key, value) in &self.labels {
            let right = !key.is_empty() && key.len() <= 63 && value.len() <= 255;
            errors.check(
                &format!("labels.{key}"),
                &format!("{value:?}"),
                right,
                "a key of 1 to 63 bytes and a value of at most 255",
            );
        }
    }

    fn check_verdicts(&self, errors: &mut Errors) {
        let verdicts = self.verdicts;
        for (field, value) in [
            ("verdicts.straggler_s", verdicts.straggler_s),
            ("verdicts.hang_s", verdicts.hang_s),
        ] {
            if let Some(seconds) = value {
                errors.check(
                    field,
                    &seconds,
                    seconds == 0 || (5..=86_400).contains(&seconds),
                    "5 to 86400 seconds, or 0: never",
                );
            }
        }
    }

    fn check_scale(&self, errors: &mut Errors, engine: &Engine) {
        match self.exchange.topology {
            Topology::ParameterServer => errors.range("scale.ps_shards", self.ps_shards()),
            Topology::AllReduce => {
                let range = self.ps_shards();
                errors.check(
                    "scale.ps_shards",
                    &format!("{} to {}", range.min, range.max),
                    range == Range::NONE,
                    "left out, or 0 to 0: with all_reduce there are no PS shards",
                );
            }
        }
        let max = self.scale.workers.max;
        errors.check(
            "scale.workers.max",
            &max,
            max <= engine.batch.max(1) || max > 1024,
            &format!(
                "at most the batch ({}), so that every worker has an example",
                engine.batch
            ),
        );
    }

    /// Both bounds must be sizes that the job can have.
    fn check_power_of_two(&self, errors: &mut Errors) {
        let Range { min, max } = self.scale.workers;
        for (field, bound) in [("scale.workers.min", min), ("scale.workers.max", max)] {
            errors.check(
                field,
                &bound,
                !self.scale.power_of_two || bound.is_power_of_two(),
                "1, 2, 4, 8… with power_of_two",
            );
        }
    }

    fn check_resources(&self, errors: &mut Errors) {
        let worker = &self.resources.worker;
        let (demand, shard) = (worker.demand(), self.resources.ps_shard);
        let (most, expected) = match self.engine {
            Some(_) => (1, AT_MOST_ONE_GPU),
            None => (16, "0 to 16"),
        };
        errors.check(
            "resources.worker.gpus",
            &worker.gpus,
            worker.gpus <= most,
            expected,
        );
        self.check_cpu_only(errors);
        for (role, cpu_milli, memory_bytes) in [
            ("worker", demand.cpu_milli, demand.memory_bytes),
            ("ps_shard", shard.cpu_milli, shard.memory_bytes),
        ] {
            errors.check(
                &format!("resources.{role}.cpu_milli"),
                &cpu_milli,
                cpu_milli <= 256_000,
                "0 to 256000 thousandths of a core",
            );
            errors.check(
                &format!("resources.{role}.memory_bytes"),
                &memory_bytes,
                (64 * MIB..=4 * TIB).contains(&memory_bytes),
                "67108864 (64 MiB) to 4398046511104 (4 TiB)",
            );
        }
    }

    fn check_checkpoint(&self, errors: &mut Errors) {
        let policy = &self.checkpoint;
        if let Some(steps) = policy.every_steps {
            errors.check(
                "checkpoint.every_steps",
                &steps,
                steps >= 1,
                "1 or more steps",
            );
        }
        if let Some(minutes) = policy.every_minutes {
            errors.positive("checkpoint.every_minutes", minutes);
        }
        errors.check(
            "checkpoint.keep",
            &policy.keep,
            (1..=1000).contains(&policy.keep),
            "1 to 1000",
        );
        if let Some(best) = &policy.keep_best {
            errors.check(
                "checkpoint.keep_best.count",
                &best.count,
                (1..=1000).contains(&best.count),
                "1 to 1000",
            );
        }
        if let Some(steps) = policy.keep_every_steps {
            errors.check(
                "checkpoint.keep_every_steps",
                &steps,
                steps >= 1,
                "1 or more steps",
            );
        }
        if let Some(steps) = self.evaluate.every_steps {
            errors.check(
                "evaluate.every_steps",
                &steps,
                steps >= 1,
                "1 or more steps",
            );
        }
    }

    fn check_stop(&self, errors: &mut Errors) {
        let stop = &self.stop;
        errors.check(
            "stop",
            &"without an end",
            stop.epochs.is_some() || stop.steps.is_some() || stop.wall_minutes.is_some(),
            "at least one of epochs, steps and wall_minutes, so that the job ends",
        );
        for (field, value) in [("stop.epochs", stop.epochs), ("stop.steps", stop.steps)] {
            if let Some(value) = value {
                errors.check(
                    field,
                    &value,
                    (1..=1_000_000_000).contains(&value),
                    "1 to 1000000000",
                );
            }
        }
        if let Some(target) = &stop.target {
            target.check(false, errors);
        }
        if let Some(convergence) = stop.convergence {
            let drop = convergence.relative_loss_drop;
            errors.check(
                "stop.convergence.relative_loss_drop",
                &drop,
                drop > 0.0 && drop < 1.0,
                "above 0 and below 1",
            );
            errors.check(
                "stop.convergence.epochs",
                &convergence.epochs,
                (1..=100).contains(&convergence.epochs),
                "1 to 100",
            );
        }
        if let Some(minutes) = stop.wall_minutes {
            errors.positive("stop.wall_minutes", minutes);
        }
    }
}

/// Formats a value for an error. A number of hundreds of digits gets its short form.
fn shown(value: &dyn fmt::Display) -> String {
    /// No valid number has more digits.
    const DIGITS: usize = 40;
    let text = value.to_string();
    let is_digits = text
        .bytes()
        .all(|c| c.is_ascii_digit() || b"-.".contains(&c));
    match text.parse::<f64>() {
        Ok(number) if is_digits && text.len() > DIGITS => format!("{number:e}"),
        _ => text,
    }
}

/// Expectation in the error for a name that is no DNS label.
pub const DNS_LABEL_RULE: &str =
    "1 to 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit";

/// Whether `name` is a DNS label (RFC 1123), as Kubernetes requires for names.
#[must_use]
pub fn is_dns_label(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Expectation in the error for a name that [`is_id`].
pub(crate) const NO_ID: &str = "a name that is no UUID, because an id may be given in its place";

/// Whether a name can be parsed as an id. Commands accept both, so such a name would be ambiguous.
pub(crate) fn is_id(name: &str) -> bool {
    name.parse::<uuid::Uuid>().is_ok()
}

#[derive(Default)]
pub(super) struct Errors(Vec<FieldError>);

impl Errors {
    pub(super) fn check(
        &mut self,
        field: &str,
        value: &dyn fmt::Display,
        right: bool,
        expected: &str,
    ) {
        if !right {
            self.0.push(FieldError {
                field: field.to_owned(),
                value: shown(value),
                expected: expected.to_owned(),
            });
        }
    }

    /// Checks the number of entries of a list.
    fn at_most(&mut self, field: &str, entries: usize, most: usize) {
        self.check(
            field,
            &format!("{entries} entries"),
            entries <= most,
            &format!("at most {most} entries"),
        );
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn positive(&mut self, field: &str, minutes: f64) {
        let right = minutes > 0.0 && minutes <= 525_600.0;
        self.check(
            field,
            &minutes,
            right,
            "above 0 and at most 525600 minutes (a year)",
        );
    }

    /// Checks a factor such as a momentum.
    fn share(&mut self, field: &str, value: f64) {
        let right = (0.0..1.0).contains(&value);
        self.check(field, &value, right, "0 to below 1");
    }

    /// Checks a share above 0.
    fn part(&mut self, field: &str, value: f64) {
        let right = value > 0.0 && value <= 1.0;
        self.check(field, &value, right, "above 0 and at most 1");
    }

    fn range(&mut self, field: &str, range: Range) {
        self.check(
            &format!("{field}.min"),
            &range.min,
            (1..=1024).contains(&range.min),
            "1 to 1024",
        );
        self.check(
            &format!("{field}.max"),
            &range.max,
            range.max >= range.min && range.max <= 1024,
            &format!("at least min ({}) and at most 1024", range.min),
        );
    }

    fn widths(
        &mut self,
        field: &str,
        widths: &[u32],
        count: std::ops::RangeInclusive<usize>,
        max: u32,
    ) {
        self.check(
            field,
            &format!("{} layers", widths.len()),
            count.contains(&widths.len()),
            &format!("{} to {} layers", count.start(), count.end()),
        );
        for (index, width) in widths.iter().enumerate() {
            self.check(
                &format!("{field}[{index}]"),
                width,
                (1..=max).contains(width),
                &format!("1 to {max}"),
            );
        }
    }

    fn into_result(self) -> Result<(), Vec<FieldError>> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(self.0)
        }
    }
}
