//! `muster tenants` and `muster tokens`: who shares the cluster, how much of it each may hold, and with which tokens they ask.

use super::Session;
use crate::clock;
use crate::output::{age, line, table};
use clap::{Args, Subcommand};
use muster_model::id::TokenId;
use muster_model::tenant::Access;
use muster_model::view::{NewTenant, NewToken, TenantView, TokenView};

#[derive(Debug, Args)]
pub struct Tenants {
    #[command(subcommand)]
    verb: Option<TenantVerb>,
}

#[derive(Debug, Subcommand)]
enum TenantVerb {
    /// List tenants and their quotas (the default)
    List,
    /// Make a tenant
    Create {
        name: String,
        /// GPUs (or CPU slots) that its jobs may hold at once [default: no limit].
        #[arg(long, value_name = "GPUS")]
        quota: Option<u32>,
    },
    /// Set or lift a tenant's quota
    Quota {
        name: String,
        /// GPUs that its jobs may hold at once; without it the limit is lifted.
        gpus: Option<u32>,
    },
}

#[derive(Debug, Args)]
pub struct Tokens {
    #[command(subcommand)]
    verb: Option<TokenVerb>,
}

#[derive(Debug, Subcommand)]
enum TokenVerb {
    /// List the tenant's tokens (the default)
    List,
    /// Make a token; its secret is shown this once
    Create {
        /// What to call it.
        name: String,
        /// Let it manage nodes and tenants too; for administrators.
        #[arg(long)]
        admin: bool,
        /// On whose behalf, made if need be; for administrators [default: yourself].
        #[arg(long)]
        user: Option<String>,
        /// For which tenant; for administrators [default: your own].
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Refuse a token from now on
    Revoke { id: TokenId },
}

impl Tenants {
    /// # Errors
    /// What the server says.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        match self.verb.unwrap_or(TenantVerb::List) {
            TenantVerb::List => {
                let tenants = session.client.tenants().await?;
                session.output.print(&tenants, |tenants| {
                    table(["name", "gpu quota", "id"], tenants.iter().map(tenant_row))
                })
            }
            TenantVerb::Create { name, quota } => {
                let tenant = session
                    .client
                    .create_tenant(&NewTenant {
                        name,
                        gpu_quota: quota,
                    })
                    .await?;
                session
                    .output
                    .print(&tenant, |tenant| format!("tenant {} made", tenant.name))
            }
            TenantVerb::Quota { name, gpus } => {
                let tenant = session.client.set_quota(&name, gpus).await?;
                session.output.print(&tenant, |tenant| {
                    format!("quota of {}: {}", tenant.name, quota(tenant))
                })
            }
        }
    }
}

impl Tokens {
    /// # Errors
    /// What the server says.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        match self.verb.unwrap_or(TokenVerb::List) {
            TokenVerb::List => {
                let tokens = session.client.tokens().await?;
                session.output.print(&tokens, |tokens| {
                    table(
                        ["name", "user", "access", "state", "age", "id"],
                        tokens.iter().map(token_row),
                    )
                })
            }
            TokenVerb::Create {
                name,
                admin,
                user,
                tenant,
            } => {
                let access = if admin { Access::Admin } else { Access::Member };
                let new = NewToken {
                    name,
                    access,
                    user,
                    tenant,
                    expires_at: None,
                };
                let token = session.client.create_token(&new).await?;
                session.output.print(&token, |token| token.secret.clone())
            }
            TokenVerb::Revoke { id } => {
                session.client.revoke_token(id).await?;
                line(&format!("token {id} revoked"))
            }
        }
    }
}

fn tenant_row(tenant: &TenantView) -> [String; 3] {
    [tenant.name.clone(), quota(tenant), tenant.id.to_string()]
}

fn quota(tenant: &TenantView) -> String {
    tenant
        .gpu_quota
        .map_or_else(|| "no limit".to_owned(), |gpus| format!("{gpus} GPUs"))
}

fn token_row(token: &TokenView) -> [String; 6] {
    let now = clock::now();
    let state = if token.revoked_at.is_some() {
        "revoked"
    } else if token.expires_at.is_some_and(|at| at <= now) {
        "expired"
    } else {
        "good"
    };
    [
        token.name.clone(),
        token.user.clone(),
        token.access.as_str().to_owned(),
        state.to_owned(),
        age(token.created_at, now),
        token.id.to_string(),
    ]
}
