//! Conversion of data sets.

use muster_compute::data::{
    DatasetError, DatasetSource, DatasetSplits, FeatureScaling, ImageAugmentation, LearningTask,
    NamedDataset, SplitLimits,
};
use muster_compute::model::{ExampleShape, ImageShape};
use muster_model::spec::{self, DataFiles, Learn};
use std::path::{Path, PathBuf};

/// Reads the document's data set from below `root`.
///
/// # Errors
/// If files are missing, damaged or inconsistent, or if their content differs from the document.
pub fn dataset(engine: &spec::Engine, root: &Path) -> Result<DatasetSplits, DatasetError> {
    let document = &engine.dataset;
    let (source, limits) = source(document);
    let mut data = DatasetSplits::load(&source, root, limits)?;
    let augment = document.augment().iter().map(augment).collect();
    if let ExampleShape::Image(shape) = data.input {
        data.train = data.train.augmented(augment, shape);
    }
    Ok(data)
}

/// Input of a network for this data set.
pub(super) fn input(dataset: &spec::Dataset) -> ExampleShape {
    input_of(dataset.input())
}

/// Learning task of this data set.
pub(super) fn task(dataset: &spec::Dataset) -> LearningTask {
    task_of(dataset.learn())
}

fn source(document: &spec::Dataset) -> (DatasetSource, SplitLimits) {
    let files = match document {
        spec::Dataset::Known(known) => {
            let limits = SplitLimits {
                train: known.train_limit.map(|limit| limit as usize),
                test: known.test_limit.map(|limit| limit as usize),
            };
            return (DatasetSource::Known(kind(known.name)), limits);
        }
        spec::Dataset::Files(files) => files,
    };
    let path = PathBuf::from(files.path());
    let (train, test) = files.examples();
    let limits = SplitLimits {
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
        } => DatasetSource::Table {
            path,
            target: target.clone(),
            columns: *columns as usize,
            task: task_of(*learn),
            scaling: scaling(normalise.as_ref()).unwrap_or(FeatureScaling::Measured),
        },
        DataFiles::Arrays {
            inputs,
            targets,
            input,
            learn,
            normalise,
            ..
        } => DatasetSource::Arrays {
            path,
            inputs: inputs.clone(),
            targets: targets.clone(),
            input: input_of(*input),
            task: task_of(*learn),
            scaling: scaling(normalise.as_ref()),
        },
        DataFiles::Text { length, .. } => DatasetSource::Text {
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
        } => DatasetSource::Images {
            path,
            shape: shape(*height, *width, *channels),
            classes: *classes as usize,
            scaling: scaling(normalise.as_ref()).unwrap_or(FeatureScaling::Measured),
        },
    };
    (source, limits)
}

fn kind(name: spec::DatasetName) -> NamedDataset {
    match name {
        spec::DatasetName::FashionMnist => NamedDataset::FashionMnist,
        spec::DatasetName::Mnist => NamedDataset::Mnist,
    }
}

fn shape(height: u32, width: u32, channels: u32) -> ImageShape {
    ImageShape {
        height: height as usize,
        width: width as usize,
        channels: channels as usize,
    }
}

fn input_of(input: spec::Input) -> ExampleShape {
    match input {
        spec::Input::Image {
            height,
            width,
            channels,
        } => ExampleShape::Image(shape(height, width, channels)),
        spec::Input::Row { columns } => ExampleShape::Row {
            columns: columns as usize,
        },
        spec::Input::Tokens { length, vocabulary } => ExampleShape::Tokens {
            length: length as usize,
            vocabulary: vocabulary as usize,
        },
    }
}

fn task_of(learn: Learn) -> LearningTask {
    match learn {
        Learn::Classes { classes } => LearningTask::Classify {
            classes: classes as usize,
        },
        Learn::Values { values } => LearningTask::Regress {
            values: values as usize,
        },
    }
}

fn scaling(normalise: Option<&spec::Normalisation>) -> Option<FeatureScaling> {
    normalise.map(|normalise| match normalise {
        spec::Normalisation::None {} => FeatureScaling::None,
        spec::Normalisation::Measured {} => FeatureScaling::Measured,
        spec::Normalisation::MinMax {} => FeatureScaling::MinMax,
        spec::Normalisation::Given { mean, std } => FeatureScaling::Given {
            mean: mean.clone(),
            std: std.clone(),
        },
    })
}

fn augment(one: &spec::Augmentation) -> ImageAugmentation {
    match *one {
        spec::Augmentation::Flip { share } => ImageAugmentation::Flip { share },
        spec::Augmentation::Crop { padding } => ImageAugmentation::Crop {
            padding: padding as usize,
        },
        spec::Augmentation::Cutout { size } => ImageAugmentation::Cutout {
            size: size as usize,
        },
        spec::Augmentation::Contrast { by } => ImageAugmentation::Contrast { by },
    }
}
