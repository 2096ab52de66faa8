//! Data sets: files, examples, and the order of examples in training.
//!
//! The order is a pure function of (seed, epoch, step). A resumed run continues exactly where it
//! stopped, and any number of workers divides each batch without communication. The module is
//! independent of jobs and clocks.

mod arrays;
mod augment;
mod error;
mod examples;
mod folder;
mod idx;
mod named;
mod order;
mod scaling;
mod skew;
mod source;
mod split;
mod table;
mod text;

pub use augment::ImageAugmentation;
pub use error::DatasetError;
pub use examples::{BatchTargetsMut, ExampleTargets, Examples, LearningTask, PixelNormalisation};
pub use idx::{IdxError, IdxImages, IdxProblem, read_images, read_labels};
pub use named::NamedDataset;
pub use order::{BatchSizeError, EpochOrder, EpochPosition, GlobalBatches, slice};
pub use scaling::FeatureScaling;
pub use skew::ExampleShard;
pub use source::{DatasetSource, DatasetSplits};
pub use split::SplitLimits;
