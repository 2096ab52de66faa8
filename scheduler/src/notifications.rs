//! Converts the store's notifications to counters on which rounds and sessions wait. A notification
//! carries no data and may be repeated or merged. A woken loop reads the store.

use muster_store::notify::{Listener, NotifyChannel};
use muster_store::pool::StorePool;
use std::time::Duration;
use tokio::sync::watch;

const RETRY: Duration = Duration::from_millis(500);

/// Receivers of the loops.
#[derive(Debug, Clone)]
pub struct Notifications {
    pub rounds: watch::Receiver<u64>,
    pub assignments: watch::Receiver<u64>,
    pub questions: watch::Receiver<u64>,
    /// Orders to studies, and reports of their trials.
    pub studies: watch::Receiver<u64>,
    /// All events of jobs, some of which are trials.
    pub trials: watch::Receiver<u64>,
}

/// Senders.
#[derive(Debug)]
pub struct NotificationListener {
    rounds: watch::Sender<u64>,
    assignments: watch::Sender<u64>,
    questions: watch::Sender<u64>,
    studies: watch::Sender<u64>,
    trials: watch::Sender<u64>,
}

#[must_use]
pub fn channel() -> (NotificationListener, Notifications) {
    let (rounds_sender, rounds) = watch::channel(0);
    let (assignments_sender, assignments) = watch::channel(0);
    let (questions_sender, questions) = watch::channel(0);
    let (studies_sender, studies) = watch::channel(0);
    let (trials_sender, trials) = watch::channel(0);
    (
        NotificationListener {
            rounds: rounds_sender,
            assignments: assignments_sender,
            questions: questions_sender,
            studies: studies_sender,
            trials: trials_sender,
        },
        Notifications {
            rounds,
            assignments,
            questions,
            studies,
            trials,
        },
    )
}

impl NotificationListener {
    /// Listens until the process ends. Wakes all receivers after every connection, because
    /// notifications may have been missed.
    pub async fn run(self, pool: StorePool) {
        loop {
            if let Err(error) = self.listen(&pool).await {
                tracing::warn!(%error, "listening for wake-ups broke off; connecting again");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn listen(&self, pool: &StorePool) -> Result<(), muster_store::StoreError> {
        let channels = [
            NotifyChannel::Rounds,
            NotifyChannel::Assignments,
            NotifyChannel::Questions,
            NotifyChannel::Studies,
            NotifyChannel::Events,
        ];
        let mut listener = Listener::connect(pool, &channels).await?;
        self.rounds.send_modify(|count| *count += 1);
        self.assignments.send_modify(|count| *count += 1);
        self.questions.send_modify(|count| *count += 1);
        self.studies.send_modify(|count| *count += 1);
        self.trials.send_modify(|count| *count += 1);
        loop {
            match listener.next().await? {
                NotifyChannel::Rounds => self.rounds.send_modify(|count| *count += 1),
                NotifyChannel::Assignments => self.assignments.send_modify(|count| *count += 1),
                NotifyChannel::Questions => self.questions.send_modify(|count| *count += 1),
                NotifyChannel::Studies => self.studies.send_modify(|count| *count += 1),
                NotifyChannel::Events => self.trials.send_modify(|count| *count += 1),
            }
        }
    }
}
