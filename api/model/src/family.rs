//! Families of jobs: jobs whose steps are expected to take equally long on equal GPUs. What a job
//! measures is used for the later jobs of its family.

use crate::spec::{BatchRule, Command, Engine, JobSpec};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Fields of a data set that change the length of an epoch, but not the time of a step.
const LENGTHS: [&str; 4] = [
    "train_limit",
    "test_limit",
    "train_examples",
    "test_examples",
];
/// Number of characters of a key.
const KEY_CHARS: usize = 32;
/// Maximum number of characters of a title.
const TITLE_CHARS: usize = 160;

/// Family of a job, computed from its document alone.
///
/// - Jobs of the built-in engine: network, data set, batch, precision, exchange, image and GPUs of
///   a worker.
/// - Users' programs: image, arguments, name, and the GPUs of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    text: String,
    title: String,
}

/// Fields that determine the time of a step of the built-in engine, besides the placement.
#[derive(Serialize)]
struct EngineTraits<'s> {
    model: Value,
    dataset: Value,
    batch: u32,
    accumulate: Option<u32>,
    hogwild_threads: Option<u32>,
    precision: Value,
    exchange: Value,
    /// Smallest number of workers if the batch grows with them: it is the base of the batch.
    batch_base: Option<u32>,
    /// Largest batch, if the coordinator chooses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_batch: Option<u32>,
    gpus: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'s str>,
}

#[derive(Serialize)]
struct ProgramTraits<'s> {
    name: &'s str,
    argv: &'s [String],
    parameter_servers: u32,
    gpus: u32,
    image: Option<&'s str>,
}

impl Family {
    /// Returns the family of a document. `None` if the document has neither `engine` nor `command`,
    /// or a command without arguments, as in the scheduler's shortened documents.
    #[must_use]
    pub fn of(spec: &JobSpec) -> Option<Self> {
        match (&spec.engine, &spec.command) {
            (Some(engine), _) => Some(Self::of_engine(spec, engine)),
            (None, Some(command)) if !command.argv.is_empty() => {
                Some(Self::of_program(spec, command))
            }
            (None, _) => None,
        }
    }

    fn of_engine(spec: &JobSpec, engine: &Engine) -> Self {
        let traits = EngineTraits {
            model: json(&engine.model),
            dataset: without(json(&engine.dataset), &LENGTHS),
            batch: engine.batch,
            accumulate: engine.accumulate,
            hogwild_threads: engine.hogwild_threads,
            precision: json(&engine.precision),
            exchange: without(json(&spec.exchange), &["hung_after_s"]),
            batch_base: match engine.batch_rule {
                BatchRule::Constant | BatchRule::Goodput => None,
                BatchRule::AdaScale => Some(spec.scale.workers.min),
            },
            max_batch: engine.max_batch,
            gpus: spec.resources.worker.gpus,
            image: spec.pod.image.as_deref(),
        };
        let precision = traits.precision.as_str();
        let precision = precision.map_or_else(String::new, |name| format!(", {name}"));
        let title = format!(
            "{} on {}, batch {}{precision}",
            named(&traits.model),
            named(&traits.dataset),
            engine.batch,
        );
        Self::with("engine", &traits, &title)
    }

    fn of_program(spec: &JobSpec, command: &Command) -> Self {
        let traits = ProgramTraits {
            name: &spec.name,
            argv: &command.argv,
            parameter_servers: command.parameter_servers,
            gpus: spec.resources.worker.gpus,
            image: spec.pod.image.as_deref(),
        };
        let image = traits
            .image
            .map_or_else(String::new, |image| format!(" in {image}"));
        let title = format!("{}: {}{image}", spec.name, command.title());
        Self::with("program", &traits, &title)
    }

    fn with(kind: &str, traits: &impl Serialize, title: &str) -> Self {
        let mut traits = json(traits);
        // The text must not depend on the order of fields or on features of `serde_json`.
        traits.sort_all_objects();
        Self {
            text: format!("{kind} {traits}"),
            title: title.chars().take(TITLE_CHARS).collect(),
        }
    }

    /// Returns the text that identifies the family: its kind and its traits as JSON.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the key: the first 32 hexadecimal digits of the SHA-256 of the text.
    #[must_use]
    pub fn key(&self) -> String {
        let digest = Sha256::digest(self.text.as_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        hex[..KEY_CHARS].to_owned()
    }

    /// Returns a short description for users, at most 160 characters. Several families may share
    /// it.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }
}

/// # Panics
/// Never: the traits have only text keys and finite numbers, or null in place of others.
fn json(part: &impl Serialize) -> Value {
    serde_json::to_value(part).expect("parts of a document are JSON")
}

fn without(mut part: Value, fields: &[&str]) -> Value {
    if let Value::Object(entries) = &mut part {
        entries.retain(|name, _| !fields.contains(&name.as_str()));
    }
    part
}

/// Returns the name or kind of a part with its numbers, such as `resnet 18`.
fn named(part: &Value) -> String {
    let first = ["name", "kind"]
        .iter()
        .find_map(|field| part[field].as_str());
    let detail = ["depth", "variant", "width", "path"]
        .iter()
        .find_map(|field| match &part[field] {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        });
    let words = first.map(str::to_owned).into_iter().chain(detail);
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
