//! Arrays in NPY, NPZ and safetensors files.

use super::error::DatasetError;
use super::examples::{ExampleTargets, Examples, LearningTask, gathered};
use super::scaling::{FeatureScaling, scale};
use super::split::DatasetRows;
use crate::model::ExampleShape;
use npyz::{DType, NpyFile, Order, TypeChar};
use safetensors::{Dtype, SafeTensors};
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;

/// Maximum size of an array in bytes.
const MAX_BYTES: u64 = 1 << 34;

/// Inputs and targets in memory.
pub(super) struct ArrayDataset {
    rows: usize,
    input: ExampleShape,
    inputs: ArrayElements,
    targets: ExampleTargets,
}

/// Elements of an array: bytes stay bytes, all other types become `f32`.
enum ArrayElements {
    Bytes(Vec<u8>),
    Floats(Vec<f32>),
}

struct NpyArray {
    shape: Vec<usize>,
    numbers: ArrayElements,
}

/// Reads the two arrays. Bytes of images are pixels and are divided by 255; all other values are
/// used as stored.
pub(super) fn read(
    path: &Path,
    inputs: &str,
    targets: &str,
    input: ExampleShape,
    task: LearningTask,
) -> Result<ArrayDataset, DatasetError> {
    let (x, y) = (array(path, inputs)?, array(path, targets)?);
    let rows = x.shape.first().copied().unwrap_or(0);
    let len = y.shape.first().copied().unwrap_or(0);
    if rows != len {
        let problem = format!("{inputs:?} has {rows} rows and {targets:?} has {len}");
        return Err(DatasetError::content(path, problem));
    }
    DatasetError::promised(path, "numbers per example", x.row_len(), input.len())?;
    let targets = match task {
        LearningTask::Classify { classes } => {
            DatasetError::promised(path, "labels per example", y.row_len(), 1)?;
            ExampleTargets::Classes(labels(path, targets, &y.numbers, classes)?)
        }
        LearningTask::Regress { values } => {
            DatasetError::promised(path, "targets per example", y.row_len(), values)?;
            ExampleTargets::Values(y.numbers.into_floats())
        }
    };
    let inputs = match input {
        ExampleShape::Image(_) => x.numbers,
        ExampleShape::Row { .. } => ArrayElements::Floats(x.numbers.into_floats()),
        ExampleShape::Tokens { vocabulary, .. } => {
            let numbers = x.numbers.into_floats();
            let foreign = numbers.iter().find(|x| !is_below(**x, vocabulary));
            if let Some(token) = foreign {
                let problem = format!(
                    "{inputs:?} has the token {token}; tokens are whole numbers below {vocabulary}"
                );
                return Err(DatasetError::content(path, problem));
            }
            ArrayElements::Floats(numbers)
        }
    };
    Ok(ArrayDataset {
        rows,
        input,
        inputs,
        targets,
    })
}

/// Reads the array `name` of the file or folder at `path`.
fn array(path: &Path, name: &str) -> Result<NpyArray, DatasetError> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("npz") => from_npz(path, name),
        Some("safetensors") => from_safetensors(path, name),
        _ => {
            let path = path.join(format!("{name}.npy"));
            let file = File::open(&path).map_err(DatasetError::open(&path))?;
            from_npy(&path, BufReader::new(file))
        }
    }
}

fn is_below(number: f32, bound: usize) -> bool {
    number >= 0.0 && number.fract() == 0.0 && (number as usize) < bound
}

fn labels(
    path: &Path,
    name: &str,
    numbers: &ArrayElements,
    classes: usize,
) -> Result<Vec<u32>, DatasetError> {
    let labels: Result<Vec<u32>, f32> = match numbers {
        ArrayElements::Bytes(bytes) => {
            let floats = bytes.iter().map(|byte| f32::from(*byte));
            floats.map(|float| label(float, classes)).collect()
        }
        ArrayElements::Floats(floats) => {
            floats.iter().map(|float| label(*float, classes)).collect()
        }
    };
    labels.map_err(|wrong| {
        let problem =
            format!("{name:?} has the label {wrong}; labels are whole numbers below {classes}");
        DatasetError::content(path, problem)
    })
}

