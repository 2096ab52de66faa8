//! `muster tenants` and `muster tokens`: tenants with their quotas, weights and limits, and tokens.

use super::{
    CliSession, UsageError, quota_preview, tenant_limits, tenant_lookup::find, tenant_pods,
    tenant_preemption,
};
use crate::clock;
use crate::output::{age, counted, line, table};
use clap::{Args, Subcommand, ValueEnum};
use muster_client::{JobQuery, TokenQuery};
use muster_model::id::TokenId;
use muster_model::job::JobPhase;
use muster_model::tenant::{Access, EQUAL_WEIGHT, TenantPods, TenantPreemption};
use muster_model::view::{NewTenant, NewToken, TenantChange, TenantView, TokenView, UserView};
use time::Duration;

/// Maximum number of units (minutes, hours, days or weeks) in a token's lifetime.
const LONGEST: u32 = 5_000;

#[derive(Debug, Args)]
pub struct TenantsArgs {
    #[command(subcommand)]
    verb: Option<TenantVerb>,
}

#[derive(Debug, Subcommand)]
enum TenantVerb {
    /// List tenants, their quotas and weights (the default)
    List,
    /// Create a tenant
    Create {
        name: String,
        /// Maximum number of GPUs (or CPU slots) that its jobs hold at one time [default: no
        /// limit].
        #[arg(long, value_name = "GPUS")]
        quota: Option<u32>,
        /// Weight: share of the cluster relative to the other tenants' weights.
        #[arg(long, default_value_t = EQUAL_WEIGHT)]
        weight: f64,
    },
    /// Show, set or remove a tenant's quota
    Quota {
        name: String,
        /// Maximum number of GPUs that its jobs hold at one time, or `none` for no limit; without
        /// it nothing is changed.
        #[arg(value_name = "GPUS|none", value_parser = limit)]
        gpus: Option<QuotaArg>,
        /// Do not ask for confirmation before a lower quota stops running jobs.
        #[arg(short, long, requires = "gpus")]
        yes: bool,
    },
    /// Set a tenant's weight: a tenant with twice the weight has twice the share of the cluster
    Weight {
        name: String,
        /// Weight, 0.001 to 1000; an ordinary tenant has 1.
        weight: f64,
    },
    /// Show or set what the pods of its tasks may use, where tasks are pods
    Pods(tenant_pods::TenantPodsArgs),
    /// Show or set limits on its open work and on the stored volume per job
    Limits(Box<tenant_limits::TenantLimitsArgs>),
    /// Show or set caps on what its jobs may demand in `preemption`
    Preemption(tenant_preemption::TenantPreemptionArgs),
    /// Show or set whether measured speeds of its job families are shared with other tenants
    Families {
        name: String,
        /// `shared`: its measurements count for equal families of other tenants that share, and
        /// theirs for its own; `own`: they do not. Without it nothing is changed.
        #[arg(value_name = "shared|own")]
        families: Option<FamilySharing>,
    },
    /// Show or set whether members may open remote sessions (exec, port-forward, cp) in tasks
    Interactive {
        name: String,
        /// Without it nothing is changed.
        #[arg(value_name = "allowed|refused")]
        sessions: Option<RemoteSessions>,
    },
    /// Delete a tenant whose jobs and studies have all ended; their records are kept
    Delete { name: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FamilySharing {
    Shared,
    Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RemoteSessions {
    Allowed,
    Refused,
}

/// A quota, or none.
#[derive(Debug, Clone, Copy)]
struct QuotaArg(Option<u32>);

fn limit(text: &str) -> Result<QuotaArg, String> {
    match text {
        "none" => Ok(QuotaArg(None)),
        _ => match text.parse() {
            Ok(gpus) => Ok(QuotaArg(Some(gpus))),
            Err(_) => Err("expected a number of GPUs, or none".to_owned()),
        },
    }
}

#[derive(Debug, Args)]
pub struct TokensArgs {
    #[command(subcommand)]
    verb: Option<TokenVerb>,
    #[command(flatten)]
    of: TokenSelection,
}

/// Selection of the listed tokens.
#[derive(Debug, Default, Args)]
struct TokenSelection {
    /// Tokens of this tenant; for administrators [default: your own].
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    tenant: Option<String>,
    /// Tokens of all tenants; for administrators.
    #[arg(long)]
    all: bool,
}

impl TokenSelection {
    fn is_own(&self) -> bool {
        self.tenant.is_none() && !self.all
    }
}

#[derive(Debug, Subcommand)]
enum TokenVerb {
    /// List the tenant's tokens (the default)
    List(TokenSelection),
    /// Create a token; its secret is shown only once
    Create {
        /// Name of the token.
        name: String,
        /// Allow it to manage nodes and tenants; for administrators.
        #[arg(long)]
        admin: bool,
        /// User of the token, created if necessary; for administrators [default: yourself].
        #[arg(long)]
        user: Option<String>,
        /// Tenant of the token; for administrators [default: your own].
        #[arg(long)]
        tenant: Option<String>,
        /// Lifetime: 12h, 30d, 8w [default: unlimited].
        #[arg(long, value_name = "DURATION", value_parser = lifetime)]
        expires: Option<Duration>,
    },
    /// Revoke a token, but not the last administrator token of the cluster
    Revoke {
        #[arg(required_unless_present = "user", conflicts_with = "user")]
        id: Option<TokenId>,
        /// Revoke all tokens of this user; administrators may name any user, others only
        /// themselves.
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Tenant of that user; for administrators [default: your own].
        #[arg(long, value_name = "NAME", requires = "user")]
        tenant: Option<String>,
    },
    /// List users and their numbers of valid tokens; for administrators
    Users,
}

impl TenantsArgs {
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        match self.verb.unwrap_or(TenantVerb::List) {
            TenantVerb::List => {
                let tenants = session.client.tenants().await?;
                session.output.print(&tenants, |tenants| {
                    table(
                        ["name", "gpu quota", "in use", "open jobs", "weight", "id"],
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
                        pods: TenantPods::default(),
                        preemption: TenantPreemption::default(),
                        shares_families: false,
                        interactive: false,
                    })
                    .await?;
                session
                    .output
                    .print(&tenant, |tenant| format!("tenant {} made", tenant.name))
            }
            TenantVerb::Quota { name, gpus, yes } => {
                let tenant = match gpus {
                    Some(QuotaArg(gpus)) => set_quota(session, &name, gpus, yes).await?,
                    None => find(session, &name).await?,
                };
                session.output.print(&tenant, |tenant| {
                    let used = in_use(tenant.gpus_in_use, tenant.jobs_in_use);
                    let quota = quota(tenant.gpu_quota);
                    format!("quota of {}: {quota}; in use: {used}", tenant.name)
                })
            }
            TenantVerb::Pods(pods) => pods.run(session).await,
            TenantVerb::Limits(limits) => limits.run(session).await,
            TenantVerb::Preemption(caps) => caps.run(session).await,
            TenantVerb::Families { name, families } => {
                let tenant = match families {
                    Some(sharing) => {
                        let change = TenantChange {
                            shares_families: Some(sharing == FamilySharing::Shared),
                            ..TenantChange::default()
                        };
                        session.client.change_tenant(&name, &change).await?
                    }
                    None => find(session, &name).await?,
                };
                session.output.print(&tenant, |tenant| {
                    let sharing = if tenant.shares_families {
                        "shared with the other tenants that share"
                    } else {
                        "its own"
                    };
                    format!("families of {}: {sharing}", tenant.name)
                })
            }
            TenantVerb::Interactive { name, sessions } => {
                let tenant = match sessions {
                    Some(sessions) => {
                        let change = TenantChange {
                            interactive: Some(sessions == RemoteSessions::Allowed),
                            ..TenantChange::default()
                        };
                        session.client.change_tenant(&name, &change).await?
                    }
                    None => find(session, &name).await?,
                };
                session.output.print(&tenant, |tenant| {
                    let sessions = if tenant.interactive {
                        "allowed"
                    } else {
                        "refused"
                    };
                    format!("remote sessions of {}: {sessions}", tenant.name)
                })
            }
            TenantVerb::Delete { name } => {
                session.client.delete_tenant(&name).await?;
                line(&format!(
                    "tenant {name} deleted: its tokens are refused within five seconds. Its jobs with their events, logs, curves and checkpoints are kept, \
                     and nobody else gets its name"
                ))
            }
            TenantVerb::Weight { name, weight } => {
                let change = TenantChange {
                    weight: Some(weight),
                    ..TenantChange::default()
                };
                let tenant = session.client.change_tenant(&name, &change).await?;
                session.output.print(&tenant, |tenant| {
                    format!("weight of {}: {}", tenant.name, tenant.weight)
                })
            }
        }
    }
}

impl TokensArgs {
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
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
                expires,
            } => {
                let access = if admin { Access::Admin } else { Access::Member };
                let new = NewToken {
                    name,
                    access,
                    user,
                    tenant,
                    expires_at: expires.map(|after| clock::now() + after),
                };
                let token = session.client.create_token(&new).await?;
                session.output.print(&token, |token| token.secret.clone())
            }
            TokenVerb::Revoke { id, user, tenant } => {
                if let Some(id) = id {
                    session.client.revoke_token(id).await?;
                    line(&format!("token {id} revoked"))?;
                }
                let Some(user) = user else { return Ok(()) };
                let tenant = tenant.as_deref();
                let done = session.client.revoke_tokens_of(&user, tenant).await?;
                session.output.print(&done, |done| {
                    format!("{} tokens of {user} revoked", done.revoked)
                })
            }
            TokenVerb::Users => {
                let users = session.client.users().await?;
                session.output.print(&users, |users| {
                    table(
                        ["user", "tenant", "tokens", "age"],
                        users.iter().map(user_row),
                    )
                })
            }
        }
    }
}

