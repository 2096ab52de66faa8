//! Rounds of the scheduler as they were decided, for administrators.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use time::OffsetDateTime;

/// One line of the list of rounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RoundSummaryView {
    pub number: u64,
    /// The instant that the round was given as now.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Name of the policy; null where the round does not tell.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub policy: Option<String>,
    /// How many things it decided.
    pub decisions: u32,
    /// GPUs of the nodes that are up, after the round; null where the round does not tell.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub totals: Option<RoundTotals>,
}

/// GPUs of the nodes that were up, after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RoundTotals {
    pub gpus: u32,
    pub held_gpus: u32,
    pub free_gpus: u32,
    pub waiting_jobs: u32,
}

/// A round, whole. Its parts are passed on byte for byte as the scheduler wrote them, so that a replay can be compared with them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RoundView {
    pub number: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The policy under which it was decided; null in rounds of releases that did not keep it.
    #[cfg_attr(feature = "schema", schema(required = true, value_type = Option<Object>))]
    pub policy: Option<Box<RawValue>>,
    /// Everything that it knew: nodes, tenants and jobs of one instant.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub snapshot: Box<RawValue>,
    /// What it decided.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub plan: Box<RawValue>,
    /// Why.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub report: Box<RawValue>,
}
