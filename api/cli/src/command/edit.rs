//! `muster edit|scale`: another range of workers or shards, or another priority, for a job that waits or runs.

use super::{Session, UsageError, meant};
use anyhow::bail;
use clap::Args;
use muster_model::spec::Range;
use muster_model::view::{JobChange, JobView};

#[derive(Debug, Args)]
pub struct Edit {
    /// Name or id. A name that several jobs have which have not ended is refused.
    job: String,
    /// Between how many workers the scheduler may choose, such as 4 or 2..8.
    #[arg(long, value_name = "N or MIN..MAX", value_parser = range)]
    workers: Option<Range>,
    /// Between how many PS shards, in the same way.
    #[arg(long, value_name = "N or MIN..MAX", value_parser = range)]
    ps_shards: Option<Range>,
    /// -100 to 100; higher comes first within its tenant.
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i32>,
}

#[derive(Debug, Args)]
pub struct Scale {
    /// Name or id. A name that several jobs have which have not ended is refused.
    job: String,
    /// So many workers, or between how many the scheduler may choose, such as 4 or 2..8.
    #[arg(value_name = "N or MIN..MAX", value_parser = range)]
    workers: Range,
}

impl Edit {
    /// # Errors
    /// When nothing is to change, and what the server says.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        let wanted = JobChange {
            workers: self.workers,
            ps_shards: self.ps_shards,
            priority: self.priority,
            edits: None,
        };
        if wanted == JobChange::default() {
            bail!(UsageError(
                "nothing to change: give --workers, --ps-shards or --priority".to_owned()
            ));
        }
        change(session, &self.job, wanted).await
    }
}

impl Scale {
    /// # Errors
    /// What the server says.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        let wanted = JobChange {
            workers: Some(self.workers),
            ..JobChange::default()
        };
        change(session, &self.job, wanted).await
    }
}

async fn change(session: &Session, named: &str, wanted: JobChange) -> anyhow::Result<()> {
    let id = meant::job(session, named, "change").await?.id;
    let job = session.client.edit(id, &wanted).await?;
    session.output.print(&job, said)
}

fn said(job: &JobView) -> String {
    let count = |Range { min, max }: Range, what: &str| match min == max {
        true => format!("{min} {what}"),
        false => format!("{min} to {max} {what}"),
    };
    let mut size = count(job.spec.scale.workers, "workers");
    let ps_shards = job.spec.ps_shards();
    if ps_shards != Range::NONE {
        size = format!("{size} and {}", count(ps_shards, "PS shards"));
    }
    let (name, id, priority) = (&job.name, job.id, job.priority);
    format!("job {name} ({id}) may have {size}, with priority {priority}; the next round obeys")
}

/// `4` is exactly so many, `2..8` both ends included. Whether a job can have so many is for the server to say.
fn range(text: &str) -> Result<Range, String> {
    let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
    let wrong =
        |error| format!("{error}; write a number, or the fewest and the most, such as 2..8");
    match text.split_once("..") {
        Some((min, max)) => Ok(Range {
            min: number(min).map_err(wrong)?,
            max: number(max).map_err(wrong)?,
        }),
        None => number(text).map_err(wrong).map(|count| Range {
            min: count,
            max: count,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::range;
    use muster_model::spec::Range;

    #[test]
    fn a_range_is_a_number_or_two() {
        assert_eq!(range("4"), Ok(Range { min: 4, max: 4 }));
        assert_eq!(range("2..8"), Ok(Range { min: 2, max: 8 }));
        for wrong in ["", "..", "2..", "..8", "2-8", "-1", "2..8..9"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
