//! Author of a request to the API, as the history names it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// User, as the tenant whose object was changed sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Actor {
    /// Name of the user. An administrator that acts for another tenant has `NAME@TENANT`, with
    /// its own tenant.
    pub user: String,
    /// Whether the user acted as an administrator for a tenant other than its own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub as_administrator: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.as_administrator {
            write!(f, "{} as administrator", self.user)
        } else {
            write!(f, "{}", self.user)
        }
    }
}
