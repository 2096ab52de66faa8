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
mod known;
mod order;
mod scaling;
mod skew;
mod source;
mod split;
mod table;
mod text;

pub use augment::Augment;
pub use error::DatasetError;
pub use examples::{Examples, Normalisation, Targets, TargetsMut, Task};
pub use idx::{IdxError, IdxProblem, Images, read_images, read_labels};
pub use known::Kind;
pub use order::{EpochOrder, GlobalBatches, OrderError, Position, slice};
pub use scaling::Scaling;
pub use skew::Shard;
pub use source::{Dataset, Source};
pub use split::Limits;
