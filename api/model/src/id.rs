//! Typed identifiers. All are UUIDs; the caller supplies the value. Muster generates version 7,
//! which sorts by creation.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl From<Uuid> for $name {
            fn from(value: Uuid) -> Self {
                Self(value)
            }
        }

        impl From<$name> for Uuid {
            fn from(value: $name) -> Self {
                value.0
            }
        }
    )+};
}

ids! {
    /// Owner of jobs and quota; a column of every row of the store.
    TenantId,
    /// A person or a service account of one tenant.
    UserId,
    /// A bearer token; the secret itself is never stored.
    TokenId,
    /// One submitted job.
    JobId,
    /// One start of a process of a job, at one revision.
    TaskId,
    /// One machine with an executor.
    NodeId,
    /// One checkpoint of a job.
    CheckpointId,
    /// One search over parameters.
    StudyId,
    /// One remote session in a task.
    RemoteSessionId,
    /// One scheduling round.
    RoundId,
}
