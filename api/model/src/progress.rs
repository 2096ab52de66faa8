//! Progress of a running job: training samples and evaluations.

use serde::de::{DeserializeOwned, Error as DeError};
use serde::ser::Error as SerError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// One point of the training series, reported by the coordinator (rank 0 worker). Rates and times
/// are means since the last point. A user's program logs only some of the numbers; the others are
/// null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Sample {
    /// Optimizer steps done over the whole life of the job.
    pub step: u64,
    /// Epochs done, fractional.
    pub epoch: f64,
    /// Mean training loss per example since the last sample.
    pub loss: f64,
    /// Share of training examples classified correctly since the last sample, 0 to 1.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub accuracy: Option<f64>,
    /// Examples per second of all workers together.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub examples_per_s: Option<f64>,
    pub steps_per_s: f64,
    /// Milliseconds of forward and backward pass per update. An update is one step unless `gain` is
    /// given.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub compute_ms: Option<f64>,
    /// Milliseconds per update for pushing gradients and waiting for new parameters.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub exchange_ms: Option<f64>,
    /// Milliseconds per update for preparing the batch.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub data_ms: Option<f64>,
    pub workers: u32,
    pub ps_shards: u32,
    /// Gradient noise scale in examples (McCandlish et al., 2018), if several workers sum
    /// gradients. A batch well below it gains from more examples; a batch well above it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_scale: Option<f64>,
    /// Steps that an update is worth, with the batch rules `adascale` and `goodput`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
}

impl Sample {
    /// Returns the parameter updates per second. An update is one step unless `gain` is given.
    #[must_use]
    pub fn updates_per_s(&self) -> f64 {
        match self.gain {
            Some(gain) if gain > 0.0 => self.steps_per_s / gain,
            _ => self.steps_per_s,
        }
    }

    /// Returns the examples of an update, as a mean since the last sample. `None` without
    /// `examples_per_s` or an update.
    #[must_use]
    pub fn batch(&self) -> Option<f64> {
        batch(self.examples_per_s?, self.steps_per_s, self.gain)
    }
}

/// Returns the examples of an update; `None` without a step. A `gain` of `None` is 1.
pub(crate) fn batch(examples_per_s: f64, steps_per_s: f64, gain: Option<f64>) -> Option<f64> {
    let batch = examples_per_s / steps_per_s * gain.unwrap_or(1.0);
    (batch.is_finite() && batch > 0.0).then_some(batch)
}

/// Number of equal parts of a job's steps by which its gradient noise is kept.
pub const COURSE_PARTS: u32 = 20;

/// Returns the part of the course in which a step is, from 0 to [`COURSE_PARTS`] - 1, for a job
/// with `steps` steps.
#[must_use]
pub fn course_part(step: u64, steps: u64) -> u32 {
    let part = u128::from(step) * u128::from(COURSE_PARTS) / u128::from(steps.max(1));
    u32::try_from(part)
        .unwrap_or(u32::MAX)
        .min(COURSE_PARTS - 1)
}

/// Data on which an evaluation was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Test split of the built-in engine, and data that a program logs as `test`.
    #[default]
    Test,
    /// Data that a program logs as `val`, `valid`, `validation` or `eval`.
    Validation,
}

impl Split {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Validation => "validation",
        }
    }

    /// Returns the word before `loss` and `accuracy` in texts for users.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Validation => "val",
        }
    }
}

/// Returns `val loss 0.4321, val accuracy 98.18%` with the logged measures; `accuracy` is 0 to 1.
#[must_use]
pub fn measures(split: Split, loss: Option<f64>, accuracy: Option<f64>) -> String {
    let of = split.label();
    let loss = loss.map(|loss| format!("{of} loss {loss:.4}"));
    let accuracy = accuracy.map(|share| format!("{of} accuracy {:.2}%", share * 100.0));
    let both: Vec<String> = loss.into_iter().chain(accuracy).collect();
    both.join(", ")
}

/// One pass over the test or validation split. At least one of loss and accuracy is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Evaluation {
    pub step: u64,
    pub epoch: f64,
    #[serde(default)]
    pub split: Split,
    /// Null if the program does not log it.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub loss: Option<f64>,
    /// Share of examples classified correctly, 0 to 1. Null if the program does not log it.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub accuracy: Option<f64>,
}

/// Types with numbers that may be missing.
pub trait Partial: Serialize + DeserializeOwned {
    /// JSON names of the fields that may be null.
    const OPTIONAL: &'static [&'static str];
}

impl Partial for Sample {
    const OPTIONAL: &'static [&'static str] = &[
        "accuracy",
        "examples_per_s",
        "compute_ms",
        "exchange_ms",
        "data_ms",
    ];
}

impl Partial for Evaluation {
    const OPTIONAL: &'static [&'static str] = &["loss", "accuracy"];
}

/// JSON form between daemons and in the store: a missing number is 0, and `unlogged` lists its
/// name. The previous release expects a number in each field and refuses null.
#[derive(Debug, Clone, PartialEq)]
pub struct Filled<T>(pub T);

/// Name of the list of missing numbers.
const UNLOGGED: &str = "unlogged";

impl<T: Partial> Serialize for Filled<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        filled::serialize(&self.0, serializer)
    }
}

impl<'de, T: Partial> Deserialize<'de> for Filled<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        filled::deserialize(deserializer).map(Self)
    }
}

/// [`Filled`] for `#[serde(with)]`.
pub(crate) mod filled {
    use super::{DeError as _, SerError as _};
    use super::{Deserialize, Deserializer, Partial, Serialize, Serializer, UNLOGGED, Value};

    pub fn serialize<T: Partial, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut json = serde_json::to_value(value).map_err(S::Error::custom)?;
        let mut unlogged = Vec::new();
        for &name in T::OPTIONAL {
            if json[name].is_null() {
                json[name] = Value::from(0.0);
                unlogged.push(name);
            }
        }
        if !unlogged.is_empty() {
            json[UNLOGGED] = Value::from(unlogged);
        }
        json.serialize(serializer)
    }

    pub fn deserialize<'de, T: Partial, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let mut json = Value::deserialize(deserializer)?;
        let unlogged = json.get(UNLOGGED).and_then(Value::as_array).cloned();
        for name in unlogged.iter().flatten().filter_map(Value::as_str) {
            if T::OPTIONAL.contains(&name) {
                json[name] = Value::Null;
            }
        }
        serde_json::from_value(json).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_number_is_zero_for_the_previous_release() {
        let evaluation = Evaluation {
            step: 7,
            epoch: 0.0,
            split: Split::Validation,
            loss: Some(0.5),
            accuracy: None,
        };
        let text = serde_json::to_value(Filled(evaluation.clone())).expect("JSON");
        assert_eq!(
            text,
            json!({ "step": 7, "epoch": 0.0, "split": "validation", "loss": 0.5, "accuracy": 0.0, "unlogged": ["accuracy"] })
        );
        let read: Filled<Evaluation> = serde_json::from_value(text).expect("read");
        assert_eq!(read.0, evaluation);
    }

    #[test]
    fn evaluation_of_the_previous_release_is_read() {
        let old = json!({ "step": 7, "epoch": 1.0, "loss": 0.5, "accuracy": 0.0 });
        let read: Filled<Evaluation> = serde_json::from_value(old).expect("read");
        let expected = Evaluation {
            step: 7,
            epoch: 1.0,
            split: Split::Test,
            loss: Some(0.5),
            accuracy: Some(0.0),
        };
        assert_eq!(read.0, expected);
    }
}
