//! `muster submit`: reads a job document and submits it.

use super::git::OF_SUBMISSION;
use super::{CliSession, UsageError, code, follow_job, git, resolve_job, template, wait};
use crate::document::{self, read};
use crate::output::line;
use crate::refused::with_lines;
use anyhow::Context as _;
use clap::Args;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::spec::JobSpec;
use muster_model::wait::Wait;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Number of polls, and their interval, until a round has considered the job.
const LOOKS: u32 = 8;
const BETWEEN_LOOKS: Duration = Duration::from_millis(150);

#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// The document, YAML or JSON; `-` reads standard input. With --from it may be omitted; that
    /// job's document is then used.
    #[arg(required_unless_present_any = ["from", "template"])]
    file: Option<PathBuf>,
    /// Fill this template of the tenant; --set then sets its parameters, such as lr=0.1.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "from"])]
    template: Option<String>,
    /// Begin from a checkpoint of another job (name or id), by default its newest.
    #[arg(long, value_name = "JOB[@STEP]")]
    from: Option<String>,
    /// Start after the success of this job, or with `:end` after any end; may be repeated.
    #[arg(long, value_name = "JOB[:end]")]
    after: Vec<String>,
    /// Set a field of the document to a YAML value, such as stop.epochs=20; an empty value removes
    /// the field, null sets it to null. May be repeated.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// Put this file into the document's command.files under its own name or NAME; may be repeated.
    #[arg(long = "file", value_name = "[NAME=]PATH")]
    ship: Vec<String>,
    /// Send this folder as the program's code (command.code). Files that .gitignore or
    /// .musterignore exclude are left out.
    #[arg(long, value_name = "FOLDER")]
    code: Option<PathBuf>,
    /// Check the document and show what would be submitted, without a change.
    #[arg(long)]
    dry_run: bool,
    /// Submit at most once under this key, even if the request is repeated.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait until the job has ended; the exit code gives its result.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// Print the output until the job has ended; the exit code gives its result.
    #[arg(short, long, conflicts_with_all = ["dry_run", "wait"])]
    follow: bool,
}

