//! `muster init`: writes a commented job document for the program of a folder; needs no server.

mod document;
mod program;

use super::UsageError;
use crate::output::line;
use anyhow::Context as _;
use clap::Args;
use muster_model::spec::JobSpec;
use program::{Program, SearchError};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct InitArgs {
    /// Folder of the program.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// File to write, in the folder; `-` prints the document.
    #[arg(long, value_name = "FILE", default_value = "muster.yaml")]
    file: PathBuf,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// The program and its arguments [default: the training script of the folder].
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

impl InitArgs {
    /// # Errors
    /// If the folder has no program or several, or the file exists.
    pub fn run(self) -> anyhow::Result<()> {
        let found = if self.argv.is_empty() {
            Program::find(&self.dir)
        } else {
            Program::of(&self.dir, self.argv.clone())
        };
        let program = found.map_err(|error| match error {
            SearchError::Read { .. } => anyhow::Error::from(error),
            SearchError::None { .. } | SearchError::Several { .. } => {
                UsageError(error.to_string()).into()
            }
        })?;
        let text = document::of(&program, &self.file);
        check(&text)?;
        if self.file.as_os_str() == "-" {
            return line(text.trim_end());
        }
        let path = if self.dir == Path::new(".") {
            self.file.clone()
        } else {
            self.dir.join(&self.file)
        };
        self.write(&path, &text)?;
        note!("muster: {} runs {}", path.display(), program.title());
        for hint in document::next_steps(&self.dir, &path) {
            note!("muster: {hint}");
        }
        Ok(())
    }

    fn write(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).truncate(true);
        let opened = if self.force {
            options.create(true).open(path)
        } else {
            options.create_new(true).open(path)
        };
        let mut file = match opened {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let problem = format!("{} exists; --force replaces it", path.display());
                return Err(UsageError(problem).into());
            }
            opened => opened.with_context(|| format!("write {}", path.display()))?,
        };
        file.write_all(text.as_bytes())
            .with_context(|| format!("write {}", path.display()))
    }
}

/// Checks the document as the server does. The archive of the code is not known before the
/// submission.
fn check(text: &str) -> anyhow::Result<()> {
    let mut document = crate::document::parse(text)?;
    document["command"]["code"] = json!({ "archive": "0".repeat(64) });
    let spec: JobSpec = serde_json::from_value(document)?;
    spec.validate().map_err(|errors| {
        let errors = errors.iter().map(|error| {
            let (field, value, expected) = (&error.field, &error.value, &error.expected);
            format!("{field} is {value}; expected {expected}")
        });
        UsageError(errors.collect::<Vec<_>>().join("\n")).into()
    })
}
