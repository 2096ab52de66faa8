//! Policies on published traces, under the live rules and those of published papers.
//! They form one program, because the shared code takes long to compile.

mod fairness;
mod fidelity;
mod muster_on_traces;
mod packing_on_traces;
mod traces;
