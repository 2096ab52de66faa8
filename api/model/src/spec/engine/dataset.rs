//! Data sets: known by name, or files below the data-set root with their declared contents.
//!
//! Shapes, classes and numbers of examples are declared here. So PS shards lay out networks, and
//! the scheduler counts epochs, without opening a file. The engine checks the files against the
//! declaration.

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The tokens of a text are its bytes.
const BYTES: u32 = 256;

/// Training and test data.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Dataset {
    Known(KnownDataset),
    Files(DataFiles),
}

/// A data set that is known by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KnownDataset {
    pub name: DatasetName,
    /// Use only the first examples; at least `batch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_limit: Option<u32>,
    /// Use only the first test examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub augment: Vec<Augmentation>,
}

/// Data sets that the engine can read by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DatasetName {
    /// 60,000 training and 10,000 test images of 28×28 grey pixels in 10 classes (Zalando, 2017).
    FashionMnist,
    /// 60,000 training and 10,000 test images of handwritten digits, 28×28 grey pixels (LeCun,
    /// Cortes and Burges).
    Mnist,
}

/// The user's files. `path` is relative to the data-set root and stays below it. `train_examples`
/// and `test_examples` are drawn from the rows in an order that is the same for every job; 1 to
/// 100,000,000 each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DataFiles {
    /// A CSV file with a header: one column is the target, all others are numbers.
    Csv {
        path: String,
        /// Name of the target column.
        target: String,
        /// Number of columns besides the target; 1 to 1,048,576.
        columns: u32,
        learn: Learn,
        train_examples: u32,
        test_examples: u32,
        /// Default: `measured`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        normalise: Option<Normalisation>,
    },
    /// Two arrays of one `.npz` or `.safetensors` file, or of two files `<name>.npy` in one folder.
    /// Examples lie along the first dimension.
    Arrays {
        path: String,
        /// Name of the inputs.
        #[serde(default = "default_inputs")]
        inputs: String,
        /// Name of the targets.
        #[serde(default = "default_targets")]
        targets: String,
        input: Input,
        learn: Learn,
        train_examples: u32,
        test_examples: u32,
        /// Default: `measured` for images stored as bytes, otherwise `none`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        normalise: Option<Normalisation>,
        /// Only for images.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        augment: Vec<Augmentation>,
    },
    /// A text, read as bytes in pieces. The network predicts each next byte. The test pieces are
    /// the last ones.
    Text {
        path: String,
        /// Bytes of a piece; 1 to 65,536.
        length: u32,
        train_examples: u32,
        test_examples: u32,
    },
    /// A folder with one folder of JPEG and PNG files per class, numbered in the order of their
    /// names. Images are resized.
    Images {
        path: String,
        /// Pixels; 1 to 4,096.
        height: u32,
        width: u32,
        /// 1 (grey) or 3 (colour).
        #[serde(default = "colour")]
        channels: u32,
        /// 2 to 65,536.
        classes: u32,
        train_examples: u32,
        test_examples: u32,
        /// Default: `measured`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        normalise: Option<Normalisation>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        augment: Vec<Augmentation>,
    },
}

/// Target of each example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Learn {
    /// A class, one of 2 to 65,536.
    Classes { classes: u32 },
    /// Numbers, 1 to 65,536; 1 for a CSV file.
    Values { values: u32 },
}

/// Input of a network for one example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Input {
    /// Height × width × channels, in this order.
    Image {
        height: u32,
        width: u32,
        channels: u32,
    },
    /// Numbers without order, 1 to 1,048,576.
    Row { columns: u32 },
    /// Integers below `vocabulary`, which is at most 16,777,216.
    Tokens { length: u32, vocabulary: u32 },
}

/// Transformation of the inputs: per channel for images, per column for tables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Normalisation {
    /// Unchanged; pixels are 0 to 1.
    None {},
    /// Distance from the mean of the training examples, in their standard deviations.
    Measured {},
    /// 0 at the smallest number of the training examples and 1 at the largest.
    MinMax {},
    /// `(x − mean) / std`, with pixels divided by 255 first. One number for all channels or
    /// columns, or one for each.
    Given {
        mean: Vec<f32>,
        /// Above 0.
        std: Vec<f32>,
    },
}

/// Random change of training images, new in each step, in the given order. The random numbers
/// depend on the job's seed, the step and the place in the batch only. They are the same for any
/// number of workers and after a restart. Pixels from outside an image are 0 after normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Augmentation {
    /// Mirrors left and right.
    Flip {
        /// Probability; above 0, at most 1.
        #[serde(default = "half")]
        share: f32,
    },
    /// Shifts by up to this number of pixels in each direction: a crop of the padded image.
    Crop {
        /// Pixels, 1 to half of the smaller side.
        padding: u32,
    },
    /// Sets a square at a random place to 0 (DeVries and Taylor, 2017).
    Cutout {
        /// Side of the square, 1 to the smaller side of the image.
        size: u32,
    },
    /// Multiplies all numbers by a factor between 1 − `by` and 1 + `by`.
    Contrast {
        /// Above 0, below 1.
        by: f32,
    },
}

