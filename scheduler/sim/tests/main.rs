//! The simulator, its forecasts and what-if answers, on small scenes.
//! They form one program, because the shared code takes long to compile.

mod fixed_job;
mod forecast_kinds;
mod forecast_programs;
mod forecast_week;
mod golden;
mod kept;
mod live;
mod node_speeds;
mod packed_forecast;
mod racks;
mod termination;
mod turns;
mod what_if;
