//! Names that one interface has logged first. Values of another interface are not counted if they
//! have such a name, or another name for the same quantity of the curve.

use super::super::metric::{Meaning, meaning};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeSet<String>", into = "BTreeSet<String>")]
pub(in super::super) struct ClaimedNames {
    names: BTreeSet<String>,
    meanings: Vec<Meaning>,
}

impl ClaimedNames {
    pub(in super::super) fn claim(&mut self, name: &str) {
        if !self.names.insert(name.to_owned()) {
            return;
        }
        let means = meaning(name);
        if means != Meaning::Other && !self.meanings.contains(&means) {
            self.meanings.push(means);
        }
    }

    /// Whether the name itself is claimed.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether the name or its quantity is claimed.
    pub(in super::super) fn covers(&self, name: &str) -> bool {
        let is_empty = self.names.is_empty();
        !is_empty && (self.contains(name) || self.meanings.contains(&meaning(name)))
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}

impl From<BTreeSet<String>> for ClaimedNames {
    fn from(names: BTreeSet<String>) -> Self {
        let mut claimed = Self::default();
        names.iter().for_each(|name| claimed.claim(name));
        claimed
    }
}

impl From<ClaimedNames> for BTreeSet<String> {
    fn from(claimed: ClaimedNames) -> Self {
        claimed.names
    }
}
