//! Settings of the command line: servers and their tokens. One TOML file that only its owner can
//! read.

use crate::up::write_private;
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7070";

/// A server and its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerContext {
    pub server: String,
    pub token: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CliConfigFile {
    /// Server of the context that is used if none is named.
    current: Option<String>,
    contexts: Vec<ServerContext>,
}

/// The file with the settings.
#[derive(Debug, Clone)]
pub struct ContextStore {
    path: PathBuf,
}

impl ContextStore {
    /// Returns `MUSTER_CONFIG`, or `muster/config.toml` in the user's config directory.
    ///
    /// # Errors
    /// If no home directory is known.
    pub fn locate() -> anyhow::Result<Self> {
        let path = if let Some(path) = path_variable("MUSTER_CONFIG") {
            path
        } else {
            let folder = path_variable("XDG_CONFIG_HOME")
                .or_else(|| Some(path_variable("HOME")?.join(".config")))
                .context("no place for the settings: set MUSTER_CONFIG or HOME")?;
            folder.join("muster/config.toml")
        };
        Ok(Self { path })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the server and token to use: the given ones (flags, `MUSTER_SERVER`,
    /// `MUSTER_TOKEN`), completed from the file.
    ///
    /// # Errors
    /// If no token is known for the server.
    pub fn resolve(
        &self,
        server: Option<String>,
        token: Option<String>,
    ) -> anyhow::Result<ServerContext> {
        let file = self.read()?;
        let server = server
            .or_else(|| file.current.clone())
            .unwrap_or_else(|| DEFAULT_SERVER.to_owned());
        let server = server.trim_end_matches('/').to_owned();
        let kept = file
            .contexts
            .into_iter()
            .find(|context| context.server == server);
        let Some(token) = token.or_else(|| kept.map(|context| context.token)) else {
            bail!(
                "no token for {server}: run `muster login --server {server}`, or set MUSTER_TOKEN"
            );
        };
        Ok(ServerContext { server, token })
    }

    /// # Errors
    /// If the file cannot be read.
    pub fn context_for(&self, server: &str) -> anyhow::Result<Option<ServerContext>> {
        Ok(self
            .read()?
            .contexts
            .into_iter()
            .find(|context| context.server == server))
    }

    /// Stores the context and makes it the current one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, context: ServerContext) -> anyhow::Result<()> {
        let mut file = self.read()?;
        file.current = Some(context.server.clone());
        file.contexts.retain(|kept| kept.server != context.server);
        file.contexts.push(context);
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("create {}", folder.display()))?;
        }
        write_private(&self.path, &toml::to_string(&file)?)
    }

    fn read(&self) -> anyhow::Result<CliConfigFile> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => {
                toml::from_str(&text).with_context(|| format!("read {}", self.path.display()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(CliConfigFile::default())
            }
            Err(error) => Err(error).with_context(|| format!("read {}", self.path.display())),
        }
    }
}

/// Returns the path in a variable of the environment; `None` if it is unset or empty.
pub fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}