impl DatasetName {
    /// Returns its folder below the data-set root, which is also its name in the document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FashionMnist => "fashion-mnist",
            Self::Mnist => "mnist",
        }
    }

    #[must_use]
    pub fn train_examples(self) -> u32 {
        match self {
            Self::FashionMnist | Self::Mnist => 60_000,
        }
    }

    #[must_use]
    pub fn test_examples(self) -> u32 {
        match self {
            Self::FashionMnist | Self::Mnist => 10_000,
        }
    }
}

impl Dataset {
    /// Returns the whole data set of this name.
    #[must_use]
    pub fn known(name: DatasetName) -> Self {
        Self::Known(KnownDataset {
            name,
            train_limit: None,
            test_limit: None,
            augment: Vec::new(),
        })
    }

    /// Returns the training examples of an epoch.
    #[must_use]
    pub fn train_examples(&self) -> u32 {
        match self {
            Self::Known(known) => {
                let all = known.name.train_examples();
                known.train_limit.map_or(all, |limit| limit.min(all))
            }
            Self::Files(files) => files.examples().0,
        }
    }

    /// Returns its name, or the path of its files.
    #[must_use]
    pub fn title(&self) -> &str {
        match self {
            Self::Known(known) => known.name.as_str(),
            Self::Files(files) => files.path(),
        }
    }

    /// Returns the network's input for one example.
    #[must_use]
    pub fn input(&self) -> Input {
        match *self {
            Self::Known(_) => Input::Image {
                height: 28,
                width: 28,
                channels: 1,
            },
            Self::Files(DataFiles::Csv { columns, .. }) => Input::Row { columns },
            Self::Files(DataFiles::Arrays { input, .. }) => input,
            Self::Files(DataFiles::Text { length, .. }) => Input::Tokens {
                length,
                vocabulary: BYTES,
            },
            Self::Files(DataFiles::Images {
                height,
                width,
                channels,
                ..
            }) => Input::Image {
                height,
                width,
                channels,
            },
        }
    }

    /// Returns the target of one example; for a text, of one position.
    #[must_use]
    pub fn learn(&self) -> Learn {
        match *self {
            Self::Known(_) => Learn::Classes { classes: 10 },
            Self::Files(DataFiles::Csv { learn, .. } | DataFiles::Arrays { learn, .. }) => learn,
            Self::Files(DataFiles::Text { .. }) => Learn::Classes { classes: BYTES },
            Self::Files(DataFiles::Images { classes, .. }) => Learn::Classes { classes },
        }
    }

    /// Whether the network predicts the next token at each position.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Files(DataFiles::Text { .. }))
    }

    #[must_use]
    pub fn augment(&self) -> &[Augmentation] {
        match self {
            Self::Known(known) => &known.augment,
            Self::Files(DataFiles::Arrays { augment, .. } | DataFiles::Images { augment, .. }) => {
                augment
            }
            Self::Files(DataFiles::Csv { .. } | DataFiles::Text { .. }) => &[],
        }
    }
}

impl DataFiles {
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Csv { path, .. }
            | Self::Arrays { path, .. }
            | Self::Text { path, .. }
            | Self::Images { path, .. } => path,
        }
    }

    /// Returns the numbers of training and test examples.
    #[must_use]
    pub fn examples(&self) -> (u32, u32) {
        match *self {
            Self::Csv {
                train_examples,
                test_examples,
                ..
            }
            | Self::Arrays {
                train_examples,
                test_examples,
                ..
            }
            | Self::Text {
                train_examples,
                test_examples,
                ..
            }
            | Self::Images {
                train_examples,
                test_examples,
                ..
            } => (train_examples, test_examples),
        }
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Implemented by hand: `kind` selects the variant and errors name its fields, which an untagged
/// enum would hide.
impl<'de> Deserialize<'de> for Dataset {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Dataset;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with `name` or with `kind`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Dataset, A::Error> {
                let mut fields = serde_json::Map::new();
                while let Some((name, value)) = map.next_entry::<String, serde_json::Value>()? {
                    if fields.contains_key(&name) {
                        return Err(de::Error::custom(format!("duplicate field `{name}`")));
                    }
                    fields.insert(name, value);
                }
                let files = fields.contains_key("kind");
                let whole = serde_json::Value::Object(fields);
                if files {
                    DataFiles::deserialize(whole).map(Dataset::Files)
                } else {
                    KnownDataset::deserialize(whole).map(Dataset::Known)
                }
                .map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_map(Either)
    }
}

fn default_inputs() -> String {
    "x".to_owned()
}

fn default_targets() -> String {
    "y".to_owned()
}

fn colour() -> u32 {
    3
}

fn half() -> f32 {
    0.5
}
