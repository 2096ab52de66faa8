//! Models, layers, optimizers and datasets: gradients against finite differences, values against
//! PyTorch, training on real data.

mod beginning;
mod dataset;
#[path = "../fixtures/mod.rs"]
mod fixtures;
mod gradients;
mod network;
mod optimizer;
mod sequence;
mod sources;
mod torch;
mod training;
