//! Checks a token in the database, for scripts that run before the daemon.

use super::bootstrap::connect;
use crate::{auth, clock};
use anyhow::Context as _;
use clap::Args;
use muster_store::token;
use std::process::ExitCode;

/// Exit code for a token that is unknown, expired or revoked.
const REFUSED: u8 = 3;

#[derive(Debug, Args)]
pub struct CheckToken {
    /// Address of Postgres, as the owner of the schema [default: the value of --database-url]
    #[arg(long, env = "MUSTER_API_OWNER_DATABASE_URL", hide_env_values = true)]
    pub owner_database_url: Option<String>,
    /// Secret of the token
    #[arg(long, env = "MUSTER_API_TOKEN", hide_env_values = true)]
    pub token: String,
}

impl CheckToken {
    /// Checks the token.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn run(self, database_url: Option<String>) -> anyhow::Result<ExitCode> {
        let pool = connect(self.owner_database_url, database_url)?;
        let mut tx = muster_store::pool::begin(&pool)
            .await
            .context("reach the database")?;
        let found = token::authenticate(&mut tx, &auth::hash(&self.token), clock::now())
            .await
            .context("look for the token")?;
        Ok(if found.is_some() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(REFUSED)
        })
    }
}
