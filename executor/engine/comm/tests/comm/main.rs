//! Collectives over real connections, gradient compression, the wire protocol and the division of
//! parameters among PS shards.

mod assignment;
mod collectives;
mod compression;
mod compression_plan;
mod compression_rules;
mod compression_training;
mod death_between_ranges;
mod elastic;
mod wire;
