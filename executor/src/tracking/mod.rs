//! Where users' programs report: a part of MLflow's tracking REST interface on this node's loopback, and the warning before a stop.
//!
//! A program proves by a token which task it is of. What it logs becomes lines of that task's `events.jsonl`, so it goes the way of every
//! report: it waits on disk while the control plane is away, and is shipped, acknowledged and fenced like the engine's own. The server
//! knows nothing of the node's loop; the tasks' folders are all that they share.

mod beat;
mod lines;
mod message;
mod metric;
mod run;
mod series;
mod server;

pub(crate) use lines::Lines;
pub use server::Tracking;
