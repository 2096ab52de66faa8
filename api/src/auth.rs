//! Whom a request acts for: `Authorization: Bearer <secret>`.
//!
//! A request without a valid token counts for its client's address (`failures`). Known tokens are remembered for [`REMEMBERED`], so that a busy client costs no query per request. A token that is revoked
//! through this process is forgotten at once; one revoked elsewhere is refused after that time at the latest, also on streams
//! that are open.

use crate::acting;
use crate::address::Client;
use crate::clock;
use crate::failures::Reason;
use crate::problem::{Kind, Refusal};
use crate::rate::TooMany;
use crate::state::App;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use muster_model::actor::Actor;
use muster_model::id::{TenantId, TokenId};
use muster_model::tenant::Access;
use muster_store::StoreError;
use muster_store::pool::Pool;
use muster_store::token::{self, Hash, Principal};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a token that was found valid is taken for valid without asking again.
pub const REMEMBERED: Duration = Duration::from_secs(5);
/// Above this number of remembered tokens the stale ones are thrown away.
const SWEEP_AT: usize = 10_000;
/// Refused tokens that are remembered at most; above them each costs a query.
const MAX_REFUSED: usize = 10_000;

/// Who makes the request; any valid token will do.
#[derive(Debug, Clone)]
pub struct Caller {
    principal: Arc<Principal>,
    hash: Hash,
    /// The token's own tenant, whomever it acts for.
    home: TenantId,
}

/// The caller, who is an administrator.
#[derive(Debug, Clone)]
pub struct Admin(pub Caller);

/// Tokens that were asked about, so that a token costs one query in [`REMEMBERED`].
#[derive(Debug, Default)]
pub struct Tokens {
    /// Found valid then.
    known: Mutex<HashMap<Hash, (Arc<Principal>, Instant)>>,
    /// Found invalid then.
    refused: Mutex<HashMap<Hash, Instant>>,
}

impl Tokens {
    /// `None` when the token is unknown, expired or revoked.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn principal(
        &self,
        pool: &Pool,
        hash: &Hash,
    ) -> Result<Option<Arc<Principal>>, StoreError> {
        if let Some(principal) = self.remembered(hash) {
            return Ok(Some(principal));
        }
        if self.was_refused(hash) {
            return Ok(None);
        }
        let mut conn = pool.acquire().await?;
        let found = token::authenticate(&mut conn, hash, clock::now()).await?;
        drop(conn);
        let now = clock::monotonic();
        let Some(principal) = found else {
            self.refuse(hash, now);
            return Ok(None);
        };
        let principal = Arc::new(principal);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SWEEP_AT {
            known.retain(|_, (_, at)| now.duration_since(*at) < REMEMBERED);
        }
        known.insert(*hash, (principal.clone(), now));
        Ok(Some(principal))
    }

    /// Whether it was found valid once, and has not been refused since.
    #[must_use]
    pub fn is_familiar(&self, hash: &Hash) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains_key(hash)
    }

    /// It was revoked.
    pub fn forget(&self, id: TokenId) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (principal, _)| principal.token_id != id);
    }

    /// It was deleted.
    pub fn forget_tenant(&self, id: TenantId) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (principal, _)| principal.tenant_id != id);
    }

    fn refuse(&self, hash: &Hash, now: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(hash);
        drop(known);
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= MAX_REFUSED {
            refused.retain(|_, at| now.duration_since(*at) < REMEMBERED);
        }
        if refused.len() < MAX_REFUSED {
            refused.insert(*hash, now);
        }
    }

    fn was_refused(&self, hash: &Hash) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::monotonic();
        refused
            .get(hash)
            .is_some_and(|at| now.duration_since(*at) < REMEMBERED)
    }

    fn remembered(&self, hash: &Hash) -> Option<Arc<Principal>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (principal, at) = known.get(hash)?;
        (clock::monotonic().duration_since(*at) < REMEMBERED).then(|| principal.clone())
    }
}

/// The layer over everything under `/api/v1`: refuses who is unknown or asks too often, and says who it is to what follows.
pub async fn authenticate(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let client = Client::of(&request, &app.limits.trusted_proxies);
    let failed = |reason| app.failures.refuse(client, reason, &app.metrics);
    let hash = hash(bearer(request.headers()).map_err(failed)?);
    // Others behind the same address may try tokens in vain.
    if !app.tokens.is_familiar(&hash) {
        app.failures.check(client, &app.metrics)?;
    }
    let Some(principal) = app.tokens.principal(&app.pool, &hash).await? else {
        return Err(failed(Reason::Unknown));
    };
    let pace = |whose: &'static str| move |many| too_many(whose, many);
    app.token_rate
        .take(&principal.token_id)
        .map_err(pace("a token"))?;
    app.tenant_rate
        .take(&principal.tenant_id)
        .map_err(pace("all tokens of a tenant together"))?;
    let mut caller = Caller {
        home: principal.tenant_id,
        principal,
        hash,
    };
    let acting = acting::principal(&app, &caller, request.method(), request.headers()).await?;
    if let Some(acting) = acting {
        caller.principal = Arc::new(acting);
    }
    tracing::Span::current()
        .record("tenant", caller.tenant_name.as_str())
        .record("user", caller.user_name.as_str());
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// What the store knows a secret by.
#[must_use]
pub fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

fn too_many(whose: &str, TooMany { per_s, wait }: TooMany) -> Refusal {
    let detail = format!(
        "{whose} may make {per_s} requests a second; try again in {} ms",
        wait.as_millis()
    );
    Refusal::new(Kind::TooManyRequests, detail).retry_after(wait.as_secs() + 1)
}

fn bearer(headers: &HeaderMap) -> Result<&str, Reason> {
    let value = headers.get(AUTHORIZATION).ok_or(Reason::Missing)?;
    let secret = value.to_str().ok().and_then(|text| {
        let (scheme, secret) = text.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then(|| secret.trim())
            .filter(|secret| !secret.is_empty())
    });
    secret.ok_or(Reason::Malformed)
}

impl Deref for Caller {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.principal
    }
}

impl Caller {
    /// Whether the token that the request came with is still valid.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn is_valid(&self, app: &App) -> Result<bool, StoreError> {
        Ok(app.tokens.principal(&app.pool, &self.hash).await?.is_some())
    }

    /// As the history names it.
    #[must_use]
    pub fn actor(&self) -> Actor {
        Actor {
            user: self.user_name.clone(),
            as_administrator: self.tenant_id != self.home,
        }
    }

    /// The tenant of the token, which an administrator's request for another one does not change.
    #[must_use]
    pub fn home(&self) -> TenantId {
        self.home
    }

    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.access == Access::Admin
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Refusal> {
        Ok(parts
            .extensions
            .get::<Self>()
            .expect("the layer `authenticate` is over every route that asks")
            .clone())
    }
}

impl FromRequestParts<App> for Admin {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let caller = Caller::from_request_parts(parts, app).await?;
        if caller.is_admin() {
            return Ok(Self(caller));
        }
        let detail = format!(
            "{} {} needs a token with access admin; this one has member",
            parts.method,
            parts.uri.path()
        );
        Err(Refusal::new(Kind::Forbidden, detail))
    }
}
