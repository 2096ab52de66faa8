//! Data sets: files, examples, and the order in which training sees them.
//!
//! The order is a pure function of (seed, epoch, step), so that a resumed run goes on exactly where it was and any number of workers
//! divides each batch without talking to each other. The module knows no job and no clock.

mod dataset;
mod idx;
mod order;

pub use dataset::{Dataset, DatasetError, Examples, Kind, Limits, Normalisation};
pub use idx::{IdxError, IdxProblem, Images, read_images, read_labels};
pub use order::{EpochOrder, GlobalBatches, OrderError, Position, slice};
