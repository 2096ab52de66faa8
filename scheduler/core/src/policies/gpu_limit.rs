//! Constraint that the programmes of several policies share.

use microlp::{ComparisonOp, LinearExpr, Problem, Variable};

/// Limits the sum of the variables, each times its GPUs, to `gpus`.
pub fn limit_gpus(
    programme: &mut Problem,
    counted: impl Iterator<Item = (Variable, u32)>,
    gpus: u32,
) {
    let terms: LinearExpr = counted.map(|(x, each)| (x, f64::from(each))).collect();
    programme.add_constraint(terms, ComparisonOp::Le, f64::from(gpus));
}
