//! Creates the first tenant, user and token, and prints the token's secret, because all other ways
//! to create a token need one. Tenant and user are created only if they are missing. A token is
//! created each time, because secrets are not stored.
//!
//! A deleted tenant is restored: its administrator may have no other access, and the name is not
//! free for another tenant.

use crate::clock;
use crate::token::wire;
use anyhow::{Context as _, anyhow};
use clap::Args;
use muster_model::id::TenantId;
use muster_model::spec::is_dns_label;
use muster_model::tenant::{Access, Tenant};
use muster_store::pool::{self, StorePool};
use muster_store::token::{self, NewTokenRecord};
use muster_store::user::{self, User};
use muster_store::{PgConnection, tenant, tenant_scope};
use time::OffsetDateTime;

#[derive(Debug, Args)]
pub struct Bootstrap {
    /// Address of Postgres, as the owner of the schema [default: the value of --database-url]
    #[arg(long, env = "MUSTER_API_OWNER_DATABASE_URL", hide_env_values = true)]
    pub owner_database_url: Option<String>,
    /// Name of the tenant
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Name of the user
    #[arg(long, default_value = "admin")]
    pub user: String,
    /// Name of the token
    #[arg(long, default_value = "bootstrap")]
    pub token_name: String,
    /// Create a token for the jobs of its tenant only
    #[arg(long)]
    pub member: bool,
    /// Allow remote sessions in the tasks of a tenant that is created: exec, port-forward and cp
    #[arg(long)]
    pub interactive: bool,
}

impl Bootstrap {
    /// Creates what is missing and prints the secret.
    ///
    /// # Errors
    /// If the database refuses.
    pub async fn run(self, database_url: Option<String>) -> anyhow::Result<()> {
        anyhow::ensure!(
            is_dns_label(&self.tenant),
            "a tenant's name is of a-z, 0-9 and '-', at most 63 of them"
        );
        let pool = connect(self.owner_database_url, database_url)?;
        let now = clock::now();
        let mut tx = pool::begin(&pool).await.context("reach the database")?;
        tenant_scope::admin(&mut tx).await?;
        let tenant_id = match tenant::by_name(&mut tx, &self.tenant)
            .await
            .context("look for the tenant")?
        {
            Some(found) => found.id,
            None => match back(&mut tx, &self.tenant, now).await? {
                Some(id) => id,
                None => created(&mut tx, &self.tenant, self.interactive, now).await?,
            },
        };
        tenant_scope::tenant(&mut tx, tenant_id).await?;
        let user_id = match user::by_name(&mut tx, tenant_id, &self.user)
            .await
            .context("look for the user")?
        {
            Some(found) => found.id,
            None => {
                let new = User {
                    id: clock::new_id().into(),
                    tenant_id,
                    name: self.user.clone(),
                };
                user::create(&mut tx, &new, now)
                    .await
                    .context("create the user")?;
                new.id
            }
        };
        let (secret, hash) = wire::secret()
            .map_err(|_| anyhow!("the operating system has no randomness to give"))?;
        let access = if self.member {
            Access::Member
        } else {
            Access::Admin
        };
        let id = clock::new_id().into();
        let new = NewTokenRecord {
            id,
            tenant_id,
            user_id,
            name: self.token_name,
            access,
            hash,
            expires_at: None,
        };
        token::create(&mut tx, &new, now)
            .await
            .context("create the token")?;
        tx.commit().await.context("commit")?;
        println!("{secret}");
        Ok(())
    }
}

async fn created(
    conn: &mut PgConnection,
    name: &str,
    interactive: bool,
    now: OffsetDateTime,
) -> anyhow::Result<TenantId> {
    let new = Tenant {
        id: clock::new_id().into(),
        name: name.to_owned(),
        gpu_quota: None,
        weight: muster_model::tenant::EQUAL_WEIGHT,
        pods: muster_model::tenant::TenantPods::default(),
        preemption: muster_model::tenant::TenantPreemption::default(),
        shares_families: false,
        interactive,
    };
    tenant::create(conn, &new, now)
        .await
        .context("create the tenant")?;
    Ok(new.id)
}

/// Restores a deleted tenant of this name; its earlier tokens stay refused. `None` if there is
/// none.
async fn back(
    conn: &mut PgConnection,
    name: &str,
    now: OffsetDateTime,
) -> anyhow::Result<Option<TenantId>> {
    let revived = tenant::revive(conn, name)
        .await
        .context("bring the tenant back")?;
    let Some(id) = revived else { return Ok(None) };
    tenant_scope::tenant(conn, id).await?;
    token::revoke_all(conn, id, now)
        .await
        .context("revoke the tokens that it had")?;
    eprintln!(
        "tenant {name} had been deleted and is there again; the tokens that it had stay refused"
    );
    Ok(Some(id))
}

/// Connects as the owner if its address is given, otherwise with the daemon's own role.
pub(super) fn connect(owner: Option<String>, own: Option<String>) -> anyhow::Result<StorePool> {
    match (owner, own) {
        (Some(url), _) => pool::owner(&url, 1).context("read the database's address"),
        (None, Some(url)) => pool::api(&url, 1).context("read the database's address"),
        (None, None) => Err(anyhow!(
            "no database: give --owner-database-url or --database-url"
        )),
    }
}
