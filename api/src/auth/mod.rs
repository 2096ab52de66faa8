//! Authentication: `Authorization: Bearer <secret>`.
//!
//! A request without a valid token counts for its client's address (`failures`). Valid tokens are
//! cached for [`REMEMBERED`], so that a busy client does not cost a query per request. A token that
//! is revoked through this process is refused at once. One that is revoked elsewhere is refused
//! after that time, also on open streams.

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

/// Lifetime of a cached answer about a token.
pub const REMEMBERED: Duration = Duration::from_secs(5);
/// Number of cached tokens above which stale ones are removed.
const SWEEP_AT: usize = 10_000;
/// Maximum number of refused tokens that are cached; above it each one costs a query.
const MAX_REFUSED: usize = 10_000;

/// Caller of a request, with any valid token.
#[derive(Debug, Clone)]
pub struct Caller {
    principal: Arc<Principal>,
    hash: Hash,
    /// Tenant of the token, also if the request acts for another one.
    home: TenantId,
}

/// Caller that is an administrator.
#[derive(Debug, Clone)]
pub struct Admin(pub Caller);

/// Cache of looked-up tokens: at most one query per token in [`REMEMBERED`].
#[derive(Debug, Default)]
pub struct Tokens {
    /// Valid tokens, with the time of the look-up.
    known: Mutex<HashMap<Hash, (Arc<Principal>, Instant)>>,
    /// Refused tokens, with the time of the look-up.
    refused: Mutex<HashMap<Hash, Instant>>,
}

impl Tokens {
    /// Returns `None` if the token is unknown, expired or revoked.
    ///
    /// # Errors
    /// If the store does not answer.
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

    /// Whether the token was found valid, and has not been refused since.
    #[must_use]
    pub fn is_familiar(&self, hash: &Hash) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains_key(hash)
    }

    /// Removes a revoked token from the cache.
    pub fn forget(&self, id: TokenId) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (principal, _)| principal.token_id != id);
    }

    /// Removes the tokens of a deleted tenant from the cache.
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

/// The layer around all routes under `/api/v1`. Refuses requests that are not authenticated or
/// exceed a rate; otherwise adds the caller to the request.
pub async fn authenticate(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let client = Client::of(&request, &app.limits.trusted_proxies);
    let failed = |reason| app.failures.refuse(client, reason, &app.metrics);
    let hash = hash(bearer(request.headers()).map_err(failed)?);
    // Another client behind the same address may try invalid tokens.
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

/// Returns the hash under which the store knows a secret.
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
    /// Whether the token of the request is still valid.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn is_valid(&self, app: &App) -> Result<bool, StoreError> {
        Ok(app.tokens.principal(&app.pool, &self.hash).await?.is_some())
    }

    /// Returns the caller as the history names it.
    #[must_use]
    pub fn actor(&self) -> Actor {
        Actor {
            user: self.user_name.clone(),
            as_administrator: self.tenant_id != self.home,
        }
    }

    /// Returns the tenant of the token, also if the request acts for another one.
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
