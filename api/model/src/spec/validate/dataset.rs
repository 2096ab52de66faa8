//! Rules of data sets: declared contents, normalisation, augmentation.

use super::Errors;
use crate::spec::{Augmentation, DataFiles, Dataset, Input, KnownDataset, Learn, Normalisation};
use std::fmt;
use std::ops::RangeInclusive;

const MOST_EXAMPLES: u32 = 100_000_000;

impl Dataset {
    /// Returns all training examples, without `train_limit`.
    pub(super) fn all_train_examples(&self) -> u32 {
        match self {
            Self::Known(known) => known.name.train_examples(),
            Self::Files(files) => files.examples().0,
        }
    }
}

impl Errors {
    pub(super) fn dataset(&mut self, dataset: &Dataset, batch: u32) {
        match dataset {
            Dataset::Known(known) => self.known(known, batch),
            Dataset::Files(files) => self.files(files),
        }
        let input = dataset.input();
        self.input(input);
        self.learn(dataset.learn());
        self.augment(dataset.augment(), input);
    }

    fn known(&mut self, known: &KnownDataset, batch: u32) {
        let examples = known.name.train_examples();
        if let Some(limit) = known.train_limit {
            self.check(
                "engine.dataset.train_limit",
                &limit,
                limit >= batch.max(1) && limit <= examples,
                &format!("at least the batch ({batch}) and at most {examples} examples"),
            );
        }
        if let Some(limit) = known.test_limit {
            let examples = known.name.test_examples();
            self.check(
                "engine.dataset.test_limit",
                &limit,
                (1..=examples).contains(&limit),
                &format!("1 to {examples} examples"),
            );
        }
    }

    fn files(&mut self, files: &DataFiles) {
        let path = files.path();
        self.check(
            "engine.dataset.path",
            &format!("{path:?}"),
            stays_below(path),
            "a path below the data-set root, of names with / between them: 1 to 1024 bytes, no .. and no / at its beginning",
        );
        let (train, test) = files.examples();
        self.within("train_examples", train, 1..=MOST_EXAMPLES);
        self.within("test_examples", test, 1..=MOST_EXAMPLES);
        match files {
            DataFiles::Csv {
                target,
                columns,
                learn,
                normalise,
                ..
            } => {
                self.name("target", target);
                if let Learn::Values { values } = learn {
                    let right = *values == 1;
                    let expected = "1: a CSV file has one column of targets";
                    self.check("engine.dataset.learn.values", values, right, expected);
                }
                self.normalise(normalise.as_ref(), *columns);
            }
            DataFiles::Arrays {
                inputs,
                targets,
                input,
                normalise,
                ..
            } => {
                self.name("inputs", inputs);
                self.name("targets", targets);
                match *input {
                    Input::Image { channels, .. } => self.normalise(normalise.as_ref(), channels),
                    Input::Row { columns } => self.normalise(normalise.as_ref(), columns),
                    Input::Tokens { .. } => self.check(
                        "engine.dataset.normalise",
                        &"of tokens",
                        matches!(normalise, None | Some(Normalisation::None {})),
                        "left out: tokens are names, not numbers",
                    ),
                }
            }
            DataFiles::Text { .. } => {}
            DataFiles::Images {
                channels,
                normalise,
                ..
            } => {
                let right = [1, 3].contains(channels);
                let expected = "1 (grey) or 3 (colour)";
                self.check("engine.dataset.channels", channels, right, expected);
                self.normalise(normalise.as_ref(), *channels);
            }
        }
    }

    fn name(&mut self, field: &str, name: &str) {
        self.check(
            &format!("engine.dataset.{field}"),
            &format!("{name:?}"),
            (1..=256).contains(&name.len()) && !name.contains(['/', '\\', '\0']) && name != "..",
            "a name of 1 to 256 bytes without / and \\",
        );
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Image {
                height,
                width,
                channels,
            } => {
                self.within("height", height, 1..=4096);
                self.within("width", width, 1..=4096);
                self.within("channels", channels, 1..=1024);
            }
            Input::Row { columns } => self.within("columns", columns, 1..=1 << 20),
            Input::Tokens { length, vocabulary } => {
                self.within("length", length, 1..=65_536);
                self.within("vocabulary", vocabulary, 2..=1 << 24);
            }
        }
    }

    fn learn(&mut self, learn: Learn) {
        match learn {
            Learn::Classes { classes } => self.within("classes", classes, 2..=65_536),
            Learn::Values { values } => self.within("values", values, 1..=65_536),
        }
    }

    fn normalise(&mut self, normalise: Option<&Normalisation>, channels: u32) {
        let Some(Normalisation::Given { mean, std }) = normalise else {
            return;
        };
        for (field, list) in [("mean", mean), ("std", std)] {
            self.check(
                &format!("engine.dataset.normalise.{field}"),
                &format!("{} numbers", list.len()),
                list.len() == 1 || list.len() == channels as usize,
                &format!("one number, or one for each of {channels}"),
            );
        }
        let finite = mean.iter().all(|mean| mean.is_finite());
        self.check(
            "engine.dataset.normalise.mean",
            &"infinite",
            finite,
            "finite numbers",
        );
        let positive = std.iter().all(|&std| std > 0.0 && std.is_finite());
        self.check(
            "engine.dataset.normalise.std",
            &"0 or less",
            positive,
            "above 0",
        );
    }

    fn augment(&mut self, augment: &[Augmentation], input: Input) {
        let Input::Image { height, width, .. } = input else {
            self.check(
                "engine.dataset.augment",
                &format!("{} kinds", augment.len()),
                augment.is_empty(),
                "left out: only images are augmented",
            );
            return;
        };
        let side = height.min(width);
        self.check(
            "engine.dataset.augment",
            &format!("{} kinds", augment.len()),
            augment.len() <= 16,
            "at most 16 kinds",
        );
        for (index, one) in augment.iter().enumerate() {
            let at = |field: &str| format!("engine.dataset.augment[{index}].{field}");
            match *one {
                Augmentation::Flip { share } => self.part(&at("share"), f64::from(share)),
                Augmentation::Crop { padding } => self.check(
                    &at("padding"),
                    &padding,
                    padding >= 1 && padding <= side / 2,
                    &format!("1 to {}, half of the smaller side", side / 2),
                ),
                Augmentation::Cutout { size } => self.check(
                    &at("size"),
                    &size,
                    (1..=side).contains(&size),
                    &format!("1 to {side}, the smaller side"),
                ),
                Augmentation::Contrast { by } => {
                    self.check(&at("by"), &by, by > 0.0 && by < 1.0, "above 0 and below 1")
                }
            }
        }
    }

    fn within<T: PartialOrd + fmt::Display>(
        &mut self,
        field: &str,
        value: T,
        right: RangeInclusive<T>,
    ) {
        self.check(
            &format!("engine.dataset.{field}"),
            &value,
            right.contains(&value),
            &format!("{} to {}", right.start(), right.end()),
        );
    }
}

/// Whether a path of the document cannot leave the folder to which it is joined.
fn stays_below(path: &str) -> bool {
    (1..=1024).contains(&path.len())
        && !path.contains(['\\', '\0', ':'])
        && path
            .split('/')
            .all(|name| !name.is_empty() && name != "." && name != "..")
}
