//! Constraints on nodes, and labels of nodes.

use super::{Errors, FieldError, TIB};
use crate::spec::{JobSpec, LabelOperator, NodeRequirement};
use std::collections::BTreeMap;

const MAX_KINDS: usize = 16;
const MAX_CONDITIONS: usize = 16;
const MAX_EXCLUDED: usize = 64;
/// Maximum number of labels of one node from one source.
pub const MAX_NODE_LABELS: usize = 256;

impl JobSpec {
    pub(super) fn check_node_constraints(&self, errors: &mut Errors) {
        let worker = &self.resources.worker;
        errors.at_most(
            "resources.worker.gpu_kinds",
            worker.gpu_kinds.len(),
            MAX_KINDS,
        );
        for (index, pattern) in worker.gpu_kinds.iter().enumerate() {
            let has_word = pattern.bytes().any(|c| c.is_ascii_alphanumeric());
            errors.check(
                &format!("resources.worker.gpu_kinds[{index}]"),
                pattern,
                has_word && pattern.chars().count() <= 253,
                "words of a GPU model such as H100, in at most 253 characters",
            );
        }
        if let Some(bytes) = worker.gpu_memory_bytes {
            errors.check(
                "resources.worker.gpu_memory_bytes",
                &bytes,
                (1..=4 * TIB).contains(&bytes),
                "1 to 4398046511104 (4 TiB)",
            );
        }
        errors.at_most(
            "resources.worker.node_selector",
            worker.node_selector.len(),
            MAX_CONDITIONS,
        );
        for (index, one) in worker.node_selector.iter().enumerate() {
            check_requirement(
                errors,
                &format!("resources.worker.node_selector[{index}]"),
                one,
            );
        }
        errors.at_most(
            "resources.worker.exclude_nodes",
            worker.exclude_nodes.len(),
            MAX_EXCLUDED,
        );
        for (index, name) in worker.exclude_nodes.iter().enumerate() {
            errors.check(
                &format!("resources.worker.exclude_nodes[{index}]"),
                name,
                (1..=253).contains(&name.len()),
                "the name of a node, 1 to 253 characters",
            );
        }
    }
}

fn check_requirement(errors: &mut Errors, field: &str, one: &NodeRequirement) {
    errors.check(
        &format!("{field}.key"),
        &one.key,
        is_label_key(&one.key),
        "the key of a label: 1 to 317 characters of A-Z, a-z, 0-9 and -_./",
    );
    let (right, expected) = match one.operator {
        LabelOperator::In | LabelOperator::NotIn => (
            (1..=64).contains(&one.values.len()),
            "1 to 64 values with in and not_in",
        ),
        LabelOperator::Exists | LabelOperator::NotExists => (
            one.values.is_empty(),
            "no values with exists and not_exists",
        ),
    };
    let count = format!("{} values", one.values.len());
    errors.check(&format!("{field}.values"), &count, right, expected);
    for (index, value) in one.values.iter().enumerate() {
        errors.check(
            &format!("{field}.values[{index}]"),
            value,
            is_label_value(value),
            "the value of a label: at most 253 characters",
        );
    }
}

/// Whether a text can be the key of a node's label. Keys of Kubernetes are among them.
fn is_label_key(key: &str) -> bool {
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b"-_./".contains(&c);
    (1..=317).contains(&key.len()) && key.bytes().all(is_allowed)
}

/// Whether a text can be the value of a node's label.
fn is_label_value(value: &str) -> bool {
    value.len() <= 253 && !value.chars().any(char::is_control)
}

/// Checks the labels of a node. `field` is the path of the map.
///
/// # Errors
/// One [`FieldError`] per broken rule.
pub fn check_labels(field: &str, labels: &BTreeMap<String, String>) -> Result<(), Vec<FieldError>> {
    let mut errors = Errors::default();
    errors.at_most(field, labels.len(), MAX_NODE_LABELS);
    for (key, value) in labels {
        errors.check(
            field,
            key,
            is_label_key(key),
            "keys of 1 to 317 characters of A-Z, a-z, 0-9 and -_./",
        );
        errors.check(
            &format!("{field}.{key}"),
            value,
            is_label_value(value),
            "at most 253 characters",
        );
    }
    if errors.0.is_empty() {
        Ok(())
    } else {
        Err(errors.0)
    }
}
