//! The live view of `muster up`: a few updated lines on a terminal, otherwise a line after each
//! change.

use crate::command::job_table::{count, phase_and_reason};
use crate::command::wait::ending;
use crate::output::duration_s;
use indicatif::{ProgressBar, ProgressStyle};
use muster_client::Client;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::place::Place;
use muster_model::view::JobView;
use std::io::IsTerminal as _;
use std::time::Duration;

const FRAME: Duration = Duration::from_millis(500);

/// Follows the job to its end, and returns whether it succeeded. Waits while the API server
/// restarts.
///
/// # Errors
/// If the server refuses. Requests are repeated while it is unreachable.
pub async fn watch(client: &Client, id: JobId, checkpoints: &Place) -> anyhow::Result<bool> {
    let view = ClusterProgressBar::new();
    loop {
        match client.job(id).await {
            Ok(job) => {
                view.draw(&job);
                if job.phase.is_terminal() {
                    view.bar.finish_and_clear();
                    note!("{}", ending(&job));
                    if let Some(model) = &job.model_path {
                        note!("model: {checkpoints}/{model}");
                    }
                    return Ok(job.phase == JobPhase::Succeeded);
                }
            }
            Err(error) if error.is_transient() => {
                view.bar.set_message("the api is away; waiting for it")
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(FRAME).await;
    }
}

struct ClusterProgressBar {
    bar: ProgressBar,
    is_terminal: bool,
    last_line: std::cell::RefCell<String>,
}

impl ClusterProgressBar {
    fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = if is_terminal {
            ProgressBar::new(0)
        } else {
            ProgressBar::hidden()
        };
        let template = "{prefix}\n{bar:24} {pos}/{len} steps  {msg}";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is right"));
        Self {
            bar,
            is_terminal,
            last_line: std::cell::RefCell::default(),
        }
    }

    fn draw(&self, job: &JobView) {
        let head = format!(
            "{}: {}, workers {}, PS shards {}",
            job.name,
            phase_and_reason(job),
            count(job.workers),
            count(job.ps_shards)
        );
        let mut body = String::new();
        if let Some(progress) = &job.progress {
            let of = progress.evaluated_on.unwrap_or_default().label();
            let tested = progress
                .test_accuracy
                .map(|part| accuracy_percent(part, of));
            let accuracy = tested
                .or_else(|| {
                    progress
                        .accuracy
                        .map(|part| accuracy_percent(part, "train"))
                })
                .unwrap_or_default();
            let loss = progress.loss.map(|loss| format!(", train loss {loss:.4}"));
            let loss = loss.unwrap_or_default();
            let eta = progress.eta_s.map_or_else(String::new, |eta_s| {
                format!(", ends in {}", duration_s(eta_s))
            });
            body = format!(
                "{:.1} steps/s{loss}{accuracy}{eta}",
                progress.steps_per_s.unwrap_or_default()
            );
            self.bar.set_length(progress.total_steps.unwrap_or(0));
            self.bar.set_position(progress.step);
        }
        self.bar.set_prefix(head.clone());
        self.bar.set_message(body.clone());
        if !self.is_terminal {
            self.print_change(&head, &body, job);
        }
    }

    /// Prints a line for every change of phase or size, and for every tenth of the steps.
    fn print_change(&self, head: &str, body: &str, job: &JobView) {
        let progress = job.progress.as_ref();
        let tenth = progress.and_then(|p| Some(p.step * 10 / p.total_steps?.max(1)));
        let key = format!("{head} {tenth:?}");
        if *self.last_line.borrow() != key {
            let steps = progress.map_or_else(String::new, |p| {
                format!(
                    "; step {}{}",
                    p.step,
                    p.total_steps
                        .map_or_else(String::new, |total| format!("/{total}"))
                )
            });
            note!("{head}{steps}; {body}");
            self.last_line.replace(key);
        }
    }
}

fn accuracy_percent(part: f64, of: &str) -> String {
    format!(", {of} accuracy {:.2}%", part * 100.0)
}
