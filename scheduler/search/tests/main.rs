//! Searchers and stoppers on simulated trials.
//! They form one program, because the shared code takes long to compile.

mod cluster;
mod promises;
mod resumed;
mod rules;
