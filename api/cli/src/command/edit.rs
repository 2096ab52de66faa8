//! `muster edit` and `muster scale`: change the range of workers or PS shards, or the priority, of
//! an open job.

use super::{CliSession, UsageError, priorities, resolve_job};
use anyhow::bail;
use clap::Args;
use muster_model::spec::Range;
use muster_model::view::{JobChange, JobView};
use std::num::ParseIntError;

#[derive(Debug, Args)]
pub struct EditArgs {
    /// Id or name of the job. A name of several open jobs is refused.
    job: String,
    /// Number of workers, or range from which the scheduler chooses, such as 4 or 2..8.
    #[arg(long, value_name = "N or MIN..MAX", value_parser = range)]
    workers: Option<Range>,
    /// Number or range of PS shards, in the same form.
    #[arg(long, value_name = "N or MIN..MAX", value_parser = range)]
    ps_shards: Option<Range>,
    /// Priority from -100 to 100; a job of higher priority comes first in the whole cluster.
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i32>,
    /// Priority class (`muster priorities`). Without --priority the job gets the default of the
    /// class.
    #[arg(long, value_name = "NAME")]
    priority_class: Option<String>,
}

#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Id or name of the job. A name of several open jobs is refused.
    job: String,
    /// Number of workers, or range from which the scheduler chooses, such as 4 or 2..8.
    #[arg(value_name = "N or MIN..MAX", value_parser = range)]
    workers: Range,
}

impl EditArgs {
    /// # Errors
    /// If there is nothing to change, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let wanted = JobChange {
            workers: self.workers,
            ps_shards: self.ps_shards,
            priority: self.priority,
            priority_class: self.priority_class,
            edits: None,
        };
        if wanted.is_nothing() {
            let flags = "--workers, --ps-shards, --priority or --priority-class";
            bail!(UsageError(format!("nothing to change: give {flags}")));
        }
        change(session, &self.job, wanted).await
    }
}

impl ScaleArgs {
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let wanted = JobChange {
            workers: Some(self.workers),
            ..JobChange::default()
        };
        change(session, &self.job, wanted).await
    }
}

async fn change(session: &CliSession, named: &str, wanted: JobChange) -> anyhow::Result<()> {
    let id = resolve_job::job(session, named, "change").await?.id;
    let job = session.client.edit(id, &wanted).await?;
    session.output.print(&job, said)
}

fn said(job: &JobView) -> String {
    let mut size = count(job.spec.scale.workers, "workers");
    let ps_shards = job.spec.ps_shards();
    if ps_shards != Range::NONE {
        size = format!("{size} and {}", count(ps_shards, "PS shards"));
    }
    let (name, id, priority) = (&job.name, job.id, priorities::of_job(job));
    format!("job {name} ({id}) may have {size}, with priority {priority}; the next round obeys")
}

fn count(Range { min, max }: Range, what: &str) -> String {
    if min == max {
        format!("{min} {what}")
    } else {
        format!("{min} to {max} {what}")
    }
}

/// Parses `4` as an exact number and `2..8` as an inclusive range. The server checks whether the
/// job allows it.
fn range(text: &str) -> Result<Range, String> {
    match text.split_once("..") {
        Some((min, max)) => Ok(Range {
            min: number(min)?,
            max: number(max)?,
        }),
        None => number(text).map(|count| Range {
            min: count,
            max: count,
        }),
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|error: ParseIntError| {
        format!("{error}; write a number, or the fewest and the most, such as 2..8")
    })
}

#[cfg(test)]
mod tests {
    use super::range;
    use muster_model::spec::Range;

    #[test]
    fn range_is_one_number_or_two() {
        assert_eq!(range("4"), Ok(Range { min: 4, max: 4 }));
        assert_eq!(range("2..8"), Ok(Range { min: 2, max: 8 }));
        for wrong in ["", "..", "2..", "..8", "2-8", "-1", "2..8..9"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
