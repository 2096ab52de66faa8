//! Long-poll queue: serialises waiting requests for a study's trials. Only the first one queries
//! the database, so a notification causes one query instead of one per waiting request.

use muster_model::id::StudyId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The queues of this process. Another replica has its own.
#[derive(Debug, Default)]
pub struct LongPollQueues {
    lines: Mutex<HashMap<StudyId, Weak<tokio::sync::Mutex<()>>>>,
}

/// The first place of a queue, until it is dropped.
#[derive(Debug)]
pub struct LongPollTurn {
    _place: tokio::sync::OwnedMutexGuard<()>,
}

impl LongPollQueues {
    /// Waits until all earlier requests have left the queue.
    pub async fn first(&self, study: StudyId) -> LongPollTurn {
        let line = self.of(study);
        LongPollTurn {
            _place: line.lock_owned().await,
        }
    }

    fn of(&self, study: StudyId) -> Arc<tokio::sync::Mutex<()>> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, line| line.strong_count() > 0);
        if let Some(line) = lines.get(&study).and_then(Weak::upgrade) {
            return line;
        }
        let line = Arc::default();
        lines.insert(study, Arc::downgrade(&line));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn long_polls_of_a_study_are_served_in_order() {
        let (lines, one, other) = (
            LongPollQueues::default(),
            StudyId(uuid(1)),
            StudyId(uuid(2)),
        );
        let first = lines.first(one).await;
        let (mut second, mut third) = (Box::pin(lines.first(one)), Box::pin(lines.first(one)));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        assert!(lines.first(other).now_or_never().is_some());
        drop(first);
        assert!(
            (&mut third).now_or_never().is_none(),
            "the second is before it"
        );
        let second = (&mut second).now_or_never().expect("it is first");
        drop(second);
        drop((&mut third).now_or_never().expect("it is first"));
        drop(lines.first(other).await);
        assert_eq!(
            lines.lines.lock().expect("nobody has it").len(),
            1,
            "nobody is left in the other"
        );
    }

    fn uuid(number: u128) -> uuid::Uuid {
        uuid::Uuid::from_u128(number)
    }
}
