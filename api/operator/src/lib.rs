//! Muster's operator: custom resources of Kubernetes become jobs, studies and tenants by way of the REST interface, and their status
//! follows what becomes of them.
//!
//! It looks at what is wanted and at what there is, and takes the step that is missing; so it may be killed anywhere, run twice, or be
//! away for a day. It must never decide anything: who runs where and when is the scheduler's business, what a right document is the REST
//! interface's, who may create an object Kubernetes'. It knows nothing of Postgres or processes, and of nodes only what Kubernetes says of them.

pub mod backoff;
pub mod clock;
pub mod condition;
pub mod config;
pub mod course;
pub mod crd;
pub mod error;
pub mod job;
pub mod look;
pub mod metrics;
pub mod nodes;
pub mod operator;
pub mod pace;
pub mod recent;
pub mod refused;
pub mod resource;
pub mod study;
pub mod tenant;
pub mod tenants;
pub mod turns;