const EXPECTED_LIFETIME: &str = "expected a whole number of m, h, d or w, such as 30d";

/// Parses the lifetime of a token.
fn lifetime(text: &str) -> Result<Duration, String> {
    let unit = text.chars().next_back().ok_or(EXPECTED_LIFETIME)?;
    let minutes: i64 = match unit {
        'm' => 1,
        'h' => 60,
        'd' => 24 * 60,
        'w' => 7 * 24 * 60,
        _ => return Err(EXPECTED_LIFETIME.to_owned()),
    };
    let count: u32 = text[..text.len() - unit.len_utf8()]
        .parse()
        .map_err(|_| EXPECTED_LIFETIME)?;
    match count {
        1..=LONGEST => Ok(Duration::minutes(minutes * i64::from(count))),
        _ => Err(format!("expected 1 to {LONGEST} of them")),
    }
}

/// Sets a quota. Asks for confirmation if running jobs would be stopped or shrunk.
async fn set_quota(
    session: &CliSession,
    name: &str,
    gpus: Option<u32>,
    yes: bool,
) -> anyhow::Result<TenantView> {
    let before = find(session, name).await?;
    if let Some(gpus) = gpus.filter(|gpus| *gpus < before.gpus_in_use && !yes) {
        let query = JobQuery {
            // A suspended job holds no GPU and is not affected.
            phases: vec![JobPhase::Starting, JobPhase::Running],
            limit: Some(500),
            ..JobQuery::default()
        };
        let theirs = session.client.for_tenant(name)?;
        let jobs = theirs.jobs(&query).await?.items;
        quota_preview::confirm(&before, gpus, &jobs)?;
    }
    let change = TenantChange {
        gpu_quota: Some(gpus),
        ..TenantChange::default()
    };
    Ok(session.client.change_tenant(name, &change).await?)
}