/// Returns the label of a number, or the number if it is not a whole number below `classes`.
fn label(number: f32, classes: usize) -> Result<u32, f32> {
    is_below(number, classes)
        .then_some(number as u32)
        .ok_or(number)
}

fn from_npz(path: &Path, name: &str) -> Result<NpyArray, DatasetError> {
    let file = File::open(path).map_err(DatasetError::open(path))?;
    let mut archive =
        zip::ZipArchive::new(BufReader::new(file)).map_err(DatasetError::unreadable(path))?;
    let names: Vec<String> = archive
        .file_names()
        .filter_map(|name| name.ok().map(std::borrow::Cow::into_owned))
        .collect();
    let entry = archive.by_name(&format!("{name}.npy")).map_err(|error| {
        let names = names.join(", ");
        DatasetError::content(path, format!("no array {name:?} ({error}); it has {names}"))
    })?;
    from_npy(path, entry)
}

fn from_npy(path: &Path, reader: impl Read) -> Result<NpyArray, DatasetError> {
    let file = NpyFile::new(reader).map_err(DatasetError::unreadable(path))?;
    if file.order() == Order::Fortran {
        let problem = "the array lies in Fortran order; save it in C order";
        return Err(DatasetError::content(path, problem));
    }
    let shape: Vec<usize> = file.shape().iter().map(|side| *side as usize).collect();
    let DType::Plain(kind) = file.dtype() else {
        let problem = "the array has records; expected plain numbers";
        return Err(DatasetError::content(path, problem));
    };
    within(path, &shape, kind.size_field())?;
    let numbers = match (kind.type_char(), kind.size_field()) {
        (TypeChar::Uint, 1) => file.into_vec::<u8>().map(ArrayElements::Bytes),
        (TypeChar::Uint, 2) => cast(file.into_vec::<u16>(), f32::from),
        (TypeChar::Uint, 4) => cast(file.into_vec::<u32>(), |x| x as f32),
        (TypeChar::Int, 1) => cast(file.into_vec::<i8>(), f32::from),
        (TypeChar::Int, 2) => cast(file.into_vec::<i16>(), f32::from),
        (TypeChar::Int, 4) => cast(file.into_vec::<i32>(), |x| x as f32),
        (TypeChar::Int, 8) => cast(file.into_vec::<i64>(), |x| x as f32),
        (TypeChar::Float, 4) => file.into_vec::<f32>().map(ArrayElements::Floats),
        (TypeChar::Float, 8) => cast(file.into_vec::<f64>(), |x| x as f32),
        _ => {
            let problem = format!("numbers of type {kind}; expected integers, float32 or float64");
            return Err(DatasetError::content(path, problem));
        }
    };
    let numbers = numbers.map_err(DatasetError::unreadable(path))?;
    Ok(NpyArray { shape, numbers })
}

fn cast<T, E>(numbers: Result<Vec<T>, E>, to: impl Fn(T) -> f32) -> Result<ArrayElements, E> {
    numbers.map(|numbers| ArrayElements::Floats(numbers.into_iter().map(to).collect()))
}

/// Returns an error if an array of `shape` is too large.
fn within(path: &Path, shape: &[usize], size: u64) -> Result<(), DatasetError> {
    let bytes = shape
        .iter()
        .try_fold(size, |bytes, side| bytes.checked_mul(*side as u64));
    if bytes.is_some_and(|bytes| bytes <= MAX_BYTES) {
        return Ok(());
    }
    Err(DatasetError::content(
        path,
        format!("an array of {shape:?} has more than {MAX_BYTES} bytes"),
    ))
}

