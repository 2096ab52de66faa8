//! The training engine's tasks: workers, PS shards, checkpoints and the program `muster-task`.
//!
//! It trains what a task launch describes and reports events. It must not depend on tenants,
//! quotas, plans or the control plane's store.

pub mod checkpoint;
pub mod document;
pub mod shard;
pub mod stop;
pub mod task;
pub mod worker;
