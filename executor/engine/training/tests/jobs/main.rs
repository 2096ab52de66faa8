//! Complete jobs as the executor starts them: real task processes on small data that join late,
//! leave, are suspended or killed. Some files also run shards and workers in this process. They
//! form one program, because the shared code takes long to compile.

#[path = "../loopback/mod.rs"]
mod loopback;
#[path = "../relay/mod.rs"]
mod relay;
#[path = "../rig/mod.rs"]
mod rig;
#[path = "../single/mod.rs"]
mod single;

mod adascale;
mod all_reduce;
mod batch_norm_encoded;
mod by_need;
mod checkpoint_killed;
mod clipping;
mod diverged;
mod drawn;
mod eager_checkpoints;
mod examples;
mod goodput;
mod held_back;
mod hogwild;
mod keep_best_encoded;
mod late;
mod local_aggregation;
mod near;
mod objects;
mod origin;
mod parts_training;
mod replicas;
mod resident;
mod resize;
mod strangers;
mod task_process;
mod turns;
