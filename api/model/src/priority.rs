//! Priority classes: ranges of `priority` with a name, for certain roles and tenants.
//! Administrators set them. A document names a class, a number, or both.

mod class;

pub use class::{MAX_CLASS_TENANTS, MAX_DESCRIPTION_CHARS, PriorityClass, PriorityClassDocument};

use crate::spec::FieldError;
use crate::tenant::Access;
use std::ops::RangeInclusive;

/// Priorities that a job can have.
pub const PRIORITY_RANGE: RangeInclusive<i32> = -100..=100;
/// Priority of a job whose document states none. Every caller may use it.
pub const NO_PRIORITY: i32 = 0;
/// Maximum number of classes of an installation. A refusal lists all that the caller may use.
pub const MAX_CLASSES: usize = 64;

/// Caller that sets the priority of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityUser<'a> {
    pub access: Access,
    /// Name of the job's tenant.
    pub tenant: &'a str,
}

/// Returns the priority of a job whose document states `priority` and `class`. `classes` are all
/// classes of the installation.
///
/// With a class, the default is that of the class, and the number must lie in its range. Without a
/// class, [`NO_PRIORITY`] is always allowed. Another number must lie in the range of a class that
/// the user may use; if no class exists, any number of [`PRIORITY_RANGE`] is allowed.
///
/// # Errors
/// The field that is wrong: `priority` or `priority_class`.
pub fn resolve(
    priority: Option<i32>,
    class: Option<&str>,
    classes: &[PriorityClass],
    user: PriorityUser<'_>,
) -> Result<i32, FieldError> {
    let usable = classes.iter().filter(|class| class.is_usable(user));
    let usable: Vec<&PriorityClass> = usable.collect();
    if let Some(name) = class {
        let Some(class) = usable.iter().find(|class| class.name == name) else {
            let expected = expected_class(classes, &usable, user);
            return Err(error("priority_class", format!("{name:?}"), expected));
        };
        let number = priority.unwrap_or(class.default);
        if class.range().contains(&number) {
            return Ok(number);
        }
        let expected = format!(
            "{} to {}, the range of priority class {name}",
            class.lowest, class.highest
        );
        return Err(error("priority", number.to_string(), expected));
    }
    let number = priority.unwrap_or(NO_PRIORITY);
    let allowed = allowed(None, classes, user);
    if allowed.iter().any(|range| range.contains(&number)) {
        return Ok(number);
    }
    let expected = if usable.is_empty() {
        format!("0: {}", no_class(user))
    } else {
        format!(
            "0, or a number of a priority class that {} may use: {}",
            shown(user),
            listed(&usable)
        )
    };
    Err(error("priority", number.to_string(), expected))
}

/// Returns the numbers that [`resolve`] allows for a job whose document states `class`, as ranges
/// that may overlap; none if the user may not use the class.
#[must_use]
pub fn allowed(
    class: Option<&str>,
    classes: &[PriorityClass],
    user: PriorityUser<'_>,
) -> Vec<RangeInclusive<i32>> {
    let usable = classes.iter().filter(|class| class.is_usable(user));
    if let Some(name) = class {
        let own = usable.filter(|class| class.name == name);
        return own.map(PriorityClass::range).collect();
    }
    if classes.is_empty() {
        return vec![PRIORITY_RANGE];
    }
    let mut ranges: Vec<RangeInclusive<i32>> = usable.map(PriorityClass::range).collect();
    ranges.push(NO_PRIORITY..=NO_PRIORITY);
    ranges
}

fn expected_class(
    classes: &[PriorityClass],
    usable: &[&PriorityClass],
    user: PriorityUser<'_>,
) -> String {
    if classes.is_empty() {
        "no value: no priority class exists; `priority` alone states the number".to_owned()
    } else if usable.is_empty() {
        format!("no value: {}", no_class(user))
    } else {
        format!(
            "a priority class that {} may use: {}",
            shown(user),
            listed(usable)
        )
    }
}

fn no_class(user: PriorityUser<'_>) -> String {
    format!("there is no priority class that {} may use", shown(user))
}

fn shown(user: PriorityUser<'_>) -> String {
    match user.access {
        Access::Member => format!("members of tenant {}", user.tenant),
        Access::Admin => format!("administrators for tenant {}", user.tenant),
    }
}

/// Lists names with their ranges, such as `batch (-50 to 0), urgent (10 to 50)`.
fn listed(classes: &[&PriorityClass]) -> String {
    let named = classes
        .iter()
        .map(|class| format!("{} ({} to {})", class.name, class.lowest, class.highest));
    named.collect::<Vec<_>>().join(", ")
}

fn error(field: &str, value: String, expected: String) -> FieldError {
    FieldError {
        field: field.to_owned(),
        value,
        expected,
    }
}

#[cfg(test)]
mod tests;
