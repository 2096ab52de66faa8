//! `muster edit|scale`: another range of workers or priority for a job that waits or runs.

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
        if self.workers.is_none() && self.priority.is_none() {
            bail!(UsageError(
                "nothing to change: give --workers, --priority or both".to_owned()
            ));
        }
        change(session, &self.job, self.workers, self.priority).await
    }
}

impl Scale {
    /// # Errors
    /// What the server says.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        change(session, &self.job, Some(self.workers), None).await
    }
}

async fn change(
    session: &Session,
    named: &str,
    workers: Option<Range>,
    priority: Option<i32>,
) -> anyhow::Result<()> {
    let id = meant::job(session, named, "change").await?.id;
    let wanted = JobChange {
        workers,
        priority,
        edits: None,
    };
    let job = session.client.edit(id, &wanted).await?;
    session.output.print(&job, said)
}

fn said(job: &JobView) -> String {
    let (min, max) = (job.workers.min, job.workers.max);
    let workers = match min == max {
        true => format!("{min} workers"),
        false => format!("{min} to {max} workers"),
    };
    let (name, id, priority) = (&job.name, job.id, job.priority);
    format!("job {name} ({id}) may have {workers}, with priority {priority}; the next round obeys")
}

/// `4` is exactly so many, `2..8` both ends included. Whether a job can have so many is for the server to say.
fn range(text: &str) -> Result<Range, String> {
    let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
    let wrong = |error| {
        format!("{error}; write a number of workers, or the fewest and the most, such as 2..8")
    };
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
