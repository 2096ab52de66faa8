//! Studies: one file a verb. What users want of a search is written here; how it proceeds is the scheduler's business.

pub mod ask;
pub mod best;
pub mod create;
pub mod delete;
pub mod export;
pub mod get;
mod line;
pub mod list;
pub mod propose;
pub mod steer;
pub mod trials;
mod wire;

pub use line::Lines;
