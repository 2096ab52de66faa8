//! Where the keys come from: a file, or a program such as a client of a key management service.

use crate::clock;
use crate::keyring::{KeyError, Keyring};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

/// Time for which keys are kept in memory before they are read again. A new key needs no restart.
const KEPT: Duration = Duration::from_secs(30);
/// Time limit of the command.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);

/// Setting of a daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KeySource {
    /// Secrets are refused.
    #[default]
    None,
    File(PathBuf),
    /// A program and its arguments; it prints the lines of a key file.
    Command(Vec<String>),
}

/// Keys of a daemon, read when they are needed.
#[derive(Debug, Default)]
pub struct SecretKeys {
    source: KeySource,
    /// Held during a read, so that concurrent requests run the command once.
    read: Mutex<Option<(Instant, Arc<Keyring>)>>,
}

impl SecretKeys {
    #[must_use]
    pub fn new(source: KeySource) -> Self {
        Self {
            source,
            read: Mutex::default(),
        }
    }

    /// Whether a source is set.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.source != KeySource::None
    }

    /// Returns the keys.
    ///
    /// # Errors
    /// [`KeyError`].
    pub async fn get(&self) -> Result<Arc<Keyring>, KeyError> {
        let mut read = self.read.lock().await;
        if let Some((at, keys)) = &*read
            && at.elapsed() < KEPT
        {
            return Ok(Arc::clone(keys));
        }
        let keys = Arc::new(self.source.read().await?);
        *read = Some((clock::instant(), Arc::clone(&keys)));
        Ok(keys)
    }

    /// Returns the keys; reads them again if `id` is not among the known ones.
    ///
    /// # Errors
    /// [`KeyError`].
    pub async fn with(&self, id: &str) -> Result<Arc<Keyring>, KeyError> {
        let keys = self.get().await?;
        if keys.key(id).is_some() {
            return Ok(keys);
        }
        *self.read.lock().await = None;
        self.get().await
    }

    /// Logs at the start of a daemon whether the keys are usable. A daemon serves without them.
    pub async fn check(&self) {
        if !self.is_configured() {
            return;
        }
        match self.get().await {
            Ok(keys) => tracing::info!(encrypts = keys.first_id(), "secrets have keys"),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "secrets have no keys; programs that name secrets do not start");
            }
        }
    }
}

impl KeySource {
    /// Returns the source of a daemon's settings.
    ///
    /// # Errors
    /// [`KeyError::TwoSources`].
    pub fn of(file: Option<PathBuf>, command: Option<Vec<String>>) -> Result<Self, KeyError> {
        match (file, command.filter(|argv| !argv.is_empty())) {
            (None, None) => Ok(Self::None),
            (Some(path), None) => Ok(Self::File(path)),
            (None, Some(argv)) => Ok(Self::Command(argv)),
            (Some(_), Some(_)) => Err(KeyError::TwoSources),
        }
    }

    async fn read(&self) -> Result<Keyring, KeyError> {
        let text = match self {
            Self::None => return Err(KeyError::NotConfigured),
            Self::File(path) => {
                let text = tokio::fs::read_to_string(path).await;
                text.map_err(|source| KeyError::Read {
                    from: path.display().to_string(),
                    source,
                })?
            }
            Self::Command(argv) => printed(argv).await?,
        };
        Keyring::parse(&Zeroizing::new(text))
    }
}

async fn printed(argv: &[String]) -> Result<String, KeyError> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(KeyError::NotConfigured);
    };
    let read = |source| KeyError::Read {
        from: program.clone(),
        source,
    };
    // Its standard error is the daemon's. Its standard output has the keys and is never logged.
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(COMMAND_LIMIT, output).await;
    let output = output.map_err(|_| KeyError::Slow {
        program: program.clone(),
        limit_s: COMMAND_LIMIT.as_secs(),
    })?;
    let output = output.map_err(read)?;
    if !output.status.success() {
        return Err(KeyError::Command {
            program: program.clone(),
            how: output.status.to_string(),
        });
    }
    String::from_utf8(output.stdout).map_err(|_| KeyError::Line { line: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::new_key;

    #[tokio::test]
    async fn unknown_key_id_reads_the_file_again() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("keys");
        let old = new_key("old").expect("made");
        std::fs::write(&path, old.as_bytes()).expect("written");
        let keys = SecretKeys::new(KeySource::File(path.clone()));
        assert_eq!(keys.get().await.expect("there").first_id(), "old");
        let new = new_key("new").expect("made");
        std::fs::write(&path, format!("{}\n{}", new.as_str(), old.as_str())).expect("written");
        assert_eq!(keys.get().await.expect("kept").first_id(), "old");
        assert_eq!(keys.with("new").await.expect("read").first_id(), "new");
    }

    #[tokio::test]
    async fn command_prints_keys_or_says_why_not() {
        let line = new_key("kms").expect("made");
        let run = |script: &str| {
            let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
            SecretKeys::new(KeySource::Command(argv))
        };
        let keys = run(&format!("echo {}", line.as_str()));
        assert_eq!(keys.get().await.expect("printed").first_id(), "kms");
        let failed = run("echo oops; exit 3").get().await.expect_err("failed");
        assert!(matches!(failed, KeyError::Command { .. }), "{failed}");
        assert!(!failed.to_string().contains("oops"));
        let missing = SecretKeys::new(KeySource::Command(vec!["/no/such".to_owned()]));
        assert!(matches!(missing.get().await, Err(KeyError::Read { .. })));
        assert!(matches!(
            SecretKeys::default().get().await,
            Err(KeyError::NotConfigured)
        ));
    }
}
