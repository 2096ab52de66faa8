//! Requests to all shards in parallel.

use super::ShardFailure;
use muster_comm::wire::WireError;
use std::thread;

/// Runs one closure per shard in parallel, the first on this thread. So a job with one shard starts
/// no thread.
pub(super) fn in_parallel<T, F>(jobs: impl Iterator<Item = F>) -> Result<Vec<T>, ShardFailure>
where
    T: Send,
    F: FnOnce() -> Result<T, WireError> + Send,
{
    let all = in_parallel_by_index(jobs.enumerate())?;
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

/// Like [`in_parallel`], for some of the shards, by index.
pub(super) fn in_parallel_by_index<T, F>(
    jobs: impl Iterator<Item = (usize, F)>,
) -> Result<Vec<(usize, T)>, ShardFailure>
where
    T: Send,
    F: FnOnce() -> Result<T, WireError> + Send,
{
    let results: Vec<(usize, Result<T, WireError>)> = thread::scope(|scope| {
        let mut jobs = jobs;
        let Some((index, first)) = jobs.next() else {
            return Vec::new();
        };
        let others: Vec<_> = jobs.map(|(index, job)| (index, scope.spawn(job))).collect();
        let mut results = vec![(index, first())];
        results.extend(
            others
                .into_iter()
                .map(|(index, other)| (index, other.join().expect("a link does not panic"))),
        );
        results
    });
    results
        .into_iter()
        .map(|(index, result)| match result {
            Ok(value) => Ok((index, value)),
            Err(error) => Err((index, error)),
        })
        .collect()
}
