//! The authenticated caller of a request. `super::authenticate` adds it to the request, and
//! handlers receive it as an extractor.

use super::tokens::TokenCache;
use muster_model::actor::Actor;
use muster_model::id::TenantId;
use muster_model::tenant::Access;
use muster_store::StoreError;
use muster_store::pool::StorePool;
use muster_store::token::{Principal, TokenHash};
use std::ops::Deref;
use std::sync::Arc;

/// Caller with a valid token, of any access.
#[derive(Debug, Clone)]
pub struct Caller {
    /// User and tenant for which the request acts.
    principal: Arc<Principal>,
    /// Hash of the token that the request contains.
    hash: TokenHash,
    /// Tenant of the token, also if the request acts for another one.
    home: TenantId,
}

/// Caller that is an administrator.
#[derive(Debug, Clone)]
pub struct Admin(pub Caller);

impl Deref for Caller {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.principal
    }
}

impl Caller {
    /// Returns the caller that acts as its own principal. `hash` is that of its token.
    pub(super) fn new(principal: Arc<Principal>, hash: TokenHash) -> Self {
        Self {
            home: principal.tenant_id,
            principal,
            hash,
        }
    }

    /// Returns the owner of a schedule, for which the API server submits a job without a request.
    #[must_use]
    pub(crate) fn of_schedule(principal: Principal) -> Self {
        Self::new(Arc::new(principal), [0; 32])
    }

    /// Lets the request act as another principal, for impersonation.
    pub(super) fn act_as(&mut self, principal: Principal) {
        self.principal = Arc::new(principal);
    }

    /// Whether the token of the request is still valid.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn is_valid(
        &self,
        tokens: &TokenCache,
        pool: &StorePool,
    ) -> Result<bool, StoreError> {
        Ok(tokens.principal(pool, &self.hash).await?.is_some())
    }

    /// Returns the caller as events name it.
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
