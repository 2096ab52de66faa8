//! Check of nodes that the plan excludes.

use super::Checker;
use super::violation::Violation;
use crate::plan::NodeDecision;
use muster_model::id::NodeId;

impl Checker<'_> {
    /// At most half of the nodes that are up may be excluded, each after a fault. No task may start
    /// there from now on.
    pub(super) fn exclusions(&mut self, excluded: &[NodeDecision]) {
        let up = self.snapshot.nodes.iter().filter(|node| node.up);
        let before = up.clone().filter(|node| node.excluded).count();
        for one in excluded {
            match up.clone().find(|node| node.id == one.node) {
                None => self.unjust_exclusion(one.node, "which is not up"),
                Some(node) if node.excluded => {
                    self.unjust_exclusion(one.node, "which it was before")
                }
                Some(node) if node.faults.is_empty() => {
                    self.unjust_exclusion(one.node, "without a fault")
                }
                Some(_) => {}
            }
            if (before + excluded.len()) * 2 > up.clone().count() {
                self.unjust_exclusion(one.node, "and half of the cluster with it");
            }
        }
        for one in excluded {
            self.free.retain(|(node, _)| *node != one.node);
            self.cpu_milli.remove(&one.node);
            self.memory_bytes.remove(&one.node);
        }
    }

    fn unjust_exclusion(&mut self, node: NodeId, what: &'static str) {
        let violation = Violation::UnjustExclusion { node, what };
        self.violations.push(violation);
    }
}
