//! Filter for repeated messages: the node loop meets an error in each poll, and the log should
//! contain it once.

use std::collections::BTreeSet;

/// Maximum number of different messages per task, so that a task cannot fill the log.
const MOST: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct LogOnce(BTreeSet<String>);

impl LogOnce {
    /// Whether the message is new; it is recorded.
    pub(crate) fn is_new(&mut self, what: &str) -> bool {
        self.0.len() < MOST && self.0.insert(what.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_new_once_and_messages_per_task_are_bounded() {
        let mut said = LogOnce::default();
        assert!(said.is_new("a") && said.is_new("b"));
        assert!(!said.is_new("a") && !said.is_new("b"));
        let more = (0..1_000).filter(|number| said.is_new(&number.to_string()));
        assert_eq!(more.count(), MOST - 2);
    }
}
