//! Author of a request to the API, as the history names it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// User, as the tenant whose object was changed sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Actor {
    /// Name of the user. For an administrator who acts for another tenant: `NAME@TENANT`, with the
    /// administrator's own tenant.
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
        match self.as_administrator {
            true => write!(f, "{} as administrator", self.user),
            false => write!(f, "{}", self.user),
        }
    }
}
