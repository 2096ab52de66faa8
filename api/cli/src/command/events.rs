//! `muster events`: prints events as text; `-f` follows them.

use super::CliSession;
use crate::output::{OutputFormat, line};
use clap::Args;
use futures::StreamExt as _;
use muster_client::{EventQuery, RecentQuery, StreamItem};
use muster_model::id::JobId;
use muster_model::view::{EventView, Opened};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use time::format_description::well_known::Rfc3339;

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Id of the job, or name (its newest job); without it, the newest events of all jobs of the
    /// tenant and of the nodes.
    job: Option<String>,
    /// Continue to print new events.
    #[arg(short, long)]
    follow: bool,
    /// Include routine events: starts and stops of tasks, evaluations, checkpoints. The formats
    /// json and yaml always include them.
    #[arg(short, long)]
    all: bool,
    /// Without a job: number of the newest events.
    #[arg(long, default_value_t = 50, conflicts_with = "job", value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
}

impl EventsArgs {
    /// # Errors
    /// If the job does not exist, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let all = self.all || session.output.is_whole();
        match &self.job {
            Some(named) => of_job(session, named, all, self.follow).await,
            None => of_all(session, self.limit, all, self.follow).await,
        }
    }
}

async fn of_job(session: &CliSession, named: &str, all: bool, follow: bool) -> anyhow::Result<()> {
    let job = session.job(named).await?;
    let mut after = None;
    loop {
        let query = EventQuery {
            after: after.clone(),
            limit: None,
        };
        let page = session.client.events(job.id, &query).await?;
        for event in page
            .items
            .iter()
            .filter(|event| all || !event.event.is_routine())
        {
            print(event, None, session.output)?;
        }
        let newest = page.items.last().map(|event| event.cursor.clone());
        after = newest.or(after);
        if page.next.is_none() {
            break;
        }
    }
    if !follow {
        return Ok(());
    }
    let mut stream = session.client.watch_job(job.id, after);
    while let Some(item) = stream.next().await {
        match item? {
            StreamItem::Event(event) if all || !event.event.is_routine() => {
                print(&event, None, session.output)?;
            }
            StreamItem::Opened(opened) => tell_missed(&opened),
            StreamItem::End(_) => break,
            _ => {}
        }
    }
    Ok(())
}

async fn of_all(session: &CliSession, limit: u32, all: bool, follow: bool) -> anyhow::Result<()> {
    let query = RecentQuery {
        routine: all,
        limit,
        after: None,
    };
    let mut names = JobNames::default();
    let page = session.client.recent_events(&query).await?;
    for event in page.items.iter().rev() {
        let subject = names.of(session, event).await?;
        print(event, subject, session.output)?;
    }
    if !follow {
        return Ok(());
    }
    let newest = page.items.first().map(|event| event.cursor.clone());
    let mut stream = session.client.watch(newest);
    while let Some(item) = stream.next().await {
        match item? {
            StreamItem::Event(event) if all || !event.event.is_routine() => {
                let subject = names.of(session, &event).await?;
                print(&event, subject, session.output)?;
            }
            StreamItem::Opened(opened) => tell_missed(&opened),
            StreamItem::End(_) => break,
            _ => {}
        }
    }
    Ok(())
}

/// Reports on stderr that events are missing, because the stream was broken for longer than events
/// are kept.
fn tell_missed(opened: &Opened) {
    if let Some(newest) = &opened.forgotten {
        note!(
            "muster: events up to {newest} are no longer kept; some before the next line are missing"
        );
    }
}

/// Cache of job names, because events contain only ids.
#[derive(Default)]
struct JobNames(BTreeMap<JobId, String>);

impl JobNames {
    /// Returns the name of the event's job, or its id if the job was removed. Output for programs
    /// needs no name.
    async fn of(
        &mut self,
        session: &CliSession,
        event: &EventView,
    ) -> anyhow::Result<Option<&str>> {
        let Some(id) = event.job_id.filter(|_| !session.output.is_whole()) else {
            return Ok(None);
        };
        if let Entry::Vacant(unknown) = self.0.entry(id) {
            let job = session.client.find_job(id).await?;
            unknown.insert(job.map_or_else(|| id.to_string(), |job| job.name));
        }
        Ok(self.0.get(&id).map(String::as_str))
    }
}

/// Prints an event. `subject` precedes the text where events of several jobs are mixed.
fn print(event: &EventView, subject: Option<&str>, output: OutputFormat) -> anyhow::Result<()> {
    match output {
        OutputFormat::Table => {
            let at = event.at.replace_nanosecond(0)?.format(&Rfc3339)?;
            let subject = subject.map_or_else(String::new, |name| format!("{name}: "));
            line(&format!("{at}  {subject}{}", event.text()))
        }
        // One document per line, so that a program can parse a followed stream.
        OutputFormat::Json => line(&serde_json::to_string(event)?),
        OutputFormat::Yaml => line(&format!(
            "---\n{}",
            serde_norway::to_string(event)?.trim_end()
        )),
    }
}
