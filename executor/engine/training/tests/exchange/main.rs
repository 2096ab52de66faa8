//! Exchange of parameters between shards and workers of this process.

#[path = "../loopback/mod.rs"]
mod loopback;
#[path = "../relay/mod.rs"]
mod relay;

mod backup;
mod basics;
mod heirs;
mod held_back_stale;
mod late;
mod parts;
mod ssp;
mod together;
mod views;
