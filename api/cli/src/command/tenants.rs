//! `muster tenants` and `muster tokens`: who shares the cluster, how much of it each may hold and claim, and with which tokens they ask.

use super::{NotFound, Session, UsageError};
use crate::clock;
use crate::output::{age, line, table};
use clap::{Args, Subcommand};
use muster_client::TokenQuery;
use muster_model::id::TokenId;
use muster_model::tenant::{Access, EQUAL_WEIGHT};
use muster_model::view::{NewTenant, NewToken, TenantChange, TenantView, TokenView};

#[derive(Debug, Args)]
pub struct Tenants {
    #[command(subcommand)]
    verb: Option<TenantVerb>,
}

#[derive(Debug, Subcommand)]
enum TenantVerb {
    /// List tenants, their quotas and weights (the default)
    List,
    /// Make a tenant
    Create {
        name: String,
        /// GPUs (or CPU slots) that its jobs may hold at once [default: no limit].
        #[arg(long, value_name = "GPUS")]
        quota: Option<u32>,
        /// Its share of the cluster beside the other tenants' weights.
        #[arg(long, default_value_t = EQUAL_WEIGHT)]
        weight: f64,
    },
    /// Show, set or lift a tenant's quota
    Quota {
        name: String,
        /// GPUs that its jobs may hold at once, or `none` for no limit; without it nothing is changed.
        #[arg(value_name = "GPUS|none", value_parser = limit)]
        gpus: Option<Limit>,
    },
    /// Set a tenant's share of the cluster: twice the weight, twice the share
    Weight {
        name: String,
        /// 0.001 to 1000; an ordinary tenant has 1.
        weight: f64,
    },
}

/// A quota, or none.
#[derive(Debug, Clone, Copy)]
struct Limit(Option<u32>);

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        _ => match text.parse() {
            Ok(gpus) => Ok(Limit(Some(gpus))),
            Err(_) => Err("expected a number of GPUs, or none".to_owned()),
        },
    }
}

#[derive(Debug, Args)]
pub struct Tokens {
    #[command(subcommand)]
    verb: Option<TokenVerb>,
    #[command(flatten)]
    of: Whose,
}

/// Whose tokens are listed.
#[derive(Debug, Default, Args)]
struct Whose {
    /// Those of this tenant; for administrators [default: your own].
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    tenant: Option<String>,
    /// Those of all tenants; for administrators.
    #[arg(long)]
    all: bool,
}

impl Whose {
    fn is_own(&self) -> bool {
        self.tenant.is_none() && !self.all
    }
}

#[derive(Debug, Subcommand)]
enum TokenVerb {
    /// List the tenant's tokens (the default)
    List(Whose),
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
    /// Refuse a token from now on; administrators may revoke any but the last of theirs
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
                    table(
                        ["name", "gpu quota", "weight", "id"],
                        tenants.iter().map(tenant_row),
                    )
                })
            }
            TenantVerb::Create {
                name,
                quota,
                weight,
            } => {
                let tenant = session
                    .client
                    .create_tenant(&NewTenant {
                        name,
                        gpu_quota: quota,
                        weight,
                    })
                    .await?;
                session
                    .output
                    .print(&tenant, |tenant| format!("tenant {} made", tenant.name))
            }
            TenantVerb::Quota { name, gpus } => {
                let tenant = match gpus {
                    Some(Limit(gpus)) => {
                        let change = TenantChange {
                            gpu_quota: Some(gpus),
                            weight: None,
                        };
                        session.client.change_tenant(&name, &change).await?
                    }
                    None => {
                        let mut all = session.client.tenants().await?.into_iter();
                        let found = all.find(|tenant| tenant.name == name);
                        found.ok_or_else(|| NotFound(format!("no tenant has the name {name:?}")))?
                    }
                };
                session.output.print(&tenant, |tenant| {
                    format!("quota of {}: {}", tenant.name, quota(tenant))
                })
            }
            TenantVerb::Weight { name, weight } => {
                let change = TenantChange {
                    gpu_quota: None,
                    weight: Some(weight),
                };
                let tenant = session.client.change_tenant(&name, &change).await?;
                session.output.print(&tenant, |tenant| {
                    format!("weight of {}: {}", tenant.name, tenant.weight)
                })
            }
        }
    }
}

impl Tokens {
    /// # Errors
    /// What the server says.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        let verb = match (self.verb, self.of.is_own()) {
            (None, _) => TokenVerb::List(self.of),
            (Some(verb), true) => verb,
            (Some(_), false) => {
                let text = "--tenant and --all go after the verb, or without one";
                return Err(UsageError(text.to_owned()).into());
            }
        };
        match verb {
            TokenVerb::List(of) => {
                let query = TokenQuery {
                    tenant: of.tenant,
                    all_tenants: of.all,
                };
                let tokens = session.client.tokens(&query).await?;
                session.output.print(&tokens, |tokens| {
                    table(
                        ["name", "user", "tenant", "access", "state", "age", "id"],
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

fn tenant_row(tenant: &TenantView) -> [String; 4] {
    [
        tenant.name.clone(),
        quota(tenant),
        tenant.weight.to_string(),
        tenant.id.to_string(),
    ]
}

fn quota(tenant: &TenantView) -> String {
    tenant
        .gpu_quota
        .map_or_else(|| "no limit".to_owned(), |gpus| format!("{gpus} GPUs"))
}

fn token_row(token: &TokenView) -> [String; 7] {
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
        token.tenant.clone(),
        token.access.as_str().to_owned(),
        state.to_owned(),
        age(token.created_at, now),
        token.id.to_string(),
    ]
}
