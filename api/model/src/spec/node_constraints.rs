//! Nodes on which the tasks of a job may run: GPU kinds, GPU memory, compute capability, labels and
//! names.
//!
//! All constraints must hold. They apply to every task of the job, PS shards included, because
//! labels often describe a network or a site.

use super::{WorkerResources, is_false};
use crate::compute_capability::ComputeCapability;
use crate::node::GpuClass;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Condition on one label of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NodeRequirement {
    /// Key of the label.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 317))]
    pub key: String,
    pub operator: LabelOperator,
    /// 1 to 64 values for `in` and `not_in`; none for the other operators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 64))]
    pub values: Vec<String>,
}

/// Comparison of a label with a condition's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum LabelOperator {
    /// The node has the label with one of the values.
    In,
    /// The node lacks the label, or has it with another value.
    NotIn,
    /// The node has the label.
    Exists,
    /// The node lacks the label.
    NotExists,
}

/// Constraints of a job on its nodes. The default allows every node of the cluster's best
/// [`GpuClass`].
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConstraints {
    /// Patterns of GPU models, of which one must match; empty for any model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_kinds: Vec<String>,
    /// Minimum memory of each GPU in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_bytes: Option<u64>,
    /// Minimum compute capability of each GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_selector: Vec<NodeRequirement>,
    /// Names of nodes on which the job does not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_nodes: Vec<String>,
    /// Whether the workers use no GPUs, so that the GPUs of a node do not matter.
    #[serde(skip_serializing_if = "is_false")]
    pub no_gpus: bool,
}

/// Properties of a node that constraints refer to.
#[derive(Debug, Clone, Copy)]
pub struct NodeTraits<'n> {
    pub name: &'n str,
    /// Model of the node's GPUs, as the driver or the cluster's labels name it.
    pub gpu_model: &'n str,
    /// Class of its GPUs; `None` without GPUs. Such a node can hold PS shards, so constraints on
    /// GPUs do not exclude it.
    pub class: Option<GpuClass>,
    /// Memory of the node's smallest GPU in bytes; 0 if unknown.
    pub gpu_memory_bytes: u64,
    /// Lowest compute capability of the node's GPUs; `None` if unknown.
    pub compute_capability: Option<ComputeCapability>,
    pub labels: &'n BTreeMap<String, String>,
}

/// The first constraint that a node does not meet, in the order of the variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum UnmetConstraint {
    /// `resources.worker.exclude_nodes` names the node.
    ExcludeNodes,
    /// A condition of `resources.worker.node_selector` fails.
    NodeSelector,
    /// `resources.worker.gpu_kinds` does not allow the GPU model. Without that field: the cluster
    /// has GPUs of a better class.
    GpuKinds,
    /// The GPUs have less memory than `resources.worker.gpu_memory_bytes`, or an unknown amount.
    GpuMemory,
    /// The GPUs have a lower compute capability than `resources.worker.compute_capability`, or an
    /// unknown one.
    ComputeCapability,
}

impl UnmetConstraint {
    /// Returns the field of the job document.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::ExcludeNodes => "resources.worker.exclude_nodes",
            Self::NodeSelector => "resources.worker.node_selector",
            Self::GpuKinds => "resources.worker.gpu_kinds",
            Self::GpuMemory => "resources.worker.gpu_memory_bytes",
            Self::ComputeCapability => "resources.worker.compute_capability",
        }
    }
}

impl NodeConstraints {
    /// Whether the job states no constraint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the first constraint that the node does not meet; `None` if the job may run there.
    /// `best` is the best class of GPUs in the cluster.
    #[must_use]
    pub fn unmet(&self, node: &NodeTraits<'_>, best: GpuClass) -> Option<UnmetConstraint> {
        if self.exclude_nodes.iter().any(|name| name == node.name) {
            return Some(UnmetConstraint::ExcludeNodes);
        }
        if !self.node_selector.iter().all(|one| one.holds(node.labels)) {
            return Some(UnmetConstraint::NodeSelector);
        }
        let class = node.class.filter(|_| !self.no_gpus)?;
        if !self.allows_model(node.gpu_model, class, best) {
            return Some(UnmetConstraint::GpuKinds);
        }
        let is_small = self
            .gpu_memory_bytes
            .is_some_and(|least| node.gpu_memory_bytes < least);
        if is_small {
            return Some(UnmetConstraint::GpuMemory);
        }
        // `None`, an unknown capability, is below every other one.
        let is_old = self.compute_capability > node.compute_capability;
        is_old.then_some(UnmetConstraint::ComputeCapability)
    }

