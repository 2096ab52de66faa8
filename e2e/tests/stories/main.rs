//! Stories: each starts the programs as users run them and observes the cluster from outside. One
//! test program, because each program of this package would link the same libraries again.

mod after;
mod artifacts;
mod bad_input;
mod browser;
mod checkpoint_request;
mod code_from_git;
mod commands;
mod cpu_only;
mod defragment;
mod examples;
mod first_minutes;
mod goodput;
mod gpu_kinds;
mod idle;
mod idle_slots;
mod images;
mod in_a_bucket;
mod killed;
mod kubernetes_apart;
mod kubernetes_chaos;
mod kubernetes_chart;
mod kubernetes_jobs;
mod kubernetes_nodes;
mod kubernetes_objects;
mod kubernetes_own;
mod kubernetes_parts;
mod kubernetes_placeholders;
mod kubernetes_pods;
mod kubernetes_scale;
mod objectives;
mod packing;
mod planned;
mod population;
mod preempted;
mod program_checkpoints;
mod python;
#[path = "../../../executor/tests/node/registry.rs"]
#[expect(dead_code, reason = "the executor's tests use the other items")]
mod registry;
mod remote;
mod resized;
mod restarted;
mod run;
#[path = "../../../executor/engine/training/tests/rig/s3.rs"]
#[expect(dead_code, reason = "the engine's tests use the other items")]
mod s3;
mod secrets;
mod shards;
mod shared;
mod slicing;
mod studies;
mod studies_killed;
mod tenant_users;
mod torchrun;
mod verdicts;
