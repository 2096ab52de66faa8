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
pub struct JobCache {
    jobs: HashMap<JobId, CachedJob>,
}

#[derive(Debug)]
struct CachedJob {
    view: JobView,
    /// Time of the answer.
    answered: Instant,
}

/// Times of a request and of its answer; the content was true at some moment between them.
#[derive(Debug, Clone, Copy)]
pub struct RequestTimes {
    pub asked: Instant,
    pub answered: Instant,
}

/// Effect of an answer on the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobCacheUpdate {
    /// Equal to the cached state.
    Same,
    Changed,
    /// Possibly older than the cached state.
    Older,
}

impl JobCache {
    #[must_use]
    pub fn get(&self, id: JobId) -> Option<&JobView> {
        self.jobs.get(&id).map(|job| &job.view)
    }

    pub fn take(&mut self, view: &JobView, read: RequestTimes) -> JobCacheUpdate {
        let answered = read.answered;
        let Some(job) = self.jobs.get_mut(&view.id) else {
            let view = view.clone();
            self.jobs.insert(view.id, CachedJob { view, answered });
            return JobCacheUpdate::Changed;
        };
        if read.asked < job.answered {
            return JobCacheUpdate::Older;
        }
        job.answered = answered;
        if job.view == *view {
            return JobCacheUpdate::Same;
        }
        job.view = view.clone();
        JobCacheUpdate::Changed
    }

    /// Removes a job that a read has not found. Returns its cached state.
    pub fn forget(&mut self, id: JobId, read: RequestTimes) -> Option<JobView> {
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
    pub fn missing(&self, living: &HashSet<JobId>, read: RequestTimes) -> Vec<JobId> {
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
    fn read(start: Instant, asked: u64, answered: u64) -> RequestTimes {
        RequestTimes {
            asked: start + Duration::from_secs(asked),
            answered: start + Duration::from_secs(answered),
        }
    }

    #[test]
    fn older_answers_do_not_replace_newer_ones() {
        let start = clock::monotonic();
        let mut cache = JobCache::default();
        let (running, starting) = (job("running"), job("starting"));
        assert_eq!(
            cache.take(&running, read(start, 0, 10)),
            JobCacheUpdate::Changed
        );
        assert_eq!(
            cache.take(&running, read(start, 10, 11)),
            JobCacheUpdate::Same
        );
        // A request was answered while a list that was requested before it was still running.
        assert_eq!(
            cache.take(&starting, read(start, 15, 15)),
            JobCacheUpdate::Changed
        );
        assert_eq!(
            cache.take(&running, read(start, 12, 20)),
            JobCacheUpdate::Older
        );
        assert_eq!(cache.forget(id(), read(start, 12, 20)), None);
        assert_eq!(cache.get(id()), Some(&starting));
        assert_eq!(cache.forget(id(), read(start, 15, 20)), Some(starting));
        assert_eq!(cache.get(id()), None);
    }

    #[test]
    fn jobs_missing_in_a_later_list_have_ended() {
        let start = clock::monotonic();
        let mut cache = JobCache::default();
        cache.take(&job("running"), read(start, 0, 10));
        let (nobody, it) = (HashSet::new(), HashSet::from([id()]));
        assert_eq!(cache.missing(&nobody, read(start, 10, 11)), [id()]);
        assert_eq!(cache.missing(&it, read(start, 10, 11)), []);
        assert_eq!(cache.missing(&nobody, read(start, 9, 11)), []);
        cache.take(&job("succeeded"), read(start, 20, 20));
        assert_eq!(cache.missing(&nobody, read(start, 30, 31)), []);
        // The object is reconciled once more, and rarely afterwards.
        cache.sweep(start + Duration::from_secs(79));
        assert!(cache.get(id()).is_some());
        cache.sweep(start + Duration::from_secs(80));
        assert!(cache.get(id()).is_none());
    }
}
