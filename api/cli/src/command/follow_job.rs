//! Follows a job in the terminal until it ends: its output, its phases and its loss.

use super::interrupted::{ChoiceWords, Interrupted};
use super::{CliSession, logs, wait};
use crate::output::Out;
use futures::StreamExt as _;
use indicatif::ProgressBar;
use muster_client::{Messages, StreamItem};
use muster_model::job::JobPhase;
use muster_model::view::{JobView, ProgressMessage};
use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

/// The coordinator, whose output is shown.
const TASK: &str = "worker-0";
/// Maximum wait for the rest of the output after the end of the job.
const REST_OF_LOG: Duration = Duration::from_secs(10);
/// Number of points of the curve.
const CURVE_POINTS: usize = 24;
/// Levels of the curve.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Answers after Ctrl-C.
const WORDS: ChoiceWords = ChoiceWords {
    leave: "detach",
    end: "cancel",
};

/// The terminal: output above, the progress bar below.
struct Screen {
    bar: ProgressBar,
    /// The newest phase line.
    phase: String,
    /// The beginning of a line whose end has not arrived, if there is a bar.
    partial: String,
    losses: VecDeque<f64>,
}

/// Follows the job. Returns the exit code of `muster wait` for its phase; 0 if the user detaches.
///
/// # Errors
/// If the server refuses.
pub async fn follow(session: &CliSession, job: &JobView) -> anyhow::Result<ExitCode> {
    let mut screen = Screen::new();
    let mut changes = session.client.watch_job(job.id, None);
    let mut log = session.client.follow_place(job.id, TASK, None);
    let mut log_ended = false;
    loop {
        tokio::select! {
            item = log.next(), if !log_ended => match item.transpose()? {
                Some(item) => log_ended = screen.log(&item)?,
                None => log_ended = true,
            },
            item = changes.next() => match item.transpose()? {
                Some(StreamItem::Progress(series)) => screen.progress(&series),
                // Between events, a round may have changed the reason why the job waits.
                Some(StreamItem::Event(_) | StreamItem::Opened(_)) => {
                    let now = wait::read(session, job.id).await?;
                    if now.phase.is_terminal() {
                        return end(session, screen, log, log_ended, &now).await;
                    }
                    screen.phase(&now);
                }
                Some(_) => {}
                None => changes = session.client.watch_job(job.id, None),
            },
            pressed = tokio::signal::ctrl_c() => {
                pressed?;
                match screen.ask(&job.name)? {
                    Interrupted::Continue => {}
                    Interrupted::Leave => {
                        note!("muster: the job continues; muster logs -f {}", job.name);
                        return Ok(ExitCode::SUCCESS);
                    }
                    Interrupted::End => {
                        session.client.cancel(job.id).await?;
                        note!("muster: cancelling");
                    }
                }
            }
        }
    }
}

/// Prints the rest of the output and how the job ended.
async fn end(
    session: &CliSession,
    mut screen: Screen,
    mut log: Messages,
    log_ended: bool,
    job: &JobView,
) -> anyhow::Result<ExitCode> {
    if !log_ended {
        let rest = async {
            while let Some(item) = log.next().await.transpose()? {
                if screen.log(&item)? {
                    break;
                }
            }
            anyhow::Ok(())
        };
        // The output is complete once the node has reported its end, which a lost node never does.
        if let Ok(read) = tokio::time::timeout(REST_OF_LOG, rest).await {
            read?;
        }
    }
    screen.close()?;
    logs::print_failed(session, job, &[TASK.to_owned()]).await?;
    if session.output.is_whole() {
        session.output.print(job, wait::ending)?;
    } else {
        note!("muster: {}", wait::ending(job));
    }
    if job.phase == JobPhase::Failed {
        note!("muster: muster show {} lists its tasks", job.name);
    }
    let is_program = job.spec.command.is_some();
    if job.phase == JobPhase::Succeeded && is_program && io::stderr().is_terminal() {
        say_what_is_lost(session, job).await?;
    }
    Ok(wait::exit_code(job.phase))
}

