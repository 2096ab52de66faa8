//! Conversion of data sets.

use muster_compute::data::{Augment, Dataset, DatasetError, Kind, Limits, Scaling, Source, Task};
use muster_compute::model::{Input, InputShape};
use muster_model::spec::{self, DataFiles, Learn};
use std::path::{Path, PathBuf};

/// Reads the document's data set from below `root`.
///
/// # Errors
/// If files are missing, damaged or inconsistent, or if their content differs from the document.
pub fn dataset(engine: &spec::Engine, root: &Path) -> Result<Dataset, DatasetError> {
    let document = &engine.dataset;
    let (source, limits) = source(document);
    let mut data = Dataset::load(&source, root, limits)?;
    let augment = document.augment().iter().map(augment).collect();
    if let Input::Image(shape) = data.input {
        data.train = data.train.augmented(augment, shape);
    }
    Ok(data)
}

/// Input of a network for this data set.
pub(super) fn input(dataset: &spec::Dataset) -> Input {
    input_of(dataset.input())
}

/// Learning task of this data set.
pub(super) fn task(dataset: &spec::Dataset) -> Task {
    task_of(dataset.learn())
}

fn source(document: &spec::Dataset) -> (Source, Limits) {
    let files = match document {
        spec::Dataset::Known(known) => {
            let limits = Limits {
                train: known.train_limit.map(|limit| limit as usize),
                test: known.test_limit.map(|limit| limit as usize),
            };
            return (Source::Known(kind(known.name)), limits);
        }
        spec::Dataset::Files(files) => files,
    };
    let path = PathBuf::from(files.path());
    let (train, test) = files.examples();
    let limits = Limits {
        train: Some(train as usize),
        test: Some(test as usize),
    };
    let source = match files {
        DataFiles::Csv {
            target,
            columns,
            learn,
            normalise,
            ..
        } => Source::Table {
            path,
            target: target.clone(),
            columns: *columns as usize,
            task: task_of(*learn),
            scaling: scaling(normalise.as_ref()).unwrap_or(Scaling::Measured),
        },
        DataFiles::Arrays {
            inputs,
            targets,
            input,
            learn,
            normalise,
            ..
        } => Source::Arrays {
            path,
            inputs: inputs.clone(),
            targets: targets.clone(),
            input: input_of(*input),
            task: task_of(*learn),
            scaling: scaling(normalise.as_ref()),
        },
        DataFiles::Text { length, .. } => Source::Text {
            path,
            length: *length as usize,
        },
        DataFiles::Images {
            height,
            width,
            channels,
            classes,
            normalise,
            ..
        } => Source::Images {
            path,
            shape: shape(*height, *width, *channels),
            classes: *classes as usize,
            scaling: scaling(normalise.as_ref()).unwrap_or(Scaling::Measured),
        },
    };
    (source, limits)
}

fn kind(name: spec::DatasetName) -> Kind {
    match name {
        spec::DatasetName::FashionMnist => Kind::FashionMnist,
        spec::DatasetName::Mnist => Kind::Mnist,
    }
}

fn shape(height: u32, width: u32, channels: u32) -> InputShape {
    InputShape {
        height: height as usize,
        width: width as usize,
        channels: channels as usize,
    }
}

fn input_of(input: spec::Input) -> Input {
    match input {
        spec::Input::Image {
            height,
            width,
            channels,
        } => Input::Image(shape(height, width, channels)),
        spec::Input::Row { columns } => Input::Row {
            columns: columns as usize,
        },
        spec::Input::Tokens { length, vocabulary } => Input::Tokens {
            length: length as usize,
            vocabulary: vocabulary as usize,
        },
    }
}

fn task_of(learn: Learn) -> Task {
    match learn {
        Learn::Classes { classes } => Task::Classify {
            classes: classes as usize,
        },
        Learn::Values { values } => Task::Regress {
            values: values as usize,
        },
    }
}

fn scaling(normalise: Option<&spec::Normalisation>) -> Option<Scaling> {
    normalise.map(|normalise| match normalise {
        spec::Normalisation::None {} => Scaling::None,
        spec::Normalisation::Measured {} => Scaling::Measured,
        spec::Normalisation::MinMax {} => Scaling::MinMax,
        spec::Normalisation::Given { mean, std } => Scaling::Given {
            mean: mean.clone(),
            std: std.clone(),
        },
    })
}

fn augment(one: &spec::Augmentation) -> Augment {
    match *one {
        spec::Augmentation::Flip { share } => Augment::Flip { share },
        spec::Augmentation::Crop { padding } => Augment::Crop {
            padding: padding as usize,
        },
        spec::Augmentation::Cutout { size } => Augment::Cutout {
            size: size as usize,
        },
        spec::Augmentation::Contrast { by } => Augment::Contrast { by },
    }
}
