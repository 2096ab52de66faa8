//! A priority class and its rules.

use super::{NO_PRIORITY, PRIORITY_RANGE, PriorityUser, error};
use crate::spec::{DNS_LABEL_RULE, FieldError, is_dns_label};
use crate::tenant::Access;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Maximum number of tenants that a class names.
pub const MAX_CLASS_TENANTS: usize = 256;
/// Maximum number of characters of a description.
pub const MAX_DESCRIPTION_CHARS: usize = 255;

/// A range of job priorities, with the roles and tenants that may use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PriorityClass {
    pub name: String,
    pub description: String,
    /// Lowest priority of its jobs.
    pub lowest: i32,
    /// Highest priority of its jobs.
    pub highest: i32,
    /// Priority of jobs whose documents state only the class.
    pub default: i32,
    /// Access of the tokens that may use it. Administrators may use every class.
    pub roles: BTreeSet<Access>,
    /// Names of the tenants whose jobs may have it; empty: all. A member sees only its own tenant
    /// here.
    pub tenants: BTreeSet<String>,
}

/// A class without its name, to create or replace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PriorityClassDocument {
    /// At most 255 characters, for users.
    #[serde(default)]
    pub description: String,
    /// Lowest priority of its jobs; -100 to 100.
    #[cfg_attr(feature = "schema", schema(minimum = -100, maximum = 100))]
    pub lowest: i32,
    /// Highest priority of its jobs; `lowest` to 100.
    #[cfg_attr(feature = "schema", schema(minimum = -100, maximum = 100))]
    pub highest: i32,
    /// Priority of jobs whose documents state only the class; `lowest` to `highest`. Default: the
    /// number of the range that is nearest to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = -100, maximum = 100))]
    pub default: Option<i32>,
    /// Access of the tokens that may use it; at least one. Default: `member`. Administrators may
    /// use every class.
    #[serde(default = "members")]
    pub roles: BTreeSet<Access>,
    /// Names of the tenants whose jobs may have it; at most 256. Default: all.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub tenants: BTreeSet<String>,
}

impl PriorityClassDocument {
    /// Returns the class of this name.
    ///
    /// # Errors
    /// One [`FieldError`] per broken rule.
    pub fn named(self, name: &str) -> Result<PriorityClass, Vec<FieldError>> {
        let (lowest, highest) = (self.lowest, self.highest);
        let nearest = NO_PRIORITY.min(highest).max(lowest);
        let class = PriorityClass {
            name: name.to_owned(),
            description: self.description,
            lowest,
            highest,
            default: self.default.unwrap_or(nearest),
            roles: self.roles,
            tenants: self.tenants,
        };
        class.validate()?;
        Ok(class)
    }
}

impl PriorityClass {
    fn validate(&self) -> Result<(), Vec<FieldError>> {
        let whole = "-100 to 100";
        let range = PRIORITY_RANGE.contains(&self.lowest) && PRIORITY_RANGE.contains(&self.highest);
        let chars = self.description.chars().count();
        let rules = [
            (
                "name",
                format!("{:?}", self.name),
                is_dns_label(&self.name),
                DNS_LABEL_RULE.to_owned(),
            ),
            (
                "description",
                format!("{chars} characters"),
                chars <= MAX_DESCRIPTION_CHARS && !self.description.contains('\0'),
                format!("at most {MAX_DESCRIPTION_CHARS} characters, none of them NUL"),
            ),
            (
                "lowest",
                self.lowest.to_string(),
                PRIORITY_RANGE.contains(&self.lowest),
                whole.to_owned(),
            ),
            (
                "highest",
                self.highest.to_string(),
                PRIORITY_RANGE.contains(&self.highest),
                whole.to_owned(),
            ),
            (
                "highest",
                self.highest.to_string(),
                !range || self.lowest <= self.highest,
                format!("{} (`lowest`) to 100", self.lowest),
            ),
            (
                "default",
                self.default.to_string(),
                !range || self.lowest > self.highest || self.range().contains(&self.default),
                format!("{} to {}", self.lowest, self.highest),
            ),
            (
                "roles",
                "[]".to_owned(),
                !self.roles.is_empty(),
                "one or more of member and admin".to_owned(),
            ),
            (
                "tenants",
                format!("{} names", self.tenants.len()),
                self.tenants.len() <= MAX_CLASS_TENANTS,
                format!("at most {MAX_CLASS_TENANTS} names"),
            ),
        ];
        let broken = rules.into_iter().filter(|(_, _, holds, _)| !holds);
        let errors: Vec<FieldError> = broken
            .map(|(field, value, _, expected)| error(field, value, expected))
            .collect();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    #[must_use]
    pub fn range(&self) -> RangeInclusive<i32> {
        self.lowest..=self.highest
    }

    /// Whether the user may give the class to a job.
    #[must_use]
    pub fn is_usable(&self, user: PriorityUser<'_>) -> bool {
        let by_role = user.access == Access::Admin || self.roles.contains(&user.access);
        by_role && (self.tenants.is_empty() || self.tenants.contains(user.tenant))
    }
}

fn members() -> BTreeSet<Access> {
    BTreeSet::from([Access::Member])
}
