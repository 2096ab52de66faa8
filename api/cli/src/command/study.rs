//! `muster study`: searches over parameters.

use super::{CliSession, NotFound, code};
use crate::clock;
use crate::document::read;
use crate::output::{age, counted, fields, line, table, table_of};
use crate::refused::with_lines;
use clap::{Args, Subcommand, ValueEnum};
use muster_model::id::StudyId;
use muster_model::study::{StudyPhase, StudySpec};
use muster_model::view::{BestTrialView, StudyView, TrialCounts, TrialPoint, TrialView};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

/// Maximum number of different failure reasons that are shown with a study.
const SHOWN_FAILURES: usize = 5;

#[derive(Debug, Args)]
pub struct StudyCommand {
    #[command(subcommand)]
    verb: StudyVerb,
}

#[derive(Debug, Subcommand)]
enum StudyVerb {
    /// Create a study from its document (YAML or JSON)
    Create(CreateStudyArgs),
    /// List studies, newest first
    #[command(visible_alias = "ls")]
    List(ListStudiesArgs),
    /// Show a study
    Show(StudyNameArgs),
    /// Show the best trial, or the Pareto front, with the path of its checkpoint
    Best(StudyNameArgs),
    /// List a study's trials
    Trials(StudyNameArgs),
    /// Start no new trials; running ones continue
    Pause(StudyNameArgs),
    /// Resume a paused study
    Resume(StudyNameArgs),
    /// Add trials to a study
    Extend(ExtendStudyArgs),
    /// Print all trials as CSV or JSON
    Export(ExportStudyArgs),
    /// End a study and all its trials
    Cancel(StudyNameArgs),
    /// Delete a finished study and its trials' jobs
    Delete(StudyNameArgs),
}

#[derive(Debug, Args)]
struct CreateStudyArgs {
    /// The document; `-` reads standard input.
    file: PathBuf,
    /// Send this folder as the code of the trials' program (job.command.code).
    #[arg(long, value_name = "FOLDER", conflicts_with = "dry_run")]
    code: Option<PathBuf>,
    /// Check the document and show what would be created, without a change.
    #[arg(long)]
    dry_run: bool,
    /// Create at most once under this key, even if the request is repeated.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
struct ListStudiesArgs {
    /// Only studies of this name.
    #[arg(long)]
    name: Option<String>,
    /// Maximum number of studies.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
}

#[derive(Debug, Args)]
struct StudyNameArgs {
    /// Id of the study, or name (its newest study).
    study: String,
}

#[derive(Debug, Args)]
struct ExtendStudyArgs {
    /// Id of the study, or name (its newest study).
    study: String,
    /// Number of additional trials.
    #[arg(long)]
    trials: u32,
    /// Extend at most once under this key, even if the request is repeated.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
struct ExportStudyArgs {
    /// Id of the study, or name (its newest study).
    study: String,
    #[arg(long, value_enum, default_value_t)]
    format: FileFormat,
    /// File to write [default: standard output].
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum FileFormat {
    /// One line per trial.
    #[default]
    Csv,
    /// Includes learning curves.
    Json,
}

impl StudyCommand {
    /// # Errors
    /// A refusal of the server, or the reason why it was not reached.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let client = &session.client;
        match self.verb {
            StudyVerb::Create(options) => options.run(session).await,
            StudyVerb::List(options) => options.run(session).await,
            StudyVerb::Show(named) => shown(session, named).await,
            StudyVerb::Best(named) => best(session, named).await,
            StudyVerb::Trials(named) => trials(session, named).await,
            StudyVerb::Pause(named) => {
                let study = client.pause_study(named.find(session).await?.id).await?;
                said(session, &study, "pauses")
            }
            StudyVerb::Resume(named) => {
                let study = client.resume_study(named.find(session).await?.id).await?;
                said(session, &study, "resumes")
            }
            StudyVerb::Cancel(named) => {
                let study = client.cancel_study(named.find(session).await?.id).await?;
                said(session, &study, "is being cancelled")
            }
            StudyVerb::Extend(options) => {
                let study = session.study(&options.study).await?;
                let study = {
                    let key = options.idempotency_key.as_deref();
                    client.extend_study(study.id, options.trials, key).await?
                };
                said(
                    session,
                    &study,
                    &format!("gets {} more trials", options.trials),
                )
            }
            StudyVerb::Export(options) => options.run(session).await,
            StudyVerb::Delete(named) => {
                let study = named.find(session).await?;
                client.delete_study(study.id).await?;
                line(&format!("study {} ({}) deleted", study.name, study.id))
            }
        }
    }
}

impl StudyNameArgs {
    async fn find(&self, session: &CliSession) -> anyhow::Result<StudyView> {
        session.study(&self.study).await
    }
}

impl CliSession {
    /// Returns the study of this id, or the newest study of this name.
    ///
    /// # Errors
    /// [`NotFound`], or the reason why the server was not reached.
    pub async fn study(&self, named: &str) -> anyhow::Result<StudyView> {
        if let Ok(id) = named.parse::<StudyId>() {
            return Ok(self.client.study(id).await?);
        }
        let mut page = self.client.studies(Some(named), 1, None).await?;
        page.items
            .pop()
            .ok_or_else(|| NotFound(format!("no study has the name or id {named:?}")).into())
    }
}

impl CreateStudyArgs {
    async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let mut document = read(&self.file)?;
        if self.dry_run {
            let checked = session.client.dry_run_study(&document).await;
            let study = checked.map_err(|error| with_lines(error, Some(&self.file)))?;
            return session.output.print(&study, |study| {
                format!("{} would be created; nothing was changed", study.name)
            });
        }
        if let Some(folder) = &self.code {
            let packed = code::pack(folder)?;
            let mut no_job = Value::Null;
            let job = document.get_mut("job").unwrap_or(&mut no_job);
            code::name_in(job, &packed.sha256)?;
            code::upload(session, packed).await?;
        }
        let key = self.idempotency_key.as_deref();
        let created = session.client.create_study(&document, key).await;
        let study = created.map_err(|error| with_lines(error, Some(&self.file)))?;
        said(session, &study, "created")
    }
}

impl ListStudiesArgs {
    async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let page = session
            .client
            .studies(self.name.as_deref(), self.limit, None)
            .await?;
        session.output.print(&page, |page| {
            if page.items.is_empty() {
                return "no studies".to_owned();
            }
            let now = clock::now();
            let rows = page.items.iter().map(|study| {
                let counts = study.trials;
                [
                    study.name.clone(),
                    phase_text(study),
                    format!("{}/{}", counts.created, counts.limit),
                    counts.running.to_string(),
                    best_text(study),
                    age(study.created_at, now),
                    study.id.to_string(),
                ]
            });
            table(
                ["name", "phase", "trials", "running", "best", "age", "id"],
                rows,
            )
        })
    }
}

