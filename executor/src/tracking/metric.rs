//! Mapping of metric names to the quantities that Muster displays and uses in estimates.

use muster_model::progress::Split;

/// Quantity of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    TrainLoss,
    TrainAccuracy,
    EvaluationLoss(Split),
    EvaluationAccuracy(Split),
    Epoch,
    ExamplesPerSecond,
    /// Own time of a rank per step in milliseconds, without waiting for other ranks.
    OwnTime,
    /// Stored in the run and not used otherwise.
    Other,
}

const TEST: &str = "test";
const VALIDATIONS: [&str; 4] = ["val", "valid", "validation", "eval"];
const TRAINS: [&str; 2] = ["train", "training"];
const THROUGHPUTS: [&str; 4] = [
    "examples_per_s",
    "examples_per_second",
    "samples_per_second",
    "throughput",
];

const OWN_TIME: &str = "compute_ms";

/// Returns the meaning by the words of a name: `train/loss`, `loss_train`, `Train Loss` and `loss`
/// mean the same.
pub(super) fn meaning(key: &str) -> Meaning {
    let name = key.to_ascii_lowercase();
    let words: Vec<&str> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let joined = words.join("_");
    if THROUGHPUTS.contains(&joined.as_str()) {
        return Meaning::ExamplesPerSecond;
    }
    if joined == OWN_TIME {
        return Meaning::OwnTime;
    }
    let quantities = ["loss", "acc", "accuracy"];
    let [measures, tests, validations, trains] = [&quantities[..], &[TEST], &VALIDATIONS, &TRAINS]
        .map(|known| words.iter().filter(|word| known.contains(word)).count());
    let splits = tests + validations + trains;
    // Exactly one quantity, at most one split and no other word: `regularisation_loss` is another
    // metric.
    if measures == 1 && splits <= 1 && words.len() == 1 + splits {
        let split = match (tests, validations) {
            (1, _) => Some(Split::Test),
            (_, 1) => Some(Split::Validation),
            _ => None,
        };
        return match (words.contains(&"loss"), split) {
            (true, None) => Meaning::TrainLoss,
            (false, None) => Meaning::TrainAccuracy,
            (true, Some(split)) => Meaning::EvaluationLoss(split),
            (false, Some(split)) => Meaning::EvaluationAccuracy(split),
        };
    }
    if joined == "epoch" {
        Meaning::Epoch
    } else {
        Meaning::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_by_their_words() {
        for (key, expected) in [
            ("loss", Meaning::TrainLoss),
            ("train/loss", Meaning::TrainLoss),
            ("Train Loss", Meaning::TrainLoss),
            ("loss_train", Meaning::TrainLoss),
            ("accuracy", Meaning::TrainAccuracy),
            ("train_acc", Meaning::TrainAccuracy),
            ("val_loss", Meaning::EvaluationLoss(Split::Validation)),
            (
                "eval/accuracy",
                Meaning::EvaluationAccuracy(Split::Validation),
            ),
            ("test-acc", Meaning::EvaluationAccuracy(Split::Test)),
            ("epoch", Meaning::Epoch),
            ("samples_per_second", Meaning::ExamplesPerSecond),
            ("compute_ms", Meaning::OwnTime),
            ("regularisation_loss", Meaning::Other),
            ("loss_scale", Meaning::Other),
            ("train_val_loss", Meaning::Other),
            ("lr", Meaning::Other),
            ("", Meaning::Other),
        ] {
            assert_eq!(meaning(key), expected, "{key}");
        }
    }
}
