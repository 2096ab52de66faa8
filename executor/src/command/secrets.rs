//! Secrets of a program: fetched from the node's daemon by the task, as the task's own user.
//!
//! Values of variables are in no file: this process sets them when it becomes the program. The
//! shim removes the folder of secret files when the task has ended.

use super::daemon::{self, DaemonError};
use crate::folder::NodeTaskFolder;
use crate::gc::remove_folder;
use muster_model::spec::{Command, SecretRef};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use zeroize::Zeroizing;

/// Name of the folder of secret files in the task's folder.
const FOLDER: &str = "secrets";
/// Variable that names this folder.
const VARIABLE: &str = "MUSTER_SECRETS_DIR";
/// Maximum length of the answer: 64 values of 64 KiB, escaped.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// Why the secrets are not available. No text contains a value.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error("the node's daemon sends no value of secret {0}")]
    Absent(String),
    #[error("the answer of the node's daemon is not readable")]
    Unreadable,
    #[error("cannot write the file of secret {name}")]
    Write {
        name: String,
        #[source]
        source: io::Error,
    },
}

impl SecretsError {
    /// Whether another node may start the program.
    #[must_use]
    pub fn is_of_this_node(&self) -> bool {
        !matches!(self, Self::Daemon(DaemonError::Refused(_)))
    }

    fn is_transient(&self) -> bool {
        match self {
            Self::Daemon(error) => error.is_transient(),
            Self::Unreadable => true,
            Self::Absent(_) | Self::Write { .. } => false,
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    values: BTreeMap<String, String>,
}

/// Fetches the secrets, writes those that are files, and returns the command with the variables of
/// the others. The task's folder exists.
pub(super) fn receive(task: &Path, command: &Command) -> Result<Command, SecretsError> {
    let mut command = command.clone();
    if command.secrets.is_empty() {
        return Ok(command);
    }
    let values = daemon::patiently(SecretsError::is_transient, || daemon::block_on(fetch()))?;
    let variables = lay_out(&task.join(FOLDER), &command.secrets, &values)?;
    command.env.extend(variables);
    Ok(command)
}

/// Returns the value of a secret that the command has received.
pub(super) fn value(task: &Path, command: &Command, name: &str) -> io::Result<String> {
    let absent = || io::Error::from(io::ErrorKind::NotFound);
    let mut secrets = command.secrets.iter();
    let secret = secrets
        .find(|secret| secret.name == name)
        .ok_or_else(absent)?;
    match (secret.variable(), &secret.file) {
        (None, Some(file)) => std::fs::read_to_string(task.join(FOLDER).join(file)),
        (variable, _) => {
            let variable = variable.unwrap_or(&secret.name);
            command.env.get(variable).cloned().ok_or_else(absent)
        }
    }
}

async fn fetch() -> Result<BTreeMap<String, String>, SecretsError> {
    let body = daemon::get("/muster/v1/secrets").await?;
    let bytes = axum::body::to_bytes(body, MAX_ANSWER_BYTES).await;
    let bytes = Zeroizing::new(Vec::from(bytes.map_err(|_| SecretsError::Unreadable)?));
    // The error of the parser would quote parts of a value.
    let answer: Answer = serde_json::from_slice(&bytes).map_err(|_| SecretsError::Unreadable)?;
    Ok(answer.values)
}

/// Removes the secret files of a task that has ended. The rest of its folder follows later.
pub(crate) fn remove(folder: &NodeTaskFolder) {
    match remove_folder(&folder.path().join(FOLDER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            eprintln!("secret files of the task are left until its folder is removed: {error}");
        }
        _ => {}
    }
}

/// Writes the files and returns the variables.
fn lay_out(
    folder: &Path,
    secrets: &[SecretRef],
    values: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, SecretsError> {
    let mut variables = BTreeMap::new();
    for secret in secrets {
        let value = values.get(&secret.name);
        let value = value.ok_or_else(|| SecretsError::Absent(secret.name.clone()))?;
        match (secret.variable(), &secret.file) {
            (None, Some(file)) => {
                write(folder, file, value).map_err(|source| SecretsError::Write {
                    name: secret.name.clone(),
                    source,
                })?;
                variables.insert(VARIABLE.to_owned(), folder.display().to_string());
            }
            (variable, _) => {
                let variable = variable.unwrap_or(&secret.name).to_owned();
                variables.insert(variable, value.clone());
            }
        }
    }
    Ok(variables)
}

fn write(folder: &Path, file: &str, value: &str) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o400)
        .open(folder.join(file))?;
    file.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn secrets() -> Vec<SecretRef> {
        let secrets = json!([
            { "name": "HF_TOKEN" }, { "name": "wandb-key", "env": "WANDB_API_KEY" }, { "name": "ssh", "file": "id" },
        ]);
        serde_json::from_value(secrets).expect("secrets")
    }

    #[test]
    fn values_become_variables_and_private_files() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join(FOLDER);
        let values = [("HF_TOKEN", "a"), ("wandb-key", "b"), ("ssh", "c\n")];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let variables = lay_out(&folder, &secrets(), &BTreeMap::from(values)).expect("all there");
        assert_eq!(variables["HF_TOKEN"], "a");
        assert_eq!(variables["WANDB_API_KEY"], "b");
        assert_eq!(variables[VARIABLE], folder.display().to_string());
        assert_eq!(variables.len(), 3);
        let file = folder.join("id");
        assert_eq!(fs::read_to_string(&file).expect("there"), "c\n");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(&folder)), (0o400, 0o700));
    }

    #[test]
    fn absent_value_is_named() {
        let place = tempfile::tempdir().expect("a folder");
        let error = lay_out(place.path(), &secrets(), &BTreeMap::new());
        let error = error.expect_err("nothing is there");
        assert!(error.to_string().contains("HF_TOKEN"), "{error}");
    }
}