impl ExportStudyArgs {
    async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let study = session.study(&self.study).await?;
        let format = match self.format {
            FileFormat::Csv => "csv",
            FileFormat::Json => "json",
        };
        let text = session.client.export_study(study.id, format).await?;
        match self.file {
            Some(path) if path.as_os_str() != "-" => {
                Ok(std::fs::File::create(path)?.write_all(text.as_bytes())?)
            }
            _ => line(text.trim_end()),
        }
    }
}

async fn best(session: &CliSession, named: StudyNameArgs) -> anyhow::Result<()> {
    let study = named.find(session).await?;
    let best = session.client.best_trials(study.id).await?;
    session.output.print(&best, |best| {
        if best.is_empty() {
            return "no trial has a result yet".to_owned();
        }
        let texts: Vec<String> = best
            .iter()
            .map(|one| best_fields(&study.document, one))
            .collect();
        texts.join("\n\n")
    })
}

fn best_fields(document: &StudySpec, best: &BestTrialView) -> String {
    let trial = &best.trial;
    let mut rows = vec![
        ("trial", trial.number.to_string()),
        ("state", trial.state.as_str().to_owned()),
        ("result", point_text(document, trial.outcome.as_ref())),
        ("parameters", parameters_text(trial)),
    ];
    if let Some(from) = trial.from {
        rows.push((
            "began from",
            format!("trial {} at {}", from.trial, from.step),
        ));
    }
    if let Some(id) = trial.job_id {
        rows.push(("job", id.to_string()));
    }
    if let Some(checkpoint) = &best.checkpoint {
        rows.push((
            "checkpoint",
            format!("{} (step {})", checkpoint.path, checkpoint.step),
        ));
    }
    if let Some(path) = &best.model_path {
        rows.push(("model", path.clone()));
    }
    fields(&rows)
}

async fn trials(session: &CliSession, named: StudyNameArgs) -> anyhow::Result<()> {
    let study = named.find(session).await?;
    let all = session
        .client
        .trials(study.id, session.output.is_whole())
        .await?;
    session.output.print(&all, |all| {
        let with_reasons = all.iter().any(|trial| trial.failure.is_some());
        let rows = all.iter().map(|trial| {
            let mut row = vec![
                format!("{}{}", trial.number, if trial.best { " *" } else { "" }),
                trial.state.as_str().to_owned(),
                trial.rung.to_string(),
                trial.budget.to_string(),
                trial.from.map_or_else(
                    || "-".to_owned(),
                    |from| format!("{} at {}", from.trial, from.step),
                ),
                point_text(&study.document, trial.outcome.as_ref()),
                parameters_text(trial),
                trial
                    .job_id
                    .map_or_else(|| "-".to_owned(), |id| id.to_string()),
            ];
            row.extend(with_reasons.then(|| trial.failure.clone().unwrap_or_default()));
            row
        });
        let mut header = vec![
            "trial",
            "state",
            "rung",
            "budget",
            "from",
            "result",
            "parameters",
            "job",
        ];
        header.extend(with_reasons.then_some("why it failed"));
        table_of(&header, rows)
    })
}

