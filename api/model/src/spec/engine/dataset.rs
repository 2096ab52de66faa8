//! Data sets: known by name, or files below the data-set root with what is promised of them.
//!
//! Shapes, classes and numbers of examples are promised here, so that PS shards can lay networks out and the scheduler can count
//! epochs without opening a file; the engine holds the files to it.

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A text's tokens are its bytes.
const BYTES: u32 = 256;

/// What is trained on.
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
    /// Use only the first so many training examples; at least `batch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_limit: Option<u32>,
    /// Use only the first so many test examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub augment: Vec<Augmentation>,
}

/// The data sets that the engine knows how to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DatasetName {
    /// 60,000 training and 10,000 test images of 28×28 grey pixels in 10 classes (Zalando, 2017).
    FashionMnist,
    /// As many of handwritten digits (LeCun, Cortes and Burges).
    Mnist,
}

/// A user's own files. `path` is relative to the data-set root and stays below it. Of the rows, which are dealt to both in an order
/// that is the same for every job, `train_examples` are trained on and `test_examples` tested with; 1 to 100,000,000 each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DataFiles {
    /// A CSV file with a header: one column is the target, all others are numbers.
    Csv {
        path: String,
        /// The target's column.
        target: String,
        /// Beside the target; 1 to 65,536.
        columns: u32,
        learn: Learn,
        train_examples: u32,
        test_examples: u32,
        /// `measured` when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        normalise: Option<Normalisation>,
    },
    /// Two arrays of one `.npz` or `.safetensors` file, or of two files `<name>.npy` in one folder; the examples lie along the first
    /// dimension.
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
        /// When left out, `measured` of images that are bytes, else `none`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        normalise: Option<Normalisation>,
        /// Of images only.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        augment: Vec<Augmentation>,
    },
    /// A text, read as bytes in pieces; the network says each next byte. The test pieces are the last ones.
    Text {
        path: String,
        /// Bytes of a piece; 1 to 65,536.
        length: u32,
        train_examples: u32,
        test_examples: u32,
    },
    /// A folder with one folder of JPEG and PNG files for each class, numbered in the order of their names. Images are resized.
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
        /// `measured` when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        normalise: Option<Normalisation>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        augment: Vec<Augmentation>,
    },
}

/// What is to be learnt of each example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Learn {
    /// Its class, one of 2 to 65,536.
    Classes { classes: u32 },
    /// Its numbers, 1 to 65,536; of a CSV file 1.
    Values { values: u32 },
}

/// What a network reads of one example.
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
    /// Whole numbers below `vocabulary`, which is at most 16,777,216.
    Tokens { length: u32, vocabulary: u32 },
}

/// What numbers go through before the network sees them. Of images by channel, of tables by column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Normalisation {
    /// Nothing; pixels are 0 to 1.
    None {},
    /// The distance from the training examples' mean, in their standard deviations.
    Measured {},
    /// 0 at the training examples' least number and 1 at their largest.
    MinMax {},
    /// `(x − mean) / std`, pixels first divided by 255. One number for all channels or columns, or one for each.
    Given {
        mean: Vec<f32>,
        /// Above 0.
        std: Vec<f32>,
    },
}

/// What is done to a training image at random, each time anew, in this order. The draw depends on the job's seed, the step and the
/// image's place in the batch, so it is the same whatever the number of workers, and after a restart. What comes in from outside an
/// image is 0 after normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Augmentation {
    /// Left becomes right.
    Flip {
        /// How often, above 0 and at most 1.
        #[serde(default = "half")]
        share: f32,
    },
    /// Shifted by up to so many pixels in either direction: a crop of the image padded by as many.
    Crop {
        /// 1 to half of the smaller side.
        padding: u32,
    },
    /// A square at a random place becomes 0 (DeVries and Taylor, 2017).
    Cutout {
        /// Its side, 1 to the smaller side.
        size: u32,
    },
    /// All numbers times a factor between 1 − `by` and 1 + `by`.
    Contrast {
        /// Above 0, below 1.
        by: f32,
    },
}

impl DatasetName {
    /// Its folder under the data-set root, and its name in the job document.
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
    /// All of a data set that is known by name.
    #[must_use]
    pub fn known(name: DatasetName) -> Self {
        Self::Known(KnownDataset {
            name,
            train_limit: None,
            test_limit: None,
            augment: Vec::new(),
        })
    }

    /// Examples that are trained on in an epoch.
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

    /// What people call it: its name, or its files' path.
    #[must_use]
    pub fn title(&self) -> &str {
        match self {
            Self::Known(known) => known.name.as_str(),
            Self::Files(files) => files.path(),
        }
    }

    /// What a network reads of an example.
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

    /// What a network says of an example; of a text, at each position.
    #[must_use]
    pub fn learn(&self) -> Learn {
        match *self {
            Self::Known(_) => Learn::Classes { classes: 10 },
            Self::Files(DataFiles::Csv { learn, .. } | DataFiles::Arrays { learn, .. }) => learn,
            Self::Files(DataFiles::Text { .. }) => Learn::Classes { classes: BYTES },
            Self::Files(DataFiles::Images { classes, .. }) => Learn::Classes { classes },
        }
    }

    /// Whether the network says what comes next, at each position.
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

    /// To be trained on, and tested with.
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

/// By hand: `kind` decides what it is, and the errors are those of what it is, which an untagged enum would swallow.
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
