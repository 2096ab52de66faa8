//! `muster run`: sends the working folder, runs a program in it as a job, and follows the job.

use super::array::ArrayIndices;
use super::submit::assign;
use super::{CliSession, UsageError, array, code, follow_job, git, resolve_job};
use crate::document;
use anyhow::Context as _;
use clap::Args;
use muster_model::spec::Interactive;
use muster_model::view::JobView;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Name of a job whose program gives none.
const UNNAMED: &str = "run";
/// Program of a notebook. Jupyter makes its token itself, and prints it to the log of the job.
const JUPYTER: [&str; 8] = [
    "jupyter",
    "lab",
    "--no-browser",
    "--allow-root",
    "--ip",
    "127.0.0.1",
    "--port",
    "8888",
];
/// Maximum length of a study's name. That of a job may be longer.
const MAX_NAME: usize = 55;

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Name of the job [default: from the program, such as train for train.py].
    #[arg(long)]
    name: Option<String>,
    /// GPUs (or CPU slots) of each worker; 0 for a job without GPUs [default: 1].
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,
    /// Number of workers, or the range in which the scheduler chooses it.
    #[arg(long, value_name = "N|MIN:MAX", default_value = "1", value_parser = workers)]
    workers: WorkerRange,
    /// GPU model on which the job may run, such as A100; may be repeated.
    #[arg(long = "gpu-kind", value_name = "MODEL")]
    gpu_kinds: Vec<String>,
    /// Cores of each worker, such as 4 or 0.5.
    #[arg(long, value_name = "CORES", value_parser = cpu_milli)]
    cpus: Option<u64>,
    /// Memory of each worker, such as 16Gi.
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Image in which the program runs, on nodes that can run images.
    #[arg(long)]
    image: Option<String>,
    /// File of the folder whose packages are installed for the program, such as requirements.txt.
    #[arg(long, value_name = "FILE")]
    requirements: Option<String>,
    /// Metric that is read from the output of worker 0, such as loss for lines with `loss: 0.5`, or
    /// with a regular expression whose group is the number. `step=PATTERN` finds the step. May be
    /// repeated.
    #[arg(long = "metric", value_name = "NAME[=PATTERN]")]
    metrics: Vec<String>,
    /// File or folder of the working folder that is kept as an artifact, such as runs/ or model.pt.
    /// May be repeated.
    #[arg(long, value_name = "PATH")]
    keep: Vec<String>,
    /// Environment variable of the program; without a value, that of this shell. May be repeated.
    #[arg(short, long = "env", value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Secret of the tenant that the program receives as an environment variable, by default of the
    /// same name. May be repeated; `muster secrets set NAME` stores one.
    #[arg(long = "secret", value_name = "NAME[=VARIABLE]")]
    secrets: Vec<String>,
    /// Secret that the program receives as a file in $MUSTER_SECRETS_DIR, by default of the same
    /// name. May be repeated.
    #[arg(long = "secret-file", value_name = "NAME[=FILE]")]
    secret_files: Vec<String>,
    /// Submit a job per index, such as 0-9 or 1,4,8-12; with 0-99%8 at most 8 of the jobs run at
    /// the same time. {index} in the arguments is replaced, and the variable ARRAY_INDEX holds the
    /// index.
    #[arg(long, value_name = "INDICES", value_parser = array::indices, conflicts_with = "study")]
    array: Option<ArrayIndices>,
    /// Start after the success of this job, or with `:end` after any end; may be repeated.
    #[arg(long, value_name = "JOB[:end]", conflicts_with = "study")]
    after: Vec<String>,
    /// Set another field of the document, such as retries=3; may be repeated.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// Search parameters: a study document without `job`. A parameter `lr` replaces the argument
    /// {lr} of the program.
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    study: Option<PathBuf>,
    /// Folder to send. Files that .gitignore or .musterignore exclude are left out.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// Send a commit of a git repository instead of the working folder. REF is a branch, a tag or a
    /// commit.
    #[arg(long, value_name = "URL[@REF]", conflicts_with_all = ["dir", "no_code"])]
    git: Option<String>,
    /// Send no folder: the program is on the nodes.
    #[arg(long, conflicts_with = "dir")]
    no_code: bool,
    /// Check and print the document, and submit nothing.
    #[arg(long)]
    dry_run: bool,
    /// Write the document to this file, too.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Do not follow the job.
    #[arg(short, long)]
    detach: bool,
    /// Set by `muster notebook`.
    #[arg(skip)]
    interactive: Option<Interactive>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

