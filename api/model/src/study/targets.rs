//! Fields of the job document into which parameters are written: each must have a single writer per
//! trial.

use super::{Errors, Space};

impl Space {
    /// Checks that no value overwrites a field of the study (`own`) or of another parameter of the
    /// same trial.
    pub(super) fn check_targets(&self, own: &[&str], errors: &mut Errors) {
        for (i, dimension) in self.dimensions.iter().enumerate() {
            let field = format!("parameters[{i}].field");
            let shown = format!("{:?}", dimension.target);
            for path in own {
                errors.check(
                    &field,
                    &shown,
                    !overlap(path, &dimension.target),
                    &format!("another than {path}, which the study says for all its trials"),
                );
            }
            let before = self.dimensions[..i].iter().enumerate();
            let other = before
                .filter(|(_, d)| overlap(&d.target, &dimension.target))
                .find(|(d, _)| !self.exclude_each_other(*d, i));
            if let Some((_, other)) = other {
                let expected = format!(
                    "apart from {:?}, where {:?} goes, unless the two depend on different values of one parameter",
                    other.target, other.name
                );
                errors.check(&field, &shown, false, &expected);
            }
        }
    }

    /// Whether no trial has both: they depend, directly or not, on different values of one
    /// parameter.
    fn exclude_each_other(&self, a: usize, b: usize) -> bool {
        self.conditions(a).any(|(parent, values)| {
            let mut others = self.conditions(b).filter(|(other, _)| other == parent);
            others.any(|(_, other)| !values.iter().any(|v| other.contains(v)))
        })
    }

    /// Returns its own condition, that of its parent, and so on.
    fn conditions(&self, d: usize) -> impl Iterator<Item = &(usize, Vec<f64>)> {
        let first = self.dimensions[d].parent.as_ref();
        std::iter::successors(first, |(parent, _)| {
            self.dimensions[*parent].parent.as_ref()
        })
    }
}

/// Whether both are the same field or one is within the other.
fn overlap(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let rest = long.strip_prefix(short);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
