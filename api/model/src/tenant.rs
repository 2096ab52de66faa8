//! A tenant: who owns jobs, and how many GPUs its jobs may hold at once.

use crate::id::TenantId;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub id: TenantId,
    /// Unique, lower case, as in a DNS label.
    pub name: String,
    /// GPUs (or CPU slots) that its jobs may hold at once; `None` is no limit.
    pub gpu_quota: Option<u32>,
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