/// Prints how to keep results of a program that has left neither metrics nor files.
async fn say_what_is_lost(session: &CliSession, job: &JobView) -> anyhow::Result<()> {
    let is_without_metrics = session.client.metrics(job.id).await?.is_empty();
    if is_without_metrics && session.client.artifacts(job.id, "").await?.is_empty() {
        note!(
            "muster: it left no metrics and no files; muster run --metric loss reads them from the output, --keep PATH keeps files of its folder"
        );
    }
    Ok(())
}

impl Screen {
    fn new() -> Self {
        Self {
            bar: wait::bar(),
            phase: String::new(),
            partial: String::new(),
            losses: VecDeque::new(),
        }
    }

    /// Prints a message of the log's stream. Returns `true` at its end.
    fn log(&mut self, item: &StreamItem) -> io::Result<bool> {
        match item {
            StreamItem::Log(piece) => self.print(&piece.text)?,
            StreamItem::TaskEnd(end) => {
                let reason = &end.reason;
                self.note(&format!("muster: {reason}; the next {TASK} begins:"));
            }
            StreamItem::End(_) => return Ok(true),
            _ => {}
        }
        Ok(false)
    }

    /// Prints whole lines above the bar. Without a bar, everything at once.
    fn print(&mut self, text: &str) -> io::Result<()> {
        if self.bar.is_hidden() {
            return write(text);
        }
        self.partial.push_str(text);
        let Some(end) = self.partial.rfind('\n') else {
            return Ok(());
        };
        let rest = self.partial.split_off(end + 1);
        let lines = std::mem::replace(&mut self.partial, rest);
        self.bar.suspend(|| write(&lines))
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| note!("{text}"));
    }

    fn phase(&mut self, job: &JobView) {
        wait::draw(&self.bar, job);
        let phase = wait::phase_line(job);
        if phase != self.phase {
            self.note(&format!("muster: {phase}"));
            self.phase = phase;
        }
    }

    fn progress(&mut self, series: &ProgressMessage) {
        for newest in &series.samples {
            self.bar.set_position(newest.sample.step);
            self.losses.push_back(newest.sample.loss);
            if self.losses.len() > CURVE_POINTS {
                self.losses.pop_front();
            }
        }
        if let Some(loss) = self.losses.back() {
            let curve = curve(&self.losses);
            self.bar.set_message(format!("loss {loss:.4} {curve}"));
        }
    }

    fn ask(&self, name: &str) -> io::Result<Interrupted> {
        let question = format!(
            "\nmuster: detach from {name} (d), cancel it (c), or continue to follow it (Enter)? "
        );
        self.bar.suspend(|| WORDS.ask(&question))
    }

    fn close(&mut self) -> io::Result<()> {
        self.bar.finish_and_clear();
        write(&std::mem::take(&mut self.partial))
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = Out;
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Draws values as bars between their minimum and maximum.
fn curve(values: &VecDeque<f64>) -> String {
    let finite: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| value.is_finite())
        .collect();
    let least = finite.iter().copied().fold(f64::INFINITY, f64::min);
    let span = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max) - least;
    values
        .iter()
        .map(|value| match (value - least) / span {
            _ if !value.is_finite() => '!',
            share if span > 0.0 => LEVELS[(share * (LEVELS.len() - 1) as f64).round() as usize],
            _ => LEVELS[0],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_spans_minimum_to_maximum() {
        assert_eq!(
            curve(&VecDeque::from([4.0, 3.0, 2.0, f64::NAN, 1.0])),
            "█▆▃!▁"
        );
        assert_eq!(curve(&VecDeque::from([2.0, 2.0])), "▁▁");
        assert_eq!(curve(&VecDeque::new()), "");
    }
}
