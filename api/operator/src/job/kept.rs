//! Job cache of one tenant. An earlier read never replaces a later one, whichever code reads: the
//! answer to a request may be newer than a list that was requested before it.

use muster_model::id::JobId;
use muster_model::view::JobView;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Time for which an ended job is kept, because its object is reconciled once more after its status
/// is written.
const ENDED: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Kept {
    jobs: HashMap<JobId, Job>,
}

#[derive(Debug)]
struct Job {
    view: JobView,
    /// Time of the answer.
    answered: Instant,
}

/// Times of a request and of its answer; the content was true at some moment between them.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    pub asked: Instant,
    pub answered: Instant,
}

/// Effect of an answer on the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Equal to the cached state.
    Same,
    Changed,
    /// Possibly older than the cached state.
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

    /// Removes a job that a read has not found. Returns its cached state.
    pub fn forget(&mut self, id: JobId, read: Read) -> Option<JobView> {
        let known = self.jobs.get(&id)?;
        if read.asked < known.answered {
            return None;
        }
        self.jobs.remove(&id).map(|job| job.view)
    }

    /// Removes a job whose cached state may be wrong, and returns that state.
    pub fn discard(&mut self, id: JobId) -> Option<JobView> {
        self.jobs.remove(&id).map(|job| job.view)
    }

    /// Returns the jobs whose cached state is unfinished and that are missing in `living`, a list
    /// of all unfinished jobs.
    #[must_use]
    pub fn missing(&self, living: &HashSet<JobId>, read: Read) -> Vec<JobId> {
        let missing = self.jobs.iter().filter(|(id, job)| {
            !job.view.phase.is_terminal() && read.asked >= job.answered && !living.contains(id)
        });
        missing.map(|(id, _)| *id).collect()
    }

    /// Removes jobs that ended more than [`ENDED`] ago.
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

    /// Read that was requested and answered the given numbers of seconds after `start`.
    fn read(start: Instant, asked: u64, answered: u64) -> Read {
        let at = |seconds| start + Duration::from_secs(seconds);
        Read {
            asked: at(asked),
            answered: at(answered),
        }
    }

    #[test]
    fn older_answers_do_not_replace_newer_ones() {
        let start = clock::monotonic();
        let mut kept = Kept::default();
        let (running, starting) = (job("running"), job("starting"));
        assert_eq!(kept.take(&running, read(start, 0, 10)), Taken::Changed);
        assert_eq!(kept.take(&running, read(start, 10, 11)), Taken::Same);
        // A request was answered while a list that was requested before it was still running.
        assert_eq!(kept.take(&starting, read(start, 15, 15)), Taken::Changed);
        assert_eq!(kept.take(&running, read(start, 12, 20)), Taken::Older);
        assert_eq!(kept.forget(id(), read(start, 12, 20)), None);
        assert_eq!(kept.get(id()), Some(&starting));
        assert_eq!(kept.forget(id(), read(start, 15, 20)), Some(starting));
        assert_eq!(kept.get(id()), None);
    }

    #[test]
    fn jobs_missing_in_a_later_list_have_ended() {
        let start = clock::monotonic();
        let mut kept = Kept::default();
        kept.take(&job("running"), read(start, 0, 10));
        let (nobody, it) = (HashSet::new(), HashSet::from([id()]));
        assert_eq!(kept.missing(&nobody, read(start, 10, 11)), [id()]);
        assert_eq!(kept.missing(&it, read(start, 10, 11)), []);
        assert_eq!(kept.missing(&nobody, read(start, 9, 11)), []);
        kept.take(&job("succeeded"), read(start, 20, 20));
        assert_eq!(kept.missing(&nobody, read(start, 30, 31)), []);
        // The object is reconciled once more, and rarely afterwards.
        kept.sweep(start + Duration::from_secs(79));
        assert!(kept.get(id()).is_some());
        kept.sweep(start + Duration::from_secs(80));
        assert!(kept.get(id()).is_none());
    }
}
