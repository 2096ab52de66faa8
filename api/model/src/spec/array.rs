//! The `array` part of the job document: jobs of which a limited number run at the same time.

use super::{DNS_LABEL_RULE, JobSpec, is_dns_label, validate::Errors};
use serde::{Deserialize, Serialize};

/// Largest limit of an array.
const MAX_PARALLEL: u32 = 10_000;

/// Membership of a job in an array with a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ArrayMember {
    /// Name of the array, unique in the tenant: 1 to 63 characters of `a-z`, `0-9` and `-`. Jobs of
    /// the same name belong together.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 63))]
    pub name: String,
    /// Maximum number of the array's jobs that run or are ready to run at the same time; 1 to
    /// 10,000. Further ones wait in the order of their submission.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 10_000))]
    pub parallel: u32,
}

impl JobSpec {
    pub(super) fn check_array(&self, errors: &mut Errors) {
        let Some(array) = &self.array else {
            return;
        };
        errors.check(
            "array.name",
            &array.name,
            is_dns_label(&array.name),
            DNS_LABEL_RULE,
        );
        errors.check(
            "array.parallel",
            &array.parallel,
            (1..=MAX_PARALLEL).contains(&array.parallel),
            "1 to 10,000",
        );
    }
}
