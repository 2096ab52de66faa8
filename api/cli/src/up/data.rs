//! The data folder of a local cluster: layout, secrets, lock, and the state that is kept between
//! runs of `muster up`.

use crate::clock;
use crate::config::path_variable;
use anyhow::{Context as _, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Marks a folder as Muster's, so that `--reset` never empties another one.
const MARKER: &str = "MUSTER_DATA";

/// Folder of a local cluster.
#[derive(Debug, Clone)]
pub struct DataFolder {
    root: PathBuf,
}

/// Secrets, generated once per folder and readable only by their owner.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    pub postgres_password: String,
    pub api_password: String,
    pub scheduler_password: String,
    pub join_token: String,
}

/// State from which the next `muster up` continues.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalClusterState {
    pub postgres_port: Option<u16>,
    pub scheduler_port: Option<u16>,
    /// The example job, once submitted.
    pub example_job: Option<String>,
    /// The second job, for which the example shrinks, once submitted.
    pub visitor_job: Option<String>,
}

/// Lock held while this process runs the cluster. Its file names the process for `muster down`.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl DataFolder {
    /// Returns the folder: the given one, `MUSTER_DATA`, or the user's data directory. For root
    /// this is `/var/lib/muster`, because Postgres then runs as another user that cannot enter
    /// root's home.
    ///
    /// # Errors
    /// If no home directory is known.
    pub fn choose(named: Option<PathBuf>) -> anyhow::Result<Self> {
        let root = if let Some(root) = named.or_else(|| path_variable("MUSTER_DATA")) {
            root
        } else if rustix::process::geteuid().is_root() {
            PathBuf::from("/var/lib/muster")
        } else if let Some(data) = path_variable("XDG_DATA_HOME") {
            data.join("muster")
        } else {
            path_variable("HOME")
                .context("no data folder: set --data, MUSTER_DATA or HOME")?
                .join(".local/share/muster")
        };
        Ok(Self {
            root: std::path::absolute(root)?,
        })
    }

    /// Creates missing folders.
    ///
    /// # Errors
    /// If the folder cannot be written, or contains other files.
    pub fn prepare(&self) -> anyhow::Result<()> {
        let marker = self.root.join(MARKER);
        std::fs::create_dir_all(&self.root)
            .with_context(|| format!("create {}", self.root.display()))?;
        if !marker.exists() {
            if std::fs::read_dir(&self.root)?.next().is_some() {
                bail!(
                    "{} is not empty and not a Muster data folder; choose another with --data",
                    self.root.display()
                );
            }
            std::fs::write(&marker, "A local Muster cluster lives here.\n")?;
        }
        for folder in ["checkpoints", "logs", "nodes"] {
            std::fs::create_dir_all(self.root.join(folder))?;
        }
        Ok(())
    }

    /// Removes everything in the folder.
    ///
    /// # Errors
    /// If it is not a Muster data folder.
    pub fn reset(&self) -> anyhow::Result<()> {
        if !self.root.exists() {
            return Ok(());
        }
        if !self.root.join(MARKER).exists() {
            bail!(
                "{} is not a Muster data folder; nothing was removed",
                self.root.display()
            );
        }
        std::fs::remove_dir_all(&self.root)
            .with_context(|| format!("empty {}", self.root.display()))
    }

    /// # Errors
    /// If another `muster up` uses this folder.
    pub fn lock(&self) -> anyhow::Result<Lock> {
        let path = self.lock_path();
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            file.read_to_string(&mut pid)?;
            bail!(
                "a cluster already runs on {} (process {}); stop it with `muster down`",
                self.root.display(),
                pid.trim()
            );
        }
        file.set_len(0)?;
        write!(file, "{}", std::process::id())?;
        Ok(Lock { _file: file })
    }

    /// Returns the process that runs a cluster on this folder, if any.
    ///
    /// # Errors
    /// If the lock file cannot be read.
    pub fn running(&self) -> anyhow::Result<Option<i32>> {
        let Ok(mut file) = File::open(self.lock_path()) else {
            return Ok(None);
        };
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return Ok(None);
        }
        let mut pid = String::new();
        file.read_to_string(&mut pid)?;
        Ok(pid.trim().parse().ok())
    }

    /// # Errors
    /// If the secrets cannot be read, generated or written.
    pub fn secrets(&self) -> anyhow::Result<Secrets> {
        let path = self.root.join("secrets.toml");
        if path.exists() {
            return toml::from_str(&std::fs::read_to_string(&path)?)
                .with_context(|| format!("read {}", path.display()));
        }
        let secrets = Secrets {
            postgres_password: clock::secret()?,
            api_password: clock::secret()?,
            scheduler_password: clock::secret()?,
            join_token: clock::secret()?,
        };
        write_private(&path, &toml::to_string(&secrets)?)?;
        Ok(secrets)
    }

    /// # Errors
    /// If the file exists but cannot be read.
    pub fn read_state(&self) -> anyhow::Result<LocalClusterState> {
        match std::fs::read_to_string(self.state_path()) {
            Ok(text) => toml::from_str(&text).context("read up.toml in the data folder"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(LocalClusterState::default())
            }
            Err(error) => Err(error).context("read up.toml in the data folder"),
        }
    }

    /// # Errors
    /// If the file cannot be written.
    pub fn save_state(&self, state: &LocalClusterState) -> anyhow::Result<()> {
        write_private(&self.state_path(), &toml::to_string(state)?)
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn postgres(&self) -> PathBuf {
        self.root.join("postgres")
    }

    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// Returns the file with the keys of users' secrets.
    #[must_use]
    pub fn secret_keys(&self) -> PathBuf {
        self.root.join("secret-keys")
    }

    #[must_use]
    pub fn node(&self, name: &str) -> PathBuf {
        self.root.join("nodes").join(name)
    }

    #[must_use]
    pub fn log(&self, daemon: &str) -> PathBuf {
        self.root.join("logs").join(format!("{daemon}.log"))
    }

    fn lock_path(&self) -> PathBuf {
        // Beside the folder, so that `--reset` can hold it while it removes the folder.
        self.root.with_extension("lock")
    }

    fn state_path(&self) -> PathBuf {
        self.root.join("up.toml")
    }
}

/// Writes a file atomically that only its owner can read.
///
/// # Errors
/// If the folder cannot be written.
pub fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)
        .with_context(|| format!("write {}", temporary.display()))?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path).with_context(|| format!("write {}", path.display()))
}
