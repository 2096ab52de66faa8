//! Muster's operator: submits custom resources of Kubernetes as jobs, studies and tenants through
//! the REST interface, and reports their state in the objects' status.
//!
//! It compares the desired with the current state and takes the missing step. It may therefore be
//! killed at any point, run twice, or be absent for a day. It must never decide anything: the
//! scheduler places jobs, the REST interface validates documents, and Kubernetes authorises the
//! creation of objects. It has no access to Postgres or processes, and knows of nodes only what
//! Kubernetes reports.

pub mod backoff;
pub mod clock;
pub mod condition;
pub mod config;
pub mod context;
pub mod controllers;
pub mod crd;
pub mod error;
pub mod job;
pub mod metrics;
pub mod nodes;
pub mod reconcile_flow;
pub mod reconciliation;
pub mod rejection;
pub mod resource;
pub mod server;
pub mod status_throttle;
pub mod study;
pub mod submission;
pub mod tenant;
pub mod tenants;
pub mod ttl_map;
pub mod work_queue;