    fn allows_model(&self, model: &str, class: GpuClass, best: GpuClass) -> bool {
        if self.gpu_kinds.is_empty() {
            return class >= best;
        }
        let mut patterns = self.gpu_kinds.iter();
        patterns.any(|pattern| matches_model(pattern, model, class))
    }
}

impl NodeRequirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            LabelOperator::In => is_listed,
            LabelOperator::NotIn => !is_listed,
            LabelOperator::Exists => value.is_some(),
            LabelOperator::NotExists => value.is_none(),
        }
    }
}

impl WorkerResources {
    /// Returns the constraints on the nodes of the job.
    #[must_use]
    pub fn node_constraints(&self) -> NodeConstraints {
        NodeConstraints {
            gpu_kinds: self.gpu_kinds.clone(),
            gpu_memory_bytes: self.gpu_memory_bytes,
            compute_capability: self.compute_capability,
            node_selector: self.node_selector.clone(),
            exclude_nodes: self.exclude_nodes.clone(),
            no_gpus: self.gpus == 0,
        }
    }
}

/// Whether a pattern names a GPU model. The words of the pattern must follow one another in the
/// model's name, regardless of case: `H100` names `NVIDIA H100 80GB HBM3` and
/// `NVIDIA-H100-80GB-HBM3`. Within a word `*` stands for any characters. GPU parts (MIG instances)
/// need a pattern that contains `MIG`.
fn matches_model(pattern: &str, model: &str, class: GpuClass) -> bool {
    let pattern = pattern.to_lowercase();
    if class == GpuClass::Part && !pattern.contains("mig") {
        return false;
    }
    let model = model.to_lowercase();
    let (wanted, there) = (words(&pattern), words(&model));
    !wanted.is_empty()
        && there.windows(wanted.len()).any(|there| {
            let mut pairs = wanted.iter().zip(there);
            pairs.all(|(pattern, word)| matches_word(pattern, word))
        })
}

fn words(text: &str) -> Vec<&str> {
    let words = text.split([' ', '-', '_', '/']);
    words.filter(|word| !word.is_empty()).collect()
}

