//! `muster-task`: one task of a training job as a process. The executor's shim starts it.

use clap::Parser;
use muster_training::task::{self, TaskArgs};

fn main() {
    std::process::exit(task::main(&TaskArgs::parse()));
}
