//! Files that the engine reads and writes: job documents, data sets, checkpoints on disk, networks
//! as ONNX; and mutated input.

mod checkpoint;
mod checkpoint_mapped;
mod document;
mod mutations;
mod onnx;
