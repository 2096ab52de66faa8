//! A tenant: who owns jobs, how many GPUs its jobs may hold at once, and what share of the cluster is its own.

mod limits;
mod pods;
mod pods_change;

pub use limits::{LimitsChange, LimitsSet, LimitsUse, MAX_LIMIT, TenantLimits};
pub use pods::TenantPods;
pub use pods_change::TenantPodsChange;

use crate::id::TenantId;
use serde::{Deserialize, Serialize};

/// The weight of a tenant that nobody has given another.
pub const EQUAL_WEIGHT: f64 = 1.0;

/// Below and above these a share is nothing, or all.
pub const WEIGHT_RANGE: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    pub id: TenantId,
    /// Unique, lower case, as in a DNS label.
    pub name: String,
    /// GPUs (or CPU slots) that its jobs may hold at once; `None` is no limit.
    pub gpu_quota: Option<u32>,
    /// Its share of the cluster beside the weights of the others, within [`WEIGHT_RANGE`]: twice the weight, twice the share.
    pub weight: f64,
    /// What the pods of its tasks may have.
    pub pods: TenantPods,
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Access {
    /// Jobs of its own tenant.
    Member,
    /// Nodes and tenants besides.
    Admin,
}

impl Access {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
        }
    }
}
