//! A tenant: owner of jobs, with a GPU quota and a share of the cluster.

mod limits;
mod pods;
mod pods_change;
mod preemption;

pub use limits::{LimitsChange, LimitsSet, LimitsUse, MAX_LIMIT, TenantLimits};
pub use pods::TenantPods;
pub use pods_change::TenantPodsChange;
pub use preemption::{TenantPreemption, TenantPreemptionChange};

use crate::id::TenantId;
use serde::{Deserialize, Serialize};

/// Weight of a tenant for which no other was set.
pub const EQUAL_WEIGHT: f64 = 1.0;

/// Range of weights; beyond it a share is practically nothing or all.
pub const WEIGHT_RANGE: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    pub id: TenantId,
    /// Unique, lower case, a DNS label.
    pub name: String,
    /// Maximum number of GPUs or CPU slots that its jobs hold at one time; `None`: no limit.
    pub gpu_quota: Option<u32>,
    /// Share of the cluster relative to the weights of other tenants, within [`WEIGHT_RANGE`].
    pub weight: f64,
    /// Cluster objects that the pods of its tasks may use.
    pub pods: TenantPods,
    /// Caps on what its jobs may demand in `preemption`.
    pub preemption: TenantPreemption,
    /// Whether measurements of its job families are shared with the other tenants that share.
    pub shares_families: bool,
    /// Whether its members may open remote sessions in the tasks of its jobs.
    pub interactive: bool,
}

/// Rights of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Access {
    /// Jobs of its own tenant.
    Member,
    /// Also nodes and tenants.
    Admin,
}

impl Access {
    pub const ALL: [Self; 2] = [Self::Member, Self::Admin];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
        }
    }

    /// Returns the access of this name; `None` for an unknown one.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|access| access.as_str() == name)
    }
}
