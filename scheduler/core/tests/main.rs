//! Plans of scripted and random clusters: what the planner and each policy decide.
//! They form one program, because the shared code takes long to compile.

mod adaptive;
mod asked;
mod bad_nodes;
mod commands;
mod defragment;
mod dense;
mod events;
mod favour;
mod foreseen_turns;
mod hysteresis;
mod idle_slots;
mod in_place;
mod lacking;
mod late;
mod learned;
mod out_of_range;
mod packing;
mod parts;
mod pods;
mod policies;
mod policy_tales;
mod power_of_two;
mod properties;
mod quota;
mod racks;
mod refused;
mod scene;
mod shards;
mod sound;
mod stories;
mod taken;
mod turns;
mod verdicts;
mod window;
