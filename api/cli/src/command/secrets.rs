//! `muster secrets`: credentials of users' programs. A value is never an argument, which other
//! users of the machine can see.

use super::{CliSession, UsageError};
use crate::clock;
use crate::output::{age, table};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use muster_model::view::SecretView;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

/// Maximum length of a value; the server has the same limit.
const MAX_VALUE_BYTES: u64 = 64 << 10;

#[derive(Debug, Args)]
pub struct SecretsArgs {
    #[command(subcommand)]
    verb: Option<SecretVerb>,
}

#[derive(Debug, Subcommand)]
enum SecretVerb {
    /// List the secrets of the tenant, without their values (the default)
    List,
    /// Store a value: from standard input without its last line break, from a file, or typed
    Set {
        /// Name of the secret: letters, digits, '_', '.' and '-'.
        name: String,
        /// Store the content of this file as it is.
        #[arg(long, value_name = "FILE")]
        from_file: Option<PathBuf>,
    },
    /// Delete a secret
    Delete {
        name: String,
        /// Delete it although open jobs or studies name it. Their programs fail at the next start.
        #[arg(long)]
        force: bool,
    },
}

impl SecretsArgs {
    /// # Errors
    /// If there is no value, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        match self.verb.unwrap_or(SecretVerb::List) {
            SecretVerb::List => {
                let secrets = session.client.secrets().await?;
                session.output.print(&secrets, |secrets| shown(secrets))
            }
            SecretVerb::Set { name, from_file } => {
                let value = value(&name, from_file.as_deref())?;
                let stored = session.client.set_secret(&name, &value).await?;
                session.output.print(&stored, |stored| {
                    let name = &stored.name;
                    format!(
                        "secret {name} stored (version {}); programs get it with `command.secrets`, or `muster run --secret {name}`",
                        stored.version
                    )
                })
            }
            SecretVerb::Delete { name, force } => {
                session.client.delete_secret(&name, force).await?;
                session.print_deleted(name, |name| format!("secret {name} deleted"))
            }
        }
    }
}

/// Returns the value of the file, of standard input, or what the user types.
fn value(name: &str, file: Option<&Path>) -> anyhow::Result<String> {
    let bytes = if let Some(path) = file {
        let file = std::fs::File::open(path);
        let file = file.with_context(|| format!("read {}", path.display()))?;
        limited(file).with_context(|| format!("read {}", path.display()))?
    } else if io::stdin().is_terminal() {
        note!("muster: value of secret {name}, which is not shown; end with Enter:");
        without_line_break(typed().context("read the value")?)
    } else {
        without_line_break(limited(io::stdin()).context("read standard input")?)
    };
    if bytes.is_empty() {
        let text = format!("the value of secret {name} is empty; expected 1 byte to 64 KiB");
        return Err(UsageError(text).into());
    }
    if bytes.len() as u64 > MAX_VALUE_BYTES {
        let text = format!("the value of secret {name} is longer than 64 KiB");
        return Err(UsageError(text).into());
    }
    let text = format!("the value of secret {name} is not UTF-8; encode it, for example as base64");
    String::from_utf8(bytes).map_err(|_| UsageError(text).into())
}

/// Reads one byte more than a value may have, plus a line break.
fn limited(source: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_VALUE_BYTES + 3).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn without_line_break(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    bytes
}

/// Reads a line from the terminal without showing it.
fn typed() -> anyhow::Result<Vec<u8>> {
    let before = tcgetattr(io::stdin())?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    tcsetattr(io::stdin(), OptionalActions::Flush, &before)?;
    read?;
    Ok(line.into_bytes())
}

fn shown(secrets: &[SecretView]) -> String {
    let now = clock::now();
    table(
        [
            "name",
            "version",
            "updated",
            "by",
            "open jobs",
            "open studies",
        ],
        secrets.iter().map(|secret| {
            [
                secret.name.clone(),
                secret.version.to_string(),
                age(secret.updated_at, now),
                secret.updated_by.to_string(),
                secret.open_jobs.to_string(),
                secret.open_studies.to_string(),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::without_line_break;

    #[test]
    fn only_the_last_line_break_is_removed() {
        let rest = |text: &str| without_line_break(text.as_bytes().to_vec());
        assert_eq!(rest("a\n"), b"a");
        assert_eq!(rest("a\r\n"), b"a");
        assert_eq!(rest("a\n\n"), b"a\n");
        assert_eq!(rest("a "), b"a ");
        assert_eq!(rest("\n"), b"");
    }
}