impl SubmitArgs {
    /// # Errors
    /// If the file cannot be read, the document is not YAML, or the server refuses it.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<ExitCode> {
        let mut document = self.document(session).await?;
        if document.get("kind").and_then(serde_json::Value::as_str) == Some("study") {
            let file = self.file.as_ref().map(|file| file.display().to_string());
            let file = file.unwrap_or_else(|| "FILE".to_owned());
            let text = format!("this is the document of a study: muster study create {file}");
            anyhow::bail!(UsageError(text));
        }
        if self.template.is_none() {
            for assignment in &self.set {
                assign(&mut document, assignment)?;
            }
        }
        resolve_job::enter_after(session, &mut document, &self.after).await?;
        for named in &self.ship {
            ship(&mut document, named)?;
        }
        let packed = self.code.as_deref().map(code::pack).transpose()?;
        document::note_start_over(&document);
        if self.dry_run {
            let checked = session.client.dry_run(&document).await;
            let job = checked.map_err(|error| with_lines(error, self.file.as_deref()))?;
            session.output.print(&job, |job| {
                format!("{} would be submitted; nothing was changed", job.name)
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(folder) = &self.code {
            git::label(&mut document, folder);
        }
        git::label_source(&mut document);
        if let Some(packed) = packed {
            code::name_in(&mut document, &packed.sha256)?;
            code::upload(session, packed).await?;
        }
        let key = self.idempotency_key.as_deref();
        let submitted = session.client.submit(&document, key).await;
        let job = submitted.map_err(|error| with_lines(error, self.file.as_deref()))?;
        if self.follow {
            line(&format!("job {} ({}) submitted", job.name, job.id))?;
            return follow_job::follow(session, &job).await;
        }
        if self.wait {
            line(&format!("job {} ({}) submitted", job.name, job.id))?;
            hint(session, job.id).await;
            return wait::until_ended(session, job.id, None).await;
        }
        session.output.print(&job, |job| {
            format!("job {} ({}) submitted", job.name, job.id)
        })?;
        let page = session.client.job_page(job.id);
        note!("muster: {page} or muster logs -f {}", job.name);
        hint(session, job.id).await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Warns about a job that can never start, which the next round detects. The job is already
/// submitted, so errors of these requests are not errors of the submission.
async fn hint(session: &CliSession, id: JobId) {
    for _ in 0..LOOKS {
        let Ok(job) = session.client.job(id).await else {
            return;
        };
        let Some(waiting) = job.waiting.filter(|_| job.phase == JobPhase::Queued) else {
            return;
        };
        if waiting.detail.why != Wait::NotConsidered {
            if waiting.detail.why.is_for_good() {
                let helps = waiting.smallest_change;
                let helps = helps.map_or_else(String::new, |it| format!("; what would help: {it}"));
                note!(
                    "muster: as the job and the cluster are, it never starts: {}{helps}",
                    waiting.message
                );
            }
            return;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

impl SubmitArgs {
    /// Returns the given document, or that of the parent job.
    async fn document(&self, session: &CliSession) -> anyhow::Result<serde_json::Value> {
        if let Some(name) = &self.template {
            return template::filled(session, name, &self.set).await;
        }
        let Some(from) = &self.from else {
            return read(self.file.as_ref().expect("clap requires one of the two"));
        };
        let (named, step) = origin(from)?;
        let job = session.job(named).await?;
        let mut document = match &self.file {
            Some(file) => read(file)?,
            None => fork(&job.spec)?,
        };
        let fields = document
            .as_object_mut()
            .ok_or_else(|| UsageError("the document is no map of fields".to_owned()))?;
        let mut from = json!({ "job": job.id });
        if let Some(step) = step {
            from["step"] = json!(step);
        }
        fields.insert("from".to_owned(), from);
        Ok(document)
    }
}

/// Returns the document of a job for a fork. Labels of Muster identify the first job, for example
/// its Kubernetes object, so they are removed.
fn fork(spec: &JobSpec) -> anyhow::Result<serde_json::Value> {
    let mut document = serde_json::to_value(spec)?;
    let labels = document.get_mut("labels");
    if let Some(labels) = labels.and_then(serde_json::Value::as_object_mut) {
        labels.retain(|name, _| {
            !name.starts_with("muster.dev/") && !OF_SUBMISSION.contains(&name.as_str())
        });
    }
    if let Some(fields) = document.as_object_mut() {
        // The jobs that the other one waited for may have failed or been deleted since.
        fields.remove("after");
        fields.remove("array");
    }
    Ok(document)
}

/// Parses `JOB` or `JOB@STEP`.
fn origin(from: &str) -> anyhow::Result<(&str, Option<u64>)> {
    let Some((job, step)) = from.rsplit_once('@') else {
        return Ok((from, None));
    };
    let step = step.parse().map_err(|_| {
        UsageError(format!(
            "--from {from}: {step:?} is no step; expected JOB or JOB@STEP"
        ))
    })?;
    Ok((job, Some(step)))
}

/// Sets the value at a path such as `engine.optimizer.learning_rate` or `engine.model.hidden[0]`.
/// The server checks whether the field exists.
pub(super) fn assign(document: &mut serde_json::Value, assignment: &str) -> anyhow::Result<()> {
    let wrong = |what: &str| UsageError(format!("--set {assignment}: {what}"));
    let (path, value) = assignment
        .split_once('=')
        .ok_or_else(|| wrong("expected FIELD=VALUE"))?;
    let names: Vec<&str> = path
        .split('.')
        .flat_map(|segment| segment.split('['))
        .collect();
    if value.trim().is_empty() {
        return match remove(document, &names) {
            Some(()) => Ok(()),
            None => Err(wrong("the document has no such field to take away").into()),
        };
    }
    let value = document::parse(value).map_err(|error| wrong(&error.to_string()))?;
    let mut here = document;
    for name in names {
        here = match name.strip_suffix(']') {
            Some(index) => index
                .parse::<usize>()
                .ok()
                .and_then(|index| here.get_mut(index))
                .ok_or_else(|| wrong(&format!("[{name} is not there")))?,
            None => here
                .as_object_mut()
                .ok_or_else(|| wrong(&format!("there is no field in which {name:?} could be")))?
                .entry(name)
                .or_insert_with(|| json!({})),
        };
    }
    *here = value;
    Ok(())
}

/// Removes the value at a path; `None` if there is none.
fn remove(document: &mut serde_json::Value, names: &[&str]) -> Option<()> {
    let (last, names) = names.split_last()?;
    let mut here = document;
    for name in names {
        here = match index(name) {
            Some(index) => here.get_mut(index)?,
            None => here.get_mut(*name)?,
        };
    }
    match index(last) {
        Some(index) => {
            let items = here.as_array_mut()?;
            (index < items.len()).then(|| items.remove(index)).map(drop)
        }
        None => here.as_object_mut()?.remove(*last).map(drop),
    }
}

/// Returns the index that the part of a path contains, such as 3 of `3]`.
fn index(name: &str) -> Option<usize> {
    name.strip_suffix(']')?.parse().ok()
}

/// Adds a file to the document. The server checks it and names the field in its error.
fn ship(document: &mut serde_json::Value, named: &str) -> anyhow::Result<()> {
    let (name, path) = match named.split_once('=') {
        Some((name, path)) => (name.to_owned(), Path::new(path)),
        None => {
            let path = Path::new(named);
            let name = path.file_name().unwrap_or_default();
            (name.to_string_lossy().into_owned(), path)
        }
    };
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        let path = path.display();
        UsageError(format!(
            "{path} is not text; what is not belongs on a disk that all nodes see"
        ))
    })?;
    let command = document
        .get_mut("command")
        .and_then(serde_json::Value::as_object_mut)
        .ok_or_else(|| UsageError("--file is for documents with a command".to_owned()))?;
    let files = command.entry("files").or_insert_with(|| json!({}));
    let files = files
        .as_object_mut()
        .ok_or_else(|| UsageError("command.files is not a map of names to texts".to_owned()))?;
    if files.insert(name.clone(), json!(text)).is_some() {
        return Err(UsageError(format!("command.files.{name} is given twice")).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_changes_fields_by_their_path() {
        let mut document = json!({ "engine": { "model": { "hidden": [8] } } });
        for assignment in ["engine.model.hidden[0]=16", "stop.epochs=20", "name=a-b"] {
            assign(&mut document, assignment).expect("a place");
        }
        let expected = json!({ "engine": { "model": { "hidden": [16] } }, "stop": { "epochs": 20 }, "name": "a-b" });
        assert_eq!(document, expected);
        for wrong in ["stop.epochs", "engine.model.hidden[1]=3", "name.first=3"] {
            assert!(assign(&mut document, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn set_with_an_empty_value_removes_the_field() {
        let mut document = json!({ "name": "a", "stop": { "epochs": 3 }, "list": [1, 2] });
        for assignment in ["stop.epochs=", "list[0]=", "name= "] {
            assign(&mut document, assignment).expect("a place");
        }
        assert_eq!(document, json!({ "stop": {}, "list": [2] }));
        assign(&mut document, "name=null").expect("a place");
        assert!(document["name"].is_null());
        for wrong in ["stop.epochs=", "list[1]=", "engine.model="] {
            let error = assign(&mut document, wrong).expect_err(wrong).to_string();
            assert!(error.contains("no such field"), "{error}");
        }
        assert!(document.get("engine").is_none(), "nothing was put there");
    }

    #[test]
    fn fork_drops_labels_of_muster() {
        let document = json!({
            "version": "muster/v1", "name": "a", "command": { "argv": ["true"] },
            "labels": { "team": "vision", "muster.dev/uid": "u-1", "muster.dev/operator": "kubernetes" },
        });
        let spec: JobSpec = serde_json::from_value(document).expect("a document");
        let forked = fork(&spec).expect("JSON");
        assert_eq!(forked["labels"], json!({ "team": "vision" }));
        assert_eq!(forked["name"], "a");
        let plain = json!({ "version": "muster/v1", "name": "b", "command": { "argv": ["true"] } });
        let plain: JobSpec = serde_json::from_value(plain).expect("a document");
        let forked = fork(&plain).expect("JSON");
        assert_eq!(forked, serde_json::to_value(&plain).expect("JSON"));
    }

    #[test]
    fn origin_is_a_job_with_an_optional_step() {
        assert_eq!(origin("fashion").expect("a job"), ("fashion", None));
        assert_eq!(origin("fashion@40").expect("a job"), ("fashion", Some(40)));
        assert!(origin("fashion@last").is_err());
    }

    #[test]
    fn files_are_added_to_the_document_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("train.py");
        std::fs::write(&path, "print(1)").expect("written");
        let shown = path.display().to_string();
        let mut document = json!({ "command": { "argv": ["python3"] } });
        ship(&mut document, &shown).expect("shipped");
        ship(&mut document, &format!("src/a.py={shown}")).expect("shipped");
        let files = json!({ "train.py": "print(1)", "src/a.py": "print(1)" });
        assert_eq!(document["command"]["files"], files);
        let twice = ship(&mut document, &shown).expect_err("it is there");
        assert!(
            twice.to_string().contains("command.files.train.py"),
            "{twice}"
        );
        let engine = ship(&mut json!({ "engine": {} }), &shown).expect_err("no command");
        assert!(engine.to_string().contains("command"), "{engine}");
    }
}
