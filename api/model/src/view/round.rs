//! Responses about past scheduling rounds, for administrators.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use time::OffsetDateTime;

/// One entry of the list of rounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RoundSummaryView {
    pub number: u64,
    /// Time of the round.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Name of the policy; null if the round does not contain it.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub policy: Option<String>,
    /// Number of its decisions.
    pub decisions: u32,
    /// GPUs of the nodes that are up, after the round; null if the round does not contain them.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub totals: Option<RoundTotals>,
}

/// GPUs of the nodes that are up, after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RoundTotals {
    pub gpus: u32,
    pub held_gpus: u32,
    pub free_gpus: u32,
    pub waiting_jobs: u32,
}

/// A complete round. Its parts are passed on byte for byte, so that a replay can be compared with
/// them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RoundView {
    pub number: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Policy settings of the round; null in rounds of releases that did not store them.
    #[cfg_attr(feature = "schema", schema(required = true, value_type = Option<Object>))]
    pub policy: Option<Box<RawValue>>,
    /// Input of the round: nodes, tenants and jobs at one time.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub snapshot: Box<RawValue>,
    /// Decisions of the round.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub plan: Box<RawValue>,
    /// Reasons of the decisions.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub report: Box<RawValue>,
}
