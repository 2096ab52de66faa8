//! `muster explain`: why a job waits and what would start it, or why it has its size; from the newest decisions about it.

use super::Session;
use super::events::words;
use super::list::count;
use crate::output::fields;
use clap::Args;
use muster_client::EventQuery;
use muster_model::event::Event;
use muster_model::view::{EventView, JobView};
use serde::Serialize;

#[derive(Debug, Args)]
pub struct Explain {
    /// Name (the newest of it) or id.
    job: String,
}

#[derive(Serialize)]
struct Explained {
    job: JobView,
    /// What the scheduler decided about it, oldest first.
    decisions: Vec<EventView>,
}

impl Explain {
    /// # Errors
    /// No such job, or what the server says.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        let job = session.job(&self.job).await?;
        let mut decisions = Vec::new();
        let mut after = None;
        loop {
            let page = session
                .client
                .events(
                    job.id,
                    &EventQuery {
                        after: after.clone(),
                        limit: None,
                    },
                )
                .await?;
            after = page
                .items
                .last()
                .map(|event| event.cursor.clone())
                .or(after);
            decisions.extend(
                page.items
                    .into_iter()
                    .filter(|event| is_decision(&event.event)),
            );
            if page.next.is_none() {
                break;
            }
        }
        session
            .output
            .print(&Explained { job, decisions }, describe)
    }
}

fn describe(explained: &Explained) -> String {
    const SHOWN: usize = 8;
    let job = &explained.job;
    let mut rows = vec![
        ("job", job.name.clone()),
        ("phase", job.phase.as_str().to_owned()),
    ];
    if let Some(waiting) = &job.waiting {
        rows.push((
            "waits for",
            format!("{} ({})", waiting.message, waiting.reason),
        ));
        let change = waiting.smallest_change.clone();
        rows.push((
            "to start it now",
            change.unwrap_or_else(|| "nothing but time".to_owned()),
        ));
        rows.push(("position", waiting.position.to_string()));
    }
    rows.push(("workers", count(job.workers)));
    rows.push(("ps shards", count(job.ps_shards)));
    let mut text = fields(&rows);
    if explained.decisions.is_empty() {
        return text;
    }
    text.push_str("\n\nnewest decisions:");
    let skipped = explained.decisions.len().saturating_sub(SHOWN);
    for decision in &explained.decisions[skipped..] {
        text.push_str(&format!("\n  {}", words(&decision.event)));
    }
    text
}

fn is_decision(event: &Event) -> bool {
    matches!(
        event,
        Event::JobPlaced { .. } | Event::JobStopRequested { .. } | Event::JobWaits { .. }
    )
}
