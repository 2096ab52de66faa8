//! Cache of looked-up tokens.

use crate::clock;
use muster_model::id::{TenantId, TokenId};
use muster_store::StoreError;
use muster_store::pool::StorePool;
use muster_store::token::{self, Principal, TokenHash};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lifetime of a cached answer about a token.
pub const REMEMBERED: Duration = Duration::from_secs(5);
/// Number of cached tokens above which stale ones are removed.
const SWEEP_AT: usize = 10_000;
/// Maximum number of refused tokens that are cached; above it each one costs a query.
const MAX_REFUSED: usize = 10_000;

/// Cache of looked-up tokens: at most one query per token in [`REMEMBERED`].
#[derive(Debug, Default)]
pub struct TokenCache {
    /// Valid tokens, with the time of the look-up.
    known: Mutex<HashMap<TokenHash, (Arc<Principal>, Instant)>>,
    /// Refused tokens, with the time of the look-up.
    refused: Mutex<HashMap<TokenHash, Instant>>,
}

impl TokenCache {
    /// Returns `None` if the token is unknown, expired or revoked.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn principal(
        &self,
        pool: &StorePool,
        hash: &TokenHash,
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
    pub fn is_familiar(&self, hash: &TokenHash) -> bool {
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

    fn refuse(&self, hash: &TokenHash, now: Instant) {
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

    fn was_refused(&self, hash: &TokenHash) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::monotonic();
        refused
            .get(hash)
            .is_some_and(|at| now.duration_since(*at) < REMEMBERED)
    }

    fn remembered(&self, hash: &TokenHash) -> Option<Arc<Principal>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (principal, at) = known.get(hash)?;
        (clock::monotonic().duration_since(*at) < REMEMBERED).then(|| principal.clone())
    }
}

/// Returns the hash under which the store knows a secret.
#[must_use]
pub fn hash(secret: &str) -> TokenHash {
    Sha256::digest(secret.as_bytes()).into()
}