fn matches_word(pattern: &str, word: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == word;
    };
    let Some(mut left) = word.strip_prefix(first) else {
        return false;
    };
    let Some((middle, last)) = rest.rsplit_once('*') else {
        return left.ends_with(rest);
    };
    for part in middle.split('*') {
        let Some(at) = left.find(part) else {
            return false;
        };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const H100: &str = "NVIDIA H100 80GB HBM3";
    const H100_LABEL: &str = "NVIDIA-H100-80GB-HBM3";
    const H100_PART: &str = "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb";

    #[test]
    fn words_of_a_pattern_follow_one_another_in_the_model() {
        let named = |pattern, model| matches_model(pattern, model, GpuClass::Gpu);
        for pattern in [
            "H100",
            "h100 80gb",
            "nvidia-h100",
            "H*",
            "*100",
            "8*GB",
            "h1*0*",
        ] {
            assert!(named(pattern, H100), "{pattern}");
            assert!(named(pattern, H100_LABEL), "{pattern}");
        }
        for pattern in [
            "H10",
            "A100",
            "NVIDIA 80GB",
            "*200",
            "h*200*",
            "",
            "HBM3 80GB",
        ] {
            assert!(!named(pattern, H100), "{pattern}");
        }
        assert!(!named("A10", "NVIDIA A100-SXM4-40GB"));
    }

    #[test]
    fn gpu_part_needs_a_pattern_that_names_it() {
        let named = |pattern| matches_model(pattern, H100_PART, GpuClass::Part);
        assert!(!named("H100"));
        assert!(named("H100-80GB-HBM3-MIG-1g.10gb"));
        assert!(named("MIG"));
        assert!(named("MIG-1g.*"));
        assert!(!named("MIG-2g.*"));
    }

    fn traits(labels: &BTreeMap<String, String>) -> NodeTraits<'_> {
        NodeTraits {
            name: "a",
            gpu_model: H100,
            class: Some(GpuClass::Gpu),
            gpu_memory_bytes: 80 << 30,
            compute_capability: ComputeCapability::new(9, 0),
            labels,
        }
    }

    fn require(operator: LabelOperator, values: &[&str]) -> NodeConstraints {
        NodeConstraints {
            node_selector: vec![NodeRequirement {
                key: "site".to_owned(),
                operator,
                values: values.iter().map(|&value| value.to_owned()).collect(),
            }],
            ..NodeConstraints::default()
        }
    }

    #[test]
    fn label_conditions_hold_as_in_kubernetes() {
        let labelled = BTreeMap::from([("site".to_owned(), "east".to_owned())]);
        let bare = BTreeMap::new();
        for (operator, values, with_label, without) in [
            (LabelOperator::In, &["east", "west"][..], true, false),
            (LabelOperator::In, &["west"], false, false),
            (LabelOperator::NotIn, &["east"], false, true),
            (LabelOperator::NotIn, &["west"], true, true),
            (LabelOperator::Exists, &[], true, false),
            (LabelOperator::NotExists, &[], false, true),
        ] {
            let constraints = require(operator, values);
            for (labels, holds) in [(&labelled, with_label), (&bare, without)] {
                let unmet = constraints.unmet(&traits(labels), GpuClass::Gpu);
                let expected = (!holds).then_some(UnmetConstraint::NodeSelector);
                assert_eq!(unmet, expected, "{operator:?} {values:?} {labels:?}");
            }
        }
    }

    #[test]
    fn unknown_or_small_gpu_memory_does_not_suffice() {
        let bare = BTreeMap::new();
        let constraints = NodeConstraints {
            gpu_memory_bytes: Some(40 << 30),
            ..NodeConstraints::default()
        };
        for (gpu_memory_bytes, unmet) in [
            (80 << 30, None),
            (24 << 30, Some(UnmetConstraint::GpuMemory)),
            (0, Some(UnmetConstraint::GpuMemory)),
        ] {
            let node = NodeTraits {
                gpu_memory_bytes,
                ..traits(&bare)
            };
            assert_eq!(constraints.unmet(&node, GpuClass::Gpu), unmet);
        }
    }

    #[test]
    fn unknown_or_lower_compute_capability_does_not_suffice() {
        let bare = BTreeMap::new();
        let least = |major, minor| NodeConstraints {
            compute_capability: ComputeCapability::new(major, minor),
            ..NodeConstraints::default()
        };
        let unknown = NodeTraits {
            compute_capability: None,
            ..traits(&bare)
        };
        let too_old = Some(UnmetConstraint::ComputeCapability);
        for (constraints, node, unmet) in [
            (least(8, 9), traits(&bare), None),
            (least(9, 0), traits(&bare), None),
            (least(10, 0), traits(&bare), too_old),
            (least(1, 0), unknown, too_old),
            (NodeConstraints::default(), unknown, None),
        ] {
            let found = constraints.unmet(&node, GpuClass::Gpu);
            assert_eq!(found, unmet, "{constraints:?}");
        }
    }

    #[test]
    fn job_without_kinds_runs_on_the_best_class() {
        let bare = BTreeMap::new();
        let slot = NodeTraits {
            gpu_model: "cpu",
            class: Some(GpuClass::CpuSlot),
            ..traits(&bare)
        };
        let any = NodeConstraints::default();
        assert_eq!(any.unmet(&slot, GpuClass::CpuSlot), None);
        let unmet = any.unmet(&slot, GpuClass::Gpu);
        assert_eq!(unmet, Some(UnmetConstraint::GpuKinds));
        let named = NodeConstraints {
            gpu_kinds: vec!["cpu".to_owned()],
            ..NodeConstraints::default()
        };
        assert_eq!(named.unmet(&slot, GpuClass::Gpu), None);
    }

    #[test]
    fn constraints_on_gpus_allow_a_node_without_gpus() {
        let bare = BTreeMap::new();
        let node = NodeTraits {
            gpu_model: "",
            class: None,
            gpu_memory_bytes: 0,
            compute_capability: None,
            ..traits(&bare)
        };
        let mut constraints = NodeConstraints {
            gpu_kinds: vec!["H100".to_owned()],
            gpu_memory_bytes: Some(1),
            compute_capability: ComputeCapability::new(8, 0),
            ..NodeConstraints::default()
        };
        assert_eq!(constraints.unmet(&node, GpuClass::Gpu), None);
        constraints.exclude_nodes = vec!["a".to_owned()];
        let unmet = constraints.unmet(&node, GpuClass::Gpu);
        assert_eq!(unmet, Some(UnmetConstraint::ExcludeNodes));
    }
}
