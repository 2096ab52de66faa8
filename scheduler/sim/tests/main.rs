//! The simulator, its forecasts and what-if answers, on small scenes and published traces.
//! They form one program, because the shared code takes long to compile.

mod fairness;
mod fidelity;
mod forecast_programs;
mod forecast_week;
mod golden;
mod kept;
mod live;
mod muster_on_traces;
mod packed_forecast;
mod packing_on_traces;
mod racks;
mod termination;
mod traces;
mod turns;
mod what_if;
