//! The daemon against a real Postgres, with scripted node executors.
//! They form one program, because the shared code takes long to compile.

mod artifacts;
mod assigned;
mod checkpoints;
mod deaf;
mod erasing;
mod health;
mod horizon;
mod inputs;
mod joining;
mod leading;
mod many_nodes;
mod node_speed;
mod objectives;
mod queue;
mod remote;
mod restored;
mod shell;
mod studies;
mod support;
mod task_secrets;
mod tls;
mod trials;
