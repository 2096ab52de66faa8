//! `muster top`: nodes and jobs, drawn every two seconds.

use super::CliSession;
use super::job_table::{self, COLUMNS, short_id};
use super::nodes::state_of;
use crate::output::counted;
use crate::terminal::{self, Size, bar, cut, fitted};
use clap::Args;
use muster_client::JobQuery;
use muster_model::job::JobPhase;
use muster_model::view::{JobView, NodeView};

/// Width of the bar of all GPUs.
const BAR: usize = 30;
/// Maximum length of a node's name.
const NAME: usize = 24;
/// Maximum number of jobs that are read, for jobs with GPUs and for waiting jobs each.
const JOBS: u32 = 200;
/// Size of the output if it is no terminal.
const PRINTED: Size = Size {
    columns: 120,
    lines: 10_000,
};

/// Ctrl-C ends it. If standard output is no terminal, it prints the present state once.
#[derive(Debug, Args)]
pub struct TopArgs {}

impl TopArgs {
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        terminal::redraw(|size| text(session, size.unwrap_or(PRINTED))).await
    }
}

async fn text(session: &CliSession, size: Size) -> anyhow::Result<String> {
    // Lists begin with the newest jobs. Waiting jobs would hide running ones.
    let open = JobPhase::ALL.into_iter();
    let open = open.filter(|phase| !phase.is_terminal());
    let (waiting, held): (Vec<_>, Vec<_>) =
        open.partition(|phase| matches!(phase, JobPhase::Queued | JobPhase::Paused));
    let (held, waiting) = (query(held), query(waiting));
    let client = &session.client;
    let (nodes, held, waiting) =
        tokio::try_join!(client.nodes(), client.jobs(&held), client.jobs(&waiting))?;
    let has_more = held.next.is_some() || waiting.next.is_some();
    let jobs = held.items.into_iter().chain(waiting.items);
    Ok(drawn(&nodes, jobs.collect(), has_more, size))
}

fn query(phases: Vec<JobPhase>) -> JobQuery {
    JobQuery {
        phases,
        limit: Some(JOBS),
        ..JobQuery::default()
    }
}

/// Returns the whole text. Nodes take at most a third of the lines.
fn drawn(nodes: &[NodeView], mut jobs: Vec<JobView>, has_more: bool, size: Size) -> String {
    let mut lines = vec![gpus(nodes), phases(&jobs, has_more), String::new()];
    let shown = nodes.len().min((size.lines / 3).max(1));
    lines.extend(node_lines(&nodes[..shown]));
    if shown < nodes.len() {
        let more = nodes.len() - shown;
        lines.push(format!("... {more} more: muster nodes"));
    }
    lines.push(String::new());
    jobs.sort_by_key(order);
    if jobs.is_empty() {
        lines.push("no open jobs".to_owned());
    } else {
        let rows = jobs.iter().map(|job| {
            let mut row = job_table::row(job).to_vec();
            row[COLUMNS.len() - 1] = short_id(job);
            row
        });
        let table = fitted(&COLUMNS, rows.collect(), size.columns);
        lines.extend(table.lines().map(str::to_owned));
    }
    lines.join("\n")
}

fn gpus(nodes: &[NodeView]) -> String {
    let all = nodes.iter().flat_map(|node| &node.gpus);
    let total = all.clone().count() as u64;
    let used = all.filter(|gpu| gpu.job.is_some()).count() as u64;
    let down = nodes.iter().filter(|node| state_of(node) != "up").count();
    let down = match down {
        0 => String::new(),
        down => format!(", {down} of {} not up", counted_nodes(nodes)),
    };
    let shown = bar(used, total, BAR);
    format!("GPUs   {shown}  {used} of {total} in use{down}")
}

fn counted_nodes(nodes: &[NodeView]) -> String {
    counted(u32::try_from(nodes.len()).unwrap_or(u32::MAX), "node")
}

/// Returns the number of jobs by phase, in the order of the table.
fn phases(jobs: &[JobView], has_more: bool) -> String {
    let mut counts: Vec<(u8, JobPhase, usize)> = Vec::new();
    for job in jobs {
        match counts.iter_mut().find(|(_, phase, _)| *phase == job.phase) {
            Some((.., count)) => *count += 1,
            None => counts.push((rank(job.phase), job.phase, 1)),
        }
    }
    counts.sort_unstable();
    let counts = counts.iter();
    let counts = counts.map(|(_, phase, count)| format!("{count} {}", phase.as_str()));
    let counts: Vec<String> = counts.collect();
    let more = if has_more { " (more exist)" } else { "" };
    if counts.is_empty() {
        return "Jobs   none open".to_owned();
    }
    format!("Jobs   {}{more}", counts.join(", "))
}