/// Smallest and largest number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WorkerRange {
    min: u32,
    max: u32,
}

fn workers(text: &str) -> Result<WorkerRange, String> {
    let (min, max) = text.split_once(':').unwrap_or((text, text));
    match (min.parse(), max.parse()) {
        (Ok(min), Ok(max)) if 0 < min && min <= max => Ok(WorkerRange { min, max }),
        _ => Err("expected a number such as 4, or a range such as 1:8".to_owned()),
    }
}

/// Returns thousandths of a core. The server checks the range.
fn cpu_milli(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(cores) if cores > 0.0 && cores.is_finite() => Ok((cores * 1000.0).ceil() as u64),
        _ => Err("expected a number of cores above 0, such as 4 or 0.5".to_owned()),
    }
}

impl RunArgs {
    /// # Errors
    /// If the folder cannot be sent, or the server refuses the document.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<ExitCode> {
        let is_detached = self.detach;
        let Some(job) = self.submit(session).await? else {
            return Ok(ExitCode::SUCCESS);
        };
        if is_detached {
            session.output.print(&job, |job| {
                let name = &job.name;
                format!("job {name} ({}) submitted; muster logs -f {name}", job.id)
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        note!("muster: job {} ({}) submitted", job.name, job.id);
        note!("muster: {}", session.client.job_page(job.id));
        follow_job::follow(session, &job).await
    }

    /// Whether the command returns after the submission.
    pub fn is_detached(&self) -> bool {
        self.detach
    }

    /// Makes the job interactive. Without a program it runs Jupyter; returns whether it does.
    ///
    /// # Errors
    /// For options that make several jobs or workers.
    pub fn work_in(&mut self, name: &str, idle_minutes: f64) -> Result<bool, UsageError> {
        let several = [
            ("--array", self.array.is_some()),
            ("--study", self.study.is_some()),
            ("--workers", self.workers != WorkerRange { min: 1, max: 1 }),
        ];
        if let Some((option, _)) = several.into_iter().find(|(_, is_given)| *is_given) {
            let text = format!("{option}: a notebook is one job of one worker");
            return Err(UsageError(text));
        }
        self.interactive = Some(Interactive { idle_minutes });
        let is_jupyter = self.argv.is_empty();
        if is_jupyter {
            self.argv = JUPYTER.map(str::to_owned).to_vec();
            self.name.get_or_insert(name.to_owned());
        }
        Ok(is_jupyter)
    }

    /// Submits the job. Returns `None` if it was only checked, and for studies and arrays, which
    /// are not followed.
    ///
    /// # Errors
    /// If the folder cannot be sent, or the server refuses the document.
    pub async fn submit(self, session: &CliSession) -> anyhow::Result<Option<JobView>> {
        let checkout = self.git.as_deref().map(git::checkout).transpose()?;
        let folder = match &checkout {
            Some(checkout) => checkout.path(),
            None => &self.dir,
        };
        self.find_requirements(folder)?;
        let mut job = self.document()?;
        for assignment in &self.set {
            assign(&mut job, assignment)?;
        }
        resolve_job::enter_after(session, &mut job, &self.after).await?;
        let packed = if self.no_code {
            None
        } else {
            Some(code::pack(folder)?)
        };
        if let Some(packed) = &packed {
            code::name_in(&mut job, &packed.sha256)?;
        }
        let mut document = match &self.study {
            Some(file) => in_study(document::read(file)?, job)?,
            None => job,
        };
        if packed.is_some() {
            git::label(&mut document, folder);
        }
        if let Some(path) = &self.save {
            let text = serde_norway::to_string(&document)?;
            std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
        }
        if self.dry_run {
            self.check(session, &document).await?;
            return Ok(None);
        }
        if let Some(packed) = packed {
            code::upload(session, packed).await?;
        }
        if self.study.is_some() {
            let study = session.client.create_study(&document, None).await?;
            session.output.print(&study, |study| {
                format!(
                    "study {} created; muster study show {}",
                    study.name, study.name
                )
            })?;
            return Ok(None);
        }
        if let Some(given) = &self.array {
            array::submit(session, &document, given).await?;
            return Ok(None);
        }
        Ok(Some(session.client.submit(&document, None).await?))
    }

    /// Checks that the folder has the file of `--requirements`; the task would fail otherwise.
    fn find_requirements(&self, folder: &Path) -> Result<(), UsageError> {
        let Some(file) = &self.requirements else {
            return Ok(());
        };
        if self.no_code || !folder.join(file).is_file() {
            let folder = folder.display();
            return Err(UsageError(format!(
                "--requirements {file}: expected a file of the folder that is sent ({folder})"
            )));
        }
        Ok(())
    }

    /// Checks the document without its code, which is not uploaded, and prints the document.
    async fn check(&self, session: &CliSession, document: &Value) -> anyhow::Result<()> {
        let mut checked = document.clone();
        let job = match self.study {
            Some(_) => checked.get_mut("job"),
            None => Some(&mut checked),
        };
        let command = job.and_then(|job| job.get_mut("command")?.as_object_mut());
        command.map(|command| command.remove("code"));
        if self.study.is_some() {
            session.client.dry_run_study(&checked).await?;
        } else {
            session.client.dry_run(&checked).await?;
        }
        let text = serde_norway::to_string(document)?;
        session.output.print(document, |_| text)?;
        note!("muster: this would be submitted; nothing was changed");
        Ok(())
    }

    /// Returns the given fields of `resources.worker`.
    fn resources(&self) -> Map<String, Value> {
        let kinds = Some(&self.gpu_kinds).filter(|kinds| !kinds.is_empty());
        let fields = [
            ("gpus", self.gpus.map(Value::from)),
            ("cpu_milli", self.cpus.map(Value::from)),
            ("memory_bytes", self.memory.clone().map(Value::from)),
            ("gpu_kinds", kinds.map(|kinds| json!(kinds))),
        ];
        let given = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }

    /// Returns the job document without code.
    fn document(&self) -> anyhow::Result<Value> {
        let worker = self.resources();
        let WorkerRange { min, max } = self.workers;
        let name = match &self.name {
            Some(name) => name.clone(),
            None => name_of(&self.argv),
        };
        let mut document = json!({
            "version": "muster/v1",
            "name": name,
            "command": { "argv": self.argv },
            "scale": { "workers": { "min": min, "max": max } },
        });
        if !worker.is_empty() {
            document["resources"] = json!({ "worker": worker });
        }
        if let Some(interactive) = &self.interactive {
            document["interactive"] = json!(interactive);
            // The user sees why the program ended, and starts it again.
            document["retries"] = json!(0);
        }
        if let Some(image) = &self.image {
            document["pod"] = json!({ "image": image });
        }
        if let Some(requirements) = &self.requirements {
            document["command"]["python"] = json!({ "requirements": requirements });
        }
        if !self.keep.is_empty() {
            document["command"]["keep"] = json!(self.keep);
        }
        for metric in &self.metrics {
            let (name, pattern) = metric.split_once('=').unwrap_or((metric, ""));
            document["command"]["metrics"][name] = json!(pattern);
        }
        for named in &self.env {
            let (name, value) = variable(named)?;
            document["command"]["env"][name] = json!(value);
        }
        let secrets = self.secrets();
        if !secrets.is_empty() {
            document["command"]["secrets"] = json!(secrets);
        }
        Ok(document)
    }

    /// Returns the secrets of the document.
    fn secrets(&self) -> Vec<Value> {
        let variables = self.secrets.iter().map(|text| match text.split_once('=') {
            Some((name, variable)) => json!({ "name": name, "env": variable }),
            None => json!({ "name": text }),
        });
        let files = self.secret_files.iter().map(|text| {
            let (name, file) = text.split_once('=').unwrap_or((text, text));
            json!({ "name": name, "file": file })
        });
        variables.chain(files).collect()
    }
}

/// Returns the name and value of `NAME=VALUE`, or of a variable of this shell.
fn variable(named: &str) -> Result<(&str, String), UsageError> {
    if let Some((name, value)) = named.split_once('=') {
        return Ok((name, value.to_owned()));
    }
    let value = std::env::var(named).map_err(|_| {
        UsageError(format!(
            "--env {named}: this shell has no variable {named}; give it as {named}=VALUE"
        ))
    })?;
    Ok((named, value))
}

/// Returns a job's name from its program: that of the first script, of the module after `-m`, or of
/// the program itself.
#[must_use]
pub fn name_of(argv: &[String]) -> String {
    let script = argv
        .iter()
        .find(|word| is_script(word))
        .map(|word| stem(word));
    let option = argv.iter().position(|word| word == "-m");
    let module = option.and_then(|at| argv.get(at + 1)).cloned();
    let named = script
        .or(module)
        .or_else(|| argv.first().map(|word| stem(word)));
    let named = named.unwrap_or_default().to_lowercase();
    let plain: String = named
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .take(MAX_NAME)
        .collect();
    let name = plain.trim_matches('-');
    if name.is_empty() { UNNAMED } else { name }.to_owned()
}

fn is_script(word: &str) -> bool {
    let extension = Path::new(word).extension();
    extension.is_some_and(|extension| extension == "py" || extension == "sh")
}

fn stem(word: &str) -> String {
    let stem = Path::new(word).file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// Returns the study with the job. Each parameter without a `field` replaces the argument `{name}`.
fn in_study(mut study: Value, mut job: Value) -> Result<Value, UsageError> {
    let argv = job["command"]["argv"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let parameters = study
        .pointer_mut("/search/parameters")
        .and_then(Value::as_array_mut)
        .ok_or_else(|| UsageError("--study: the document has no search.parameters".to_owned()))?;
    for parameter in parameters {
        let Some(fields) = parameter.as_object_mut() else {
            continue;
        };
        let Some(name) = fields.get("name").and_then(Value::as_str) else {
            continue;
        };
        if fields.contains_key("field") {
            continue;
        }
        let placeholder = format!("{{{name}}}");
        let at = argv
            .iter()
            .position(|word| word.as_str() == Some(&placeholder));
        let at = at.ok_or_else(|| {
            UsageError(format!(
                "--study: the parameter {name} has no field, and no argument of the program is {placeholder}"
            ))
        })?;
        fields.insert("field".to_owned(), json!(format!("command.argv[{at}]")));
    }
    let named = job.as_object_mut().map(|job| {
        job.remove("version");
        job.remove("name")
    });
    let study_fields = study
        .as_object_mut()
        .ok_or_else(|| UsageError("--study: the document is no map of fields".to_owned()))?;
    if study_fields.contains_key("job") {
        return Err(UsageError(
            "--study: the document has a job already; muster study create takes it".to_owned(),
        ));
    }
    study_fields.entry("version").or_insert(json!("muster/v1"));
    study_fields.entry("kind").or_insert(json!("study"));
    if let Some(name) = named.flatten() {
        study_fields.entry("name").or_insert(name);
    }
    study_fields.insert("job".to_owned(), job);
    Ok(study)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn job_is_named_after_its_program() {
        for (argv, name) in [
            ("python train.py --lr 0.1", "train"),
            ("python3 -u src/My_Model.py", "my-model"),
            ("python -m torch.distributed.run train.py", "train"),
            ("python -m project.fit --lr 1", "project-fit"),
            ("torchrun --nproc-per-node 2 fit.py", "fit"),
            ("bash -c ls", "bash"),
            ("./___", "run"),
        ] {
            assert_eq!(name_of(&words(argv)), name, "{argv}");
        }
    }

    #[test]
    fn workers_are_a_number_or_a_range() {
        assert_eq!(workers("4"), Ok(WorkerRange { min: 4, max: 4 }));
        assert_eq!(workers("1:8"), Ok(WorkerRange { min: 1, max: 8 }));
        for wrong in ["0", "8:1", "a", "1:", ":2", "1:2:3", "-1"] {
            assert!(workers(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cores_are_a_number_above_zero() {
        assert_eq!((cpu_milli("4"), cpu_milli("0.5")), (Ok(4_000), Ok(500)));
        for wrong in ["0", "-1", "NaN", "inf", "4c", ""] {
            assert!(cpu_milli(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parameter_of_a_study_replaces_its_argument() {
        let study = json!({ "search": { "parameters": [{ "name": "lr", "type": "float" },
            { "name": "width", "field": "command.env.WIDTH" }] } });
        let job = json!({ "version": "muster/v1", "name": "train",
            "command": { "argv": ["python", "train.py", "--lr", "{lr}"] } });
        let whole = in_study(study.clone(), job).expect("a study");
        assert_eq!(whole["search"]["parameters"][0]["field"], "command.argv[3]");
        assert_eq!(
            whole["search"]["parameters"][1]["field"],
            "command.env.WIDTH"
        );
        assert_eq!(
            (&whole["name"], &whole["kind"]),
            (&json!("train"), &json!("study"))
        );
        assert!(whole["job"].get("name").is_none() && whole["job"].get("version").is_none());
        let other = json!({ "name": "x", "command": { "argv": ["python", "--lr={lr}"] } });
        let error = in_study(study, other).expect_err("no argument").to_string();
        assert!(error.contains("{lr}"), "{error}");
    }
}
