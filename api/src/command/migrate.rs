//! Brings the database to this version's schema, and lets the daemons' roles sign in when their passwords are given.

use anyhow::Context as _;
use clap::Args;
use muster_store::migrate::{self, Login};

#[derive(Debug, Args)]
pub struct Migrate {
    /// Postgres, as the owner of the schema [default: the value of --database-url]
    #[arg(long, env = "MUSTER_API_OWNER_DATABASE_URL", hide_env_values = true)]
    pub owner_database_url: Option<String>,
    /// Let the role muster_api sign in with this password
    #[arg(long, env = "MUSTER_API_ROLE_PASSWORD", hide_env_values = true)]
    pub api_password: Option<String>,
    /// Let the role muster_scheduler sign in with this password
    #[arg(long, env = "MUSTER_SCHEDULER_ROLE_PASSWORD", hide_env_values = true)]
    pub scheduler_password: Option<String>,
}

impl Migrate {
    /// # Errors
    /// When the database cannot be reached, or is not this version's to change.
    pub async fn run(self, database_url: Option<String>) -> anyhow::Result<()> {
        let url = self
            .owner_database_url
            .or(database_url)
            .context("no database: give --owner-database-url or MUSTER_API_OWNER_DATABASE_URL")?;
        migrate::run(&url).await.context("migrate the database")?;
        for (login, password) in [
            (Login::Api, self.api_password),
            (Login::Scheduler, self.scheduler_password),
        ] {
            if let Some(password) = password {
                migrate::allow_login(&url, login, Some(&password))
                    .await
                    .with_context(|| format!("let {login:?} sign in"))?;
            }
        }
        tracing::info!("the schema is up to date");
        Ok(())
    }
}
