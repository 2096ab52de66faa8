//! What went wrong and was said already: the node's loop meets it at each look, and whoever reads its log wants it once.

use std::collections::BTreeSet;

/// Of one task. What comes after so many different ones is none of a disk's doing.
const MOST: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Said(BTreeSet<String>);

impl Said {
    /// Whether this has not been said yet; from now on it has.
    pub(crate) fn is_new(&mut self, what: &str) -> bool {
        self.0.len() < MOST && self.0.insert(what.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_and_no_task_fills_a_log() {
        let mut said = Said::default();
        assert!(said.is_new("a") && said.is_new("b"));
        assert!(!said.is_new("a") && !said.is_new("b"));
        let more = (0..1_000).filter(|number| said.is_new(&number.to_string()));
        assert_eq!(more.count(), MOST - 2);
    }
}
