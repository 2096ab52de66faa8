//! `muster login`: checks a token and stores it.

use crate::config::{ContextStore, DEFAULT_SERVER, ServerContext};
use crate::output::{line, prompt};
use anyhow::Context as _;
use clap::Args;
use muster_client::Client;

#[derive(Debug, Args)]
pub struct LoginArgs {}

impl LoginArgs {
    /// Reads the token from `--token`, `MUSTER_TOKEN` or standard input. The latter keeps it out of
    /// the shell's history.
    ///
    /// # Errors
    /// If the server does not accept the token.
    pub async fn run(
        self,
        server: Option<String>,
        token: Option<String>,
        store: &ContextStore,
    ) -> anyhow::Result<()> {
        let server = server
            .unwrap_or_else(|| DEFAULT_SERVER.to_owned())
            .trim_end_matches('/')
            .to_owned();
        let token = match token {
            Some(token) => token,
            None => {
                prompt(&format!("token for {server}: "));
                let mut token = String::new();
                std::io::stdin()
                    .read_line(&mut token)
                    .context("read the token")?;
                token.trim().to_owned()
            }
        };
        let me = Client::new(&server, &token)?.me().await?;
        store.save(ServerContext {
            server: server.clone(),
            token,
        })?;
        line(&format!(
            "signed in to {server} as {} of tenant {}",
            me.user, me.tenant
        ))
    }
}
