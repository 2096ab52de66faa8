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
    let read = |name: &str| match path.extension().and_then(|extension| extension.to_str()) {
        Some("npz") => from_npz(path, name),
        Some("safetensors") => from_safetensors(path, name),
        _ => {
            let path = path.join(format!("{name}.npy"));
            let file = File::open(&path).map_err(DatasetError::open(&path))?;
            from_npy(&path, BufReader::new(file))
        }
    };
    let (x, y) = (read(inputs)?, read(targets)?);
    let rows = x.shape.first().copied().unwrap_or(0);
    let len = y.shape.first().copied().unwrap_or(0);
    if rows != len {
        let problem = format!("{inputs:?} has {rows} rows and {targets:?} has {len}");
        return Err(DatasetError::content(path, problem));
    }
    let each = |array: &NpyArray| array.shape.iter().skip(1).product::<usize>();
    DatasetError::promised(path, "numbers per example", each(&x), input.len())?;
    let targets = match task {
        LearningTask::Classify { classes } => {
            DatasetError::promised(path, "labels per example", each(&y), 1)?;
            ExampleTargets::Classes(labels(path, targets, &y.numbers, classes)?)
        }
        LearningTask::Regress { values } => {
            DatasetError::promised(path, "targets per example", each(&y), values)?;
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

fn is_below(number: f32, bound: usize) -> bool {
    number >= 0.0 && number.fract() == 0.0 && (number as usize) < bound
}

fn labels(
    path: &Path,
    name: &str,
    numbers: &ArrayElements,
    classes: usize,
) -> Result<Vec<u32>, DatasetError> {
    let label = |number: f32| {
        let problem =
            || format!("{name:?} has the label {number}; labels are whole numbers below {classes}");
        let right = is_below(number, classes).then_some(number as u32);
        right.ok_or_else(|| DatasetError::content(path, problem()))
    };
    match numbers {
        ArrayElements::Bytes(bytes) => bytes.iter().map(|byte| label(f32::from(*byte))).collect(),
        ArrayElements::Floats(floats) => floats.iter().map(|float| label(*float)).collect(),
    }
}

fn from_npz(path: &Path, name: &str) -> Result<NpyArray, DatasetError> {
    let file = File::open(path).map_err(DatasetError::open(path))?;
    let content = |problem: String| DatasetError::content(path, problem);
    let mut archive =
        zip::ZipArchive::new(BufReader::new(file)).map_err(|error| content(error.to_string()))?;
    let names: Vec<String> = archive
        .file_names()
        .filter_map(|name| name.ok().map(std::borrow::Cow::into_owned))
        .collect();
    let entry = archive.by_name(&format!("{name}.npy")).map_err(|error| {
        content(format!(
            "no array {name:?} ({error}); it has {}",
            names.join(", ")
        ))
    })?;
    from_npy(path, entry)
}

fn from_npy(path: &Path, reader: impl Read) -> Result<NpyArray, DatasetError> {
    let content = |problem: String| DatasetError::content(path, problem);
    let broken = |error: std::io::Error| content(error.to_string());
    let file = NpyFile::new(reader).map_err(broken)?;
    if file.order() == Order::Fortran {
        return Err(content(
            "the array lies in Fortran order; save it in C order".to_owned(),
        ));
    }
    let shape: Vec<usize> = file.shape().iter().map(|side| *side as usize).collect();
    let DType::Plain(kind) = file.dtype() else {
        return Err(content(
            "the array has records; expected plain numbers".to_owned(),
        ));
    };
    within(path, &shape, kind.size_field())?;
    let floats = |numbers: Result<Vec<f32>, std::io::Error>| {
        numbers.map(ArrayElements::Floats).map_err(broken)
    };
    let numbers = match (kind.type_char(), kind.size_field()) {
        (TypeChar::Uint, 1) => ArrayElements::Bytes(file.into_vec::<u8>().map_err(broken)?),
        (TypeChar::Uint, 2) => floats(cast(file.into_vec::<u16>(), f32::from))?,
        (TypeChar::Uint, 4) => floats(cast(file.into_vec::<u32>(), |x| x as f32))?,
        (TypeChar::Int, 1) => floats(cast(file.into_vec::<i8>(), f32::from))?,
        (TypeChar::Int, 2) => floats(cast(file.into_vec::<i16>(), f32::from))?,
        (TypeChar::Int, 4) => floats(cast(file.into_vec::<i32>(), |x| x as f32))?,
        (TypeChar::Int, 8) => floats(cast(file.into_vec::<i64>(), |x| x as f32))?,
        (TypeChar::Float, 4) => floats(file.into_vec::<f32>())?,
        (TypeChar::Float, 8) => floats(cast(file.into_vec::<f64>(), |x| x as f32))?,
        _ => {
            return Err(content(format!(
                "numbers of type {kind}; expected integers, float32 or float64"
            )));
        }
    };
    Ok(NpyArray { shape, numbers })
}

fn cast<T, E>(numbers: Result<Vec<T>, E>, to: impl Fn(T) -> f32) -> Result<Vec<f32>, E> {
    numbers.map(|numbers| numbers.into_iter().map(to).collect())
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
    let content = |problem: String| DatasetError::content(path, problem);
    let file = SafeTensors::deserialize(&bytes).map_err(|error| content(error.to_string()))?;
    let tensor = file.tensor(name).map_err(|_| {
        let names: Vec<&str> = file.names().into_iter().collect();
        content(format!("no tensor {name:?}; it has {}", names.join(", ")))
    })?;
    let data = tensor.data();
    let floats = |width: usize, to: fn(&[u8]) -> f32| {
        ArrayElements::Floats(data.chunks_exact(width).map(to).collect())
    };
    let numbers = match tensor.dtype() {
        Dtype::U8 => ArrayElements::Bytes(data.to_vec()),
        Dtype::F32 => floats(4, |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        Dtype::F64 => floats(8, |b| {
            f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f32
        }),
        Dtype::I32 => floats(4, |b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f32),
        Dtype::I64 => floats(8, |b| {
            i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f32
        }),
        other => {
            return Err(content(format!(
                "numbers of type {other:?}; expected U8, I32, I64, F32 or F64"
            )));
        }
    };
    Ok(NpyArray {
        shape: tensor.shape().to_vec(),
        numbers,
    })
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
        let targets = |indices: &[u32]| self.targets.at(indices, self.rows);
        if let (
            ArrayElements::Bytes(bytes),
            ExampleShape::Image(shape),
            ExampleTargets::Classes(_),
        ) = (&self.inputs, self.input, &self.targets)
        {
            let train_bytes = gathered(bytes, train, each);
            let channels = scaling.of_bytes(&train_bytes, shape.channels);
            let test_bytes = gathered(bytes, test, each);
            let examples = |bytes, indices| Examples::bytes(bytes, &channels, targets(indices));
            return Ok((examples(train_bytes, train), examples(test_bytes, test)));
        }
        let part = |indices: &[u32]| match &self.inputs {
            ArrayElements::Bytes(bytes) => gathered(bytes, indices, each)
                .into_iter()
                .map(|byte| f32::from(byte) / 255.0)
                .collect(),
            ArrayElements::Floats(floats) => gathered(floats, indices, each),
        };
        let (mut train_numbers, mut test_numbers): (Vec<f32>, Vec<f32>) = (part(train), part(test));
        // A column is one position of a row, or one channel of an image.
        let columns = match self.input {
            ExampleShape::Image(shape) => shape.channels,
            ExampleShape::Row { columns } => columns,
            ExampleShape::Tokens { .. } => each,
        };
        let of = |column: usize| train_numbers.iter().skip(column).step_by(columns).copied();
        if let Some(scales) = scaling.of_columns(columns, of) {
            scale(&mut train_numbers, &scales);
            scale(&mut test_numbers, &scales);
        }
        Ok((
            Examples::numbers(train.len(), train_numbers, targets(train)),
            Examples::numbers(test.len(), test_numbers, targets(test)),
        ))
    }
}
