//! Jobs of one tenant as they were last read. What was read earlier never takes the place of what was read later, whoever reads: a look may
//! hear from an order that it gave what a list that was asked for before does not know yet.

use muster_model::id::JobId;
use muster_model::view::JobView;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long a job that has ended is kept: its object is looked at once more when its status has been written.
const ENDED: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Kept {
    jobs: HashMap<JobId, Job>,
}

#[derive(Debug)]
struct Job {
    view: JobView,
    /// When the answer was there.
    answered: Instant,
}

/// When something was asked, and when it was answered: what the answer says was true at some moment between the two.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    pub asked: Instant,
    pub answered: Instant,
}

/// What came of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// As it was.
    Same,
    Changed,
    /// It may be older than what is known.
    Older,
}

impl Kept {
    #[must_use]
    pub fn get(&self, id: JobId) -> Option<&JobView> {
        self.jobs.get(&id).map(|job| &job.view)
    }

    pub fn take(&mut self, view: &JobView, read: Read) -> Taken {
        let answered = read.answered;
        let Some(job) = self.jobs.get_mut(&view.id) else {
            let view = view.clone();
            self.jobs.insert(view.id, Job { view, answered });
            return Taken::Changed;
        };
        if read.asked < job.answered {
            return Taken::Older;
        }
        job.answered = answered;
        if job.view == *view {
            return Taken::Same;
        }
        job.view = view.clone();
        Taken::Changed
    }

    /// It was looked for and is not there any more; what it was, if that was known.
    pub fn forget(&mut self, id: JobId, read: Read) -> Option<JobView> {
        let known = self.jobs.get(&id)?;
        if read.asked < known.answered {
            return None;
        }
        self.jobs.remove(&id).map(|job| job.view)
    }

    /// What it was may not hold any more; it is given.
    pub fn discard(&mut self, id: JobId) -> Option<JobView> {
        self.jobs.remove(&id).map(|job| job.view)
    }

    /// Those that have not ended as far as is known, and are not among `living`, a list of all that have not.
    #[must_use]
    pub fn missing(&self, living: &HashSet<JobId>, read: Read) -> Vec<JobId> {
        let missing = self.jobs.iter().filter(|(id, job)| {
            !job.view.phase.is_terminal() && read.asked >= job.answered && !living.contains(id)
        });
        missing.map(|(id, _)| *id).collect()
    }

    /// Lets go of what has ended a while ago.
    pub fn sweep(&mut self, now: Instant) {
        self.jobs.retain(|_, job| {
            !job.view.phase.is_terminal() || now.saturating_duration_since(job.answered) < ENDED
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const ID: &str = "01890000-0000-7000-8000-000000000001";

    fn job(phase: &str) -> JobView {
        serde_json::from_value(serde_json::json!({
            "id": ID, "tenant": "vision", "name": "a", "labels": {}, "priority": 0, "phase": phase, "state": { "phase": phase },
            "intent": "run", "revision": 0, "failures": 0, "waiting": null, "workers": { "running": 0, "min": 1, "max": 1 },
            "ps_shards": { "running": 0, "min": 0, "max": 0 }, "progress": null, "model_path": null, "failure": null,
            "resume_step": null, "submitted_by": "kubernetes", "submitted_at": "2026-01-01T00:00:00Z", "started_at": null,
            "finished_at": null, "spec": { "version": "muster/v1", "name": "a", "command": { "argv": ["true"] } },
        }))
        .expect("a job")
    }

    fn id() -> JobId {
        ID.parse().expect("an id")
    }

    /// Asked and answered so many seconds after `start`.
    fn read(start: Instant, asked: u64, answered: u64) -> Read {
        let at = |seconds| start + Duration::from_secs(seconds);
        Read {
            asked: at(asked),
            answered: at(answered),
        }
    }

    #[test]
    fn what_may_be_older_takes_nothings_place() {
        let start = clock::monotonic();
        let mut kept = Kept::default();
        let (running, starting) = (job("running"), job("starting"));
        assert_eq!(kept.take(&running, read(start, 0, 10)), Taken::Changed);
        assert_eq!(kept.take(&running, read(start, 10, 11)), Taken::Same);
        // An order was answered while a list was under way that had been asked for before.
        assert_eq!(kept.take(&starting, read(start, 15, 15)), Taken::Changed);
        assert_eq!(kept.take(&running, read(start, 12, 20)), Taken::Older);
        assert_eq!(kept.forget(id(), read(start, 12, 20)), None);
        assert_eq!(kept.get(id()), Some(&starting));
        assert_eq!(kept.forget(id(), read(start, 15, 20)), Some(starting));
        assert_eq!(kept.get(id()), None);
    }

    #[test]
    fn what_a_list_of_the_living_lacks_has_ended_unless_it_came_after_the_list_was_asked_for() {
        let start = clock::monotonic();
        let mut kept = Kept::default();
        kept.take(&job("running"), read(start, 0, 10));
        let (nobody, it) = (HashSet::new(), HashSet::from([id()]));
        assert_eq!(kept.missing(&nobody, read(start, 10, 11)), [id()]);
        assert_eq!(kept.missing(&it, read(start, 10, 11)), []);
        assert_eq!(kept.missing(&nobody, read(start, 9, 11)), []);
        kept.take(&job("succeeded"), read(start, 20, 20));
        assert_eq!(kept.missing(&nobody, read(start, 30, 31)), []);
        // Its object is looked at once more, and then hardly ever.
        kept.sweep(start + Duration::from_secs(79));
        assert!(kept.get(id()).is_some());
        kept.sweep(start + Duration::from_secs(80));
        assert!(kept.get(id()).is_none());
    }
}