fn from_safetensors(path: &Path, name: &str) -> Result<NpyArray, DatasetError> {
    let bytes = fs::read(path).map_err(DatasetError::open(path))?;
    let file = SafeTensors::deserialize(&bytes).map_err(DatasetError::unreadable(path))?;
    let tensor = file.tensor(name).map_err(|_| {
        let names: Vec<&str> = file.names().into_iter().collect();
        let problem = format!("no tensor {name:?}; it has {}", names.join(", "));
        DatasetError::content(path, problem)
    })?;
    let data = tensor.data();
    let numbers = match tensor.dtype() {
        Dtype::U8 => ArrayElements::Bytes(data.to_vec()),
        Dtype::F32 => decode(data, f32::from_le_bytes),
        Dtype::F64 => decode(data, |bytes| f64::from_le_bytes(bytes) as f32),
        Dtype::I32 => decode(data, |bytes| i32::from_le_bytes(bytes) as f32),
        Dtype::I64 => decode(data, |bytes| i64::from_le_bytes(bytes) as f32),
        other => {
            let problem = format!("numbers of type {other:?}; expected U8, I32, I64, F32 or F64");
            return Err(DatasetError::content(path, problem));
        }
    };
    Ok(NpyArray {
        shape: tensor.shape().to_vec(),
        numbers,
    })
}

/// Decodes numbers of `N` bytes each.
fn decode<const N: usize>(data: &[u8], to: impl Fn([u8; N]) -> f32) -> ArrayElements {
    let (numbers, _) = data.as_chunks::<N>();
    ArrayElements::Floats(numbers.iter().map(|bytes| to(*bytes)).collect())
}

impl NpyArray {
    /// Number of elements of each entry of the first dimension.
    fn row_len(&self) -> usize {
        self.shape.iter().skip(1).product()
    }
}

impl ArrayDataset {
    /// Default scaling: image bytes with class targets are normalised by their statistics. Values
    /// of other arrays were already scaled when the file was written.
    pub(super) fn usual_scaling(&self) -> FeatureScaling {
        match (&self.inputs, self.input, &self.targets) {
            (ArrayElements::Bytes(_), ExampleShape::Image(_), ExampleTargets::Classes(_)) => {
                FeatureScaling::Measured
            }
            _ => FeatureScaling::None,
        }
    }

    fn targets_at(&self, indices: &[u32]) -> ExampleTargets {
        self.targets.at(indices, self.rows)
    }

    /// Returns the inputs of some rows; bytes become 0 to 1.
    fn floats_at(&self, indices: &[u32]) -> Vec<f32> {
        let each = self.input.len();
        match &self.inputs {
            ArrayElements::Bytes(bytes) => gathered(bytes, indices, each)
                .into_iter()
                .map(|byte| f32::from(byte) / 255.0)
                .collect(),
            ArrayElements::Floats(floats) => gathered(floats, indices, each),
        }
    }
}

impl ArrayElements {
    fn into_floats(self) -> Vec<f32> {
        match self {
            Self::Bytes(bytes) => bytes.into_iter().map(f32::from).collect(),
            Self::Floats(floats) => floats,
        }
    }
}

impl DatasetRows for ArrayDataset {
    fn len(&self) -> usize {
        self.rows
    }

    fn split(
        self,
        train: &[u32],
        test: &[u32],
        scaling: &FeatureScaling,
    ) -> Result<(Examples, Examples), DatasetError> {
        let each = self.input.len();
        let [train_targets, test_targets] = [train, test].map(|indices| self.targets_at(indices));
        if let (
            ArrayElements::Bytes(bytes),
            ExampleShape::Image(shape),
            ExampleTargets::Classes(_),
        ) = (&self.inputs, self.input, &self.targets)
        {
            let train_bytes = gathered(bytes, train, each);
            let channels = scaling.of_bytes(&train_bytes, shape.channels);
            let test_bytes = gathered(bytes, test, each);
            return Ok((
                Examples::bytes(train_bytes, &channels, train_targets),
                Examples::bytes(test_bytes, &channels, test_targets),
            ));
        }
        let (mut train_numbers, mut test_numbers) = (self.floats_at(train), self.floats_at(test));
        // A column is one position of a row, or one channel of an image.
        let columns = match self.input {
            ExampleShape::Image(shape) => shape.channels,
            ExampleShape::Row { columns } => columns,
            ExampleShape::Tokens { .. } => each,
        };
        let scales = scaling.of_columns(columns, |column| {
            train_numbers.iter().skip(column).step_by(columns).copied()
        });
        if let Some(scales) = scales {
            scale(&mut train_numbers, &scales);
            scale(&mut test_numbers, &scales);
        }
        Ok((
            Examples::numbers(train.len(), train_numbers, train_targets),
            Examples::numbers(test.len(), test_numbers, test_targets),
        ))
    }
}
