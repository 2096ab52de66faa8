//! Which of the names that scripts give their metrics mean what Muster shows and estimates by.

/// What a metric measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    TrainLoss,
    TrainAccuracy,
    TestLoss,
    TestAccuracy,
    Epoch,
    ExamplesPerSecond,
    /// Milliseconds of its own that a rank takes for a step, waiting for others not counted.
    OwnTime,
    /// Kept for whoever reads the run, and no more.
    Other,
}

const TESTS: [&str; 5] = ["val", "valid", "validation", "test", "eval"];
const TRAINS: [&str; 2] = ["train", "training"];
const THROUGHPUTS: [&str; 4] = [
    "examples_per_s",
    "examples_per_second",
    "samples_per_second",
    "throughput",
];

const OWN_TIME: &str = "compute_ms";

/// By the words of its name: `train/loss`, `loss_train`, `Train Loss` and `loss` are the same.
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
    let is_loss = |word: &&&str| **word == "loss";
    let is_accuracy = |word: &&&str| matches!(**word, "acc" | "accuracy");
    let of = |known: &[&str]| words.iter().filter(|word| known.contains(word)).count();
    let (tests, trains) = (of(&TESTS), of(&TRAINS));
    let measures = words.iter().filter(is_loss).count() + words.iter().filter(is_accuracy).count();
    // One measure of one split and not a word besides: `regularisation_loss` is another thing.
    if measures == 1 && tests + trains <= 1 && words.len() == 1 + tests + trains {
        let loss = words.contains(&"loss");
        return match (loss, tests) {
            (true, 0) => Meaning::TrainLoss,
            (false, 0) => Meaning::TrainAccuracy,
            (true, _) => Meaning::TestLoss,
            (false, _) => Meaning::TestAccuracy,
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
            ("val_loss", Meaning::TestLoss),
            ("eval/accuracy", Meaning::TestAccuracy),
            ("test-acc", Meaning::TestAccuracy),
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
