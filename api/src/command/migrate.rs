//! Migrates the database to this version's schema, and enables the login of the daemons' roles if
//! their passwords are given.

use anyhow::Context as _;
use clap::Args;
use muster_store::migrate::{self, DaemonRole};

#[derive(Debug, Args)]
pub struct Migrate {
    /// Address of Postgres, as the owner of the schema [default: the value of --database-url]
    #[arg(long, env = "MUSTER_API_OWNER_DATABASE_URL", hide_env_values = true)]
    pub owner_database_url: Option<String>,
    /// Enable the login of the role muster_api with this password
    #[arg(long, env = "MUSTER_API_ROLE_PASSWORD", hide_env_values = true)]
    pub api_password: Option<String>,
    /// Enable the login of the role muster_scheduler with this password
    #[arg(long, env = "MUSTER_SCHEDULER_ROLE_PASSWORD", hide_env_values = true)]
    pub scheduler_password: Option<String>,
}

impl Migrate {
    /// Migrates the schema and sets passwords.
    ///
    /// # Errors
    /// If the database does not answer, or cannot be migrated by this version.
    pub async fn run(self, database_url: Option<String>) -> anyhow::Result<()> {
        let url = self
            .owner_database_url
            .or(database_url)
            .context("no database: give --owner-database-url or MUSTER_API_OWNER_DATABASE_URL")?;
        migrate::run(&url).await.context("migrate the database")?;
        for (login, password) in [
            (DaemonRole::Api, self.api_password),
            (DaemonRole::Scheduler, self.scheduler_password),
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
