//! The search space: dimensions in order, a parent before its children, and constraints.

use super::{Constraint, Domain, Errors, Parameter};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum number of parameters.
pub const MAX_PARAMETERS: usize = 128;
/// Maximum number and length of constraints: all of them are evaluated for every candidate.
const MAX_CONSTRAINTS: usize = 128;
const MAX_CONSTRAINT_BYTES: usize = 1000;
/// Maximum number of points of a grid.
pub const MAX_GRID: u64 = 1_000_000;

/// One inner value per dimension ([`Domain`] converts it); `None` if the trial lacks the parameter.
pub type Point = Vec<Option<f64>>;
/// A point as the user's document writes it: values by names of parameters.
pub type Parameters = BTreeMap<String, Value>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Space {
    pub dimensions: Vec<Dimension>,
    pub constraints: Vec<Constraint>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dimension {
    pub name: String,
    /// Field of the job document for the value.
    pub target: String,
    pub domain: Domain,
    /// Dimension on which this one depends, and the inner values of it under which a trial has this
    /// one.
    pub parent: Option<(usize, Vec<f64>)>,
}

impl Space {
    /// Returns `None` if something was wrong; `errors` then contains it.
    pub(super) fn build(
        parameters: &[Parameter],
        constraints: &[String],
        errors: &mut Errors,
    ) -> Option<Self> {
        let before = errors.0.len();
        errors.check(
            "parameters",
            &format!("{} parameters", parameters.len()),
            (1..=MAX_PARAMETERS).contains(&parameters.len()),
            "1 to 128 parameters",
        );
        let mut dimensions: Vec<Dimension> = Vec::new();
        for (i, parameter) in parameters.iter().enumerate() {
            let at = format!("parameters[{i}]");
            check_names(parameter, &parameters[..i], &at, errors);
            let parent = find_parent(parameter, &dimensions, &at, errors);
            let domain = parameter.domain(&at, errors);
            dimensions.push(Dimension {
                name: parameter.name.clone(),
                target: parameter.target().to_owned(),
                // The errors prevent a search with this placeholder; later parameters may refer to
                // it.
                domain: domain.unwrap_or(Domain::Float {
                    low: 0.0,
                    high: 0.0,
                    step: None,
                    log: false,
                }),
                parent,
            });
        }
        let read = read_constraints(constraints, &dimensions, errors);
        (errors.0.len() == before).then_some(Self {
            dimensions,
            constraints: read,
        })
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.dimensions.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dimensions.is_empty()
    }

    /// Whether a trial with these values so far has dimension `d`.
    #[must_use]
    pub fn is_active(&self, d: usize, point: &[Option<f64>]) -> bool {
        self.dimensions[d]
            .parent
            .as_ref()
            .is_none_or(|(parent, values)| point[*parent].is_some_and(|v| values.contains(&v)))
    }

    /// Removes the values of dimensions that a trial with these values does not have.
    pub fn prune(&self, point: &mut Point) {
        for d in 0..self.len() {
            if !self.is_active(d, point) {
                point[d] = None;
            }
        }
    }

    /// Whether all constraints hold.
    #[must_use]
    pub fn allows(&self, point: &[Option<f64>]) -> bool {
        self.constraints.iter().all(|c| c.holds(self, point))
    }

    /// Whether the point has exactly the parameters that it must have, with values of their
    /// domains, and breaks no constraint.
    #[must_use]
    pub fn contains(&self, point: &[Option<f64>]) -> bool {
        let mut values = point.iter().enumerate();
        point.len() == self.len()
            && values.all(|(d, value)| match value {
                Some(value) => {
                    self.is_active(d, point) && self.dimensions[d].domain.contains(*value)
                }
                None => !self.is_active(d, point),
            })
            && self.allows(point)
    }

    /// Returns the point as the user's document writes it.
    #[must_use]
    pub fn parameters(&self, point: &[Option<f64>]) -> Parameters {
        let pairs = self.dimensions.iter().zip(point);
        pairs
            .filter_map(|(d, value)| Some((d.name.clone(), d.domain.value((*value)?))))
            .collect()
    }

    /// Returns the point of a document; `None` if it is outside the space.
    #[must_use]
    pub fn read(&self, parameters: &Parameters) -> Option<Point> {
        let mut names = parameters.keys();
        if !names.all(|name| self.dimensions.iter().any(|d| d.name == *name)) {
            return None;
        }
        let mut point = Vec::with_capacity(self.len());
        for dimension in &self.dimensions {
            point.push(match parameters.get(&dimension.name) {
                Some(value) => Some(dimension.domain.read(value)?),
                None => None,
            });
        }
        self.contains(&point).then_some(point)
    }

    /// Returns the number of grid points, including those of inactive parameters; `None` beyond
    /// u64.
    #[must_use]
    pub fn grid_points(&self) -> Option<u64> {
        self.dimensions
            .iter()
            .try_fold(1u64, |product, d| product.checked_mul(d.domain.count()?))
    }

    pub(super) fn check_grid(&self, errors: &mut Errors) {
        for (i, dimension) in self.dimensions.iter().enumerate() {
            errors.check(
                &format!("parameters[{i}].step"),
                "missing",
                dimension.domain.count().is_some(),
                "a step, because a grid needs finitely many values of each parameter (or another searcher)",
            );
        }
        let endless = self.dimensions.iter().any(|d| d.domain.count().is_none());
        let points = self.grid_points();
        let shown = points.map_or("more than 10^19 points".to_owned(), |n| {
            format!("{n} points")
        });
        errors.check(
            "searcher",
            &format!("a grid of {shown}"),
            endless || points.is_some_and(|n| n <= MAX_GRID),
            "a grid of at most 1000000 points: larger steps, fewer parameters, or another searcher",
        );
    }
}

/// Returns the constraints that can be parsed. The others are added to `errors`.
fn read_constraints(
    texts: &[String],
    dimensions: &[Dimension],
    errors: &mut Errors,
) -> Vec<Constraint> {
    errors.check(
        "constraints",
        &format!("{} constraints", texts.len()),
        texts.len() <= MAX_CONSTRAINTS,
        &format!("at most {MAX_CONSTRAINTS} constraints"),
    );
    let mut read = Vec::new();
    for (i, text) in texts.iter().take(MAX_CONSTRAINTS).enumerate() {
        let field = format!("constraints[{i}]");
        if text.len() > MAX_CONSTRAINT_BYTES {
            let expected = format!("at most {MAX_CONSTRAINT_BYTES} bytes");
            errors.check(&field, &format!("{} bytes", text.len()), false, &expected);
            continue;
        }
        match Constraint::parse(text, dimensions) {
            Ok(constraint) => read.push(constraint),
            Err(expected) => errors.check(&field, &format!("{text:?}"), false, &expected),
        }
    }
    read
}

fn check_names(parameter: &Parameter, before: &[Parameter], at: &str, errors: &mut Errors) {
    let twice = before.iter().any(|p| p.name == parameter.name);
    errors.check(
        &format!("{at}.name"),
        &format!("{:?}", parameter.name),
        !twice,
        "a name that no other parameter has",
    );
    errors.check(
        &format!("{at}.name"),
        &format!("{:?}", parameter.name),
        (1..=200).contains(&parameter.name.len()),
        "1 to 200 bytes",
    );
}

fn find_parent(
    parameter: &Parameter,
    before: &[Dimension],
    at: &str,
    errors: &mut Errors,
) -> Option<(usize, Vec<f64>)> {
    let condition = parameter.when.as_ref()?;
    let parent = before.iter().position(|d| d.name == condition.parameter);
    errors.check(
        &format!("{at}.when.parameter"),
        &format!("{:?}", condition.parameter),
        parent.is_some_and(|p| matches!(before[p].domain, Domain::Categorical { .. })),
        "the name of a categorical parameter that stands before this one",
    );
    let parent = parent?;
    let values: Vec<Option<f64>> = condition
        .is
        .iter()
        .map(|value| before[parent].domain.read(value))
        .collect();
    errors.check(
        &format!("{at}.when.is"),
        &Value::from(condition.is.clone()).to_string(),
        !values.is_empty() && values.iter().all(Option::is_some),
        &format!("one or more of the choices of {:?}", condition.parameter),
    );
    Some((parent, values.into_iter().flatten().collect()))
}
