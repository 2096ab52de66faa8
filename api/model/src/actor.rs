//! Who did something through the api, as the history names them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A user, as of the tenant whose thing it was done to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Actor {
    /// Its name; of an administrator on behalf of another tenant `NAME@TENANT`, after its own.
    pub user: String,
    /// Whether it did so as an administrator on behalf of a tenant that is not its own.
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