/// Shows a study and the reasons of its failed trials, which are not part of the study's answer.
async fn shown(session: &CliSession, named: StudyNameArgs) -> anyhow::Result<()> {
    let study = named.find(session).await?;
    let trials = if study.trials.failed > 0 && !session.output.is_whole() {
        session.client.trials(study.id, false).await?
    } else {
        Vec::new()
    };
    let failures = failures(trials.iter().filter_map(|trial| trial.failure.as_deref()));
    session.output.print(&study, |study| show(study, &failures))
}

/// Returns failure reasons with their numbers of trials, most frequent first.
fn failures<'t>(reasons: impl Iterator<Item = &'t str>) -> Vec<(u32, &'t str)> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut counts: Vec<(u32, &str)> = counts.into_iter().map(|(why, of)| (of, why)).collect();
    counts.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    counts
}

/// Returns the phase. A finished study with only failed trials is marked.
fn phase_text(study: &StudyView) -> String {
    let TrialCounts {
        created, failed, ..
    } = study.trials;
    let phase = study.phase.as_str();
    if study.phase == StudyPhase::Finished && created > 0 && failed == created {
        format!("{phase} (all trials failed)")
    } else {
        phase.to_owned()
    }
}

fn show(study: &StudyView, failures: &[(u32, &str)]) -> String {
    let counts = study.trials;
    let search = &study.document.search;
    let goals: Vec<String> = search
        .objectives
        .iter()
        .map(|one| format!("{:?} {}", one.goal, one.metric).to_lowercase())
        .collect();
    let mut rows = vec![
        ("name", study.name.clone()),
        ("id", study.id.to_string()),
        ("phase", phase_text(study)),
        ("objectives", goals.join(", ")),
        (
            "trials",
            trials_text(counts.created, counts.limit, search.trials),
        ),
        (
            "states",
            format!(
                "{} running, {} waiting, {} stopping, {} completed, {} stopped, {} failed",
                counts.running,
                counts.waiting,
                counts.stopping,
                counts.completed,
                counts.stopped,
                counts.failed
            ),
        ),
        ("best", best_text(study)),
    ];
    if let [best] = study.best.as_slice() {
        rows.push(("parameters", parameters_text(best)));
    }
    for (trials, why) in failures.iter().take(SHOWN_FAILURES) {
        rows.push(("failed", format!("{}: {why}", counted(*trials, "trial"))));
    }
    rows.push(("created by", study.created_by.clone()));
    fields(&rows)
}

/// Returns the number of trials and their limit, and the document's limit if it was extended.
fn trials_text(created: u32, limit: u32, at_first: u32) -> String {
    let extended = if limit == at_first {
        String::new()
    } else {
        format!(" (extended; its document says {at_first})")
    };
    format!("{created} of {limit}{extended}")
}

fn said(session: &CliSession, study: &StudyView, what: &str) -> anyhow::Result<()> {
    session.output.print(study, |study| {
        format!("study {} ({}) {what}", study.name, study.id)
    })
}

fn best_text(study: &StudyView) -> String {
    match study.best.as_slice() {
        [] => "-".to_owned(),
        [one] => {
            let result = point_text(&study.document, one.outcome.as_ref());
            format!("trial {}: {result}", one.number)
        }
        _ => format!("{} trials on the front", study.trials.best),
    }
}

/// Returns `test_accuracy 0.8710 at 9`.
fn point_text(document: &StudySpec, point: Option<&TrialPoint>) -> String {
    let Some(point) = point else {
        return "-".to_owned();
    };
    let objectives = document.search.objectives.iter().zip(&point.values);
    let values: Vec<String> = objectives
        .map(|(one, value)| match value {
            Some(value) => format!("{} {}", one.metric, short(*value)),
            None => format!("{} not finite", one.metric),
        })
        .collect();
    format!("{} at {}", values.join(", "), point.step)
}

fn parameters_text(trial: &TrialView) -> String {
    let pairs = trial
        .parameters
        .iter()
        .map(|(name, value)| match value.as_f64() {
            Some(number) if value.is_f64() => format!("{name}={}", short(number)),
            _ => format!("{name}={value}"),
        });
    pairs.collect::<Vec<_>>().join(" ")
}

/// Returns a number with four decimal places, or with an exponent.
fn short(number: f64) -> String {
    if number != 0.0 && !(1e-3..1e6).contains(&number.abs()) {
        return format!("{number:.3e}");
    }
    format!("{number:.4}")
}

#[cfg(test)]
mod tests {
    use super::{failures, trials_text};

    #[test]
    fn failure_reasons_are_listed_once_with_their_count() {
        let reasons = ["no muster", "killed", "no muster"];
        let counted = failures(reasons.into_iter());
        assert_eq!(counted, [(2, "no muster"), (1, "killed")]);
    }

    #[test]
    fn extended_study_shows_both_numbers_of_trials() {
        assert_eq!(trials_text(3, 6, 6), "3 of 6");
        assert_eq!(
            trials_text(8, 8, 6),
            "8 of 8 (extended; its document says 6)"
        );
    }
}