fn node_lines(nodes: &[NodeView]) -> Vec<String> {
    let names = nodes
        .iter()
        .map(|node| cut(&node.name, NAME).chars().count());
    let width = names.max().unwrap_or(0);
    let most = nodes.iter().map(|node| node.gpus.len()).max().unwrap_or(0);
    let lines = nodes.iter().map(|node| node_line(node, width, most));
    lines.collect()
}

/// Returns the line of a node: a cell per GPU, so a free GPU is seen at its place.
fn node_line(node: &NodeView, width: usize, most: usize) -> String {
    let cells = node.gpus.iter().map(|gpu| match (&gpu.job, &gpu.guest) {
        (None, _) => '░',
        (Some(_), None) => '█',
        (Some(_), Some(_)) => '▓',
    });
    let cells: String = cells.collect();
    let used = node.gpus.iter().filter(|gpu| gpu.job.is_some()).count();
    let (name, state, gpus) = (cut(&node.name, NAME), state_of(node), node.gpus.len());
    let jobs = jobs_of(node);
    format!("{name:<width$}  {state:<8}  {cells:<most$}  {used}/{gpus}  {jobs}")
}

/// Returns the names of the node's jobs, each once with its number of GPUs.
fn jobs_of(node: &NodeView) -> String {
    let mut jobs: Vec<(&str, u32)> = Vec::new();
    let occupants = node
        .gpus
        .iter()
        .flat_map(|gpu| gpu.job.iter().chain(&gpu.guest));
    for occupant in occupants {
        let name = occupant.name.as_deref().unwrap_or("(another tenant's)");
        match jobs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, gpus)) => *gpus += 1,
            None => jobs.push((name, 1)),
        }
    }
    let texts = jobs.iter().map(|(name, gpus)| match gpus {
        1 => (*name).to_owned(),
        more => format!("{name} ×{more}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Order of jobs: those with GPUs first, then those that wait, by their place in the queue.
fn order(job: &JobView) -> (u8, u64) {
    let position = job.waiting.as_ref().map_or(0, |waiting| waiting.position);
    (rank(job.phase), u64::from(position))
}

fn rank(phase: JobPhase) -> u8 {
    match phase {
        JobPhase::Running => 0,
        JobPhase::Starting => 1,
        JobPhase::Stopping => 2,
        JobPhase::Suspended => 3,
        JobPhase::Queued => 4,
        JobPhase::Paused => 5,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, jobs: &[Option<&str>]) -> NodeView {
        let gpus = jobs.iter().enumerate().map(|(index, job)| {
            let job = job.map(|name| json!({ "id": null, "name": name, "tenant": null }));
            json!({ "index": index, "kind": "cuda", "model": "A100", "memory_bytes": 1, "job": job, "task_id": null })
        });
        let gpus: Vec<_> = gpus.collect();
        serde_json::from_value(json!({
            "id": "00000000-0000-7000-8000-000000000001", "name": name, "state": "up", "drained": false,
            "generation": 1, "last_seen_at": "2026-01-01T00:00:00Z", "gpus": gpus,
            "capacity": { "gpus": [], "cpu_milli": 1, "memory_bytes": 1 },
        }))
        .expect("a node")
    }

    #[test]
    fn nodes_show_a_cell_and_a_job_per_gpu() {
        let nodes = [
            node("a", &[Some("bert"), Some("bert"), None, Some("gpt")]),
            node("long", &[None]),
        ];
        let size = Size {
            columns: 80,
            lines: 24,
        };
        let text = drawn(&nodes, Vec::new(), false, size);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert!(lines[0].ends_with("3 of 5 in use"), "{text}");
        assert_eq!(lines[1], "Jobs   none open");
        assert_eq!(lines[3], "a     up        ██░█  3/4  bert ×2, gpt");
        assert_eq!(lines[4], "long  up        ░     0/1");
        let small = drawn(&nodes, Vec::new(), false, Size { lines: 4, ..size });
        assert!(small.contains("... 1 more: muster nodes"), "{small}");
    }
}
