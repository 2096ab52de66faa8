//! What the engine reads and writes: documents of jobs, data sets, checkpoints on a disk, networks as ONNX; and what comes of bytes that
//! nobody meant.

mod checkpoint;
mod checkpoint_mapped;
mod dataset;
mod document;
mod mutations;
mod onnx;
mod sources;