fn tenant_row(tenant: &TenantView) -> [String; 6] {
    [
        tenant.name.clone(),
        quota(tenant.gpu_quota),
        in_use(tenant.gpus_in_use, tenant.jobs_in_use),
        tenant_limits::open_jobs(&tenant.limits, &tenant.used),
        tenant.weight.to_string(),
        tenant.id.to_string(),
    ]
}

pub fn quota(gpus: Option<u32>) -> String {
    gpus.map_or_else(|| "no limit".to_owned(), |gpus| counted(gpus, "GPU"))
}

pub fn in_use(gpus: u32, jobs: u32) -> String {
    match gpus {
        0 => counted(0, "GPU"),
        _ => format!("{} in {}", counted(gpus, "GPU"), counted(jobs, "job")),
    }
}

fn user_row(user: &UserView) -> [String; 4] {
    [
        user.name.clone(),
        user.tenant.clone(),
        user.tokens.to_string(),
        age(user.created_at, clock::now()),
    ]
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

#[cfg(test)]
mod tests {
    use super::lifetime;
    use time::Duration;

    #[test]
    fn token_lifetime_is_a_number_with_a_unit() {
        assert_eq!(lifetime("30d"), Ok(Duration::days(30)));
        assert_eq!(lifetime("90m"), Ok(Duration::minutes(90)));
        assert_eq!(lifetime("8w"), Ok(Duration::weeks(8)));
        for wrong in ["", "d", "0d", "1.5h", "-1d", "30", "30 d", "5001w", "1é"] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }
}
