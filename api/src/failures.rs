//! Requests without a valid token: counted, logged, and limited per client address.

use crate::address::ClientAddress;
use crate::clock;
use crate::config::ClientLimits;
use crate::metrics::ApiMetrics;
use crate::problem::{ApiError, ProblemKind};
use crate::rate::{KeyedRateLimit, TooMany};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time between two log lines, so that an attacker cannot fill the log.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Number of blocked addresses above which expired ones are removed.
const SWEEP_AT: usize = 10_000;

/// Why a request has no valid token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Missing,
    Malformed,
    Unknown,
    /// The token was not looked up, because the address has made too many invalid requests.
    Limited,
}

pub struct Failures {
    rate: KeyedRateLimit<ClientAddress>,
    /// Blocked addresses.
    blocked: Mutex<HashMap<ClientAddress, Blocked>>,
    unlogged: Mutex<UnloggedFailures>,
}

#[derive(Debug, Clone, Copy)]
struct Blocked {
    until: Instant,
    per_s: u32,
}

#[derive(Debug, Default)]
struct UnloggedFailures {
    logged_at: Option<Instant>,
    /// Failures since then.
    count: u64,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
            Self::Limited => "limited",
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Self::Missing => "send the header Authorization: Bearer <token>",
            Self::Malformed => "the header Authorization is not of the form Bearer <token>",
            Self::Unknown | Self::Limited => "the token is unknown, expired or revoked",
        }
    }
}

impl Failures {
    #[must_use]
    pub fn new(limits: &ClientLimits) -> Self {
        Self {
            rate: KeyedRateLimit::new(limits.failures_per_s, limits.failures_burst),
            blocked: Mutex::default(),
            unlogged: Mutex::default(),
        }
    }

    /// Refuses the request before its token is looked up, if the address has failed too often.
    ///
    /// # Errors
    /// 429, with the time to wait.
    pub fn check(
        &self,
        client: Option<ClientAddress>,
        metrics: &ApiMetrics,
    ) -> Result<(), ApiError> {
        let Some(client) = client else { return Ok(()) };
        let now = clock::monotonic();
        let blocked = self.blocked.lock().unwrap_or_else(PoisonError::into_inner);
        let found = blocked.get(&client).copied();
        drop(blocked);
        let Some(Blocked { until, per_s }) = found.filter(|blocked| blocked.until > now) else {
            return Ok(());
        };
        self.count(Some(client), Reason::Limited, metrics);
        let wait = until.duration_since(now);
        Err(too_many(TooMany { per_s, wait }))
    }

    /// Counts a request without a valid token and returns its refusal.
    pub fn refuse(
        &self,
        client: Option<ClientAddress>,
        reason: Reason,
        metrics: &ApiMetrics,
    ) -> ApiError {
        self.count(client, reason, metrics);
        let Some(client) = client else {
            return ApiError::unauthenticated(reason.detail());
        };
        let Err(many) = self.rate.take(&client) else {
            return ApiError::unauthenticated(reason.detail());
        };
        let now = clock::monotonic();
        let mut blocked = self.blocked.lock().unwrap_or_else(PoisonError::into_inner);
        if blocked.len() >= SWEEP_AT {
            blocked.retain(|_, blocked| blocked.until > now);
        }
        let until = now + many.wait;
        let per_s = many.per_s;
        blocked.insert(client, Blocked { until, per_s });
        too_many(many)
    }

    /// Counts and logs a failure. The token is never logged.
    fn count(&self, client: Option<ClientAddress>, reason: Reason, metrics: &ApiMetrics) {
        metrics.authentication_failed(reason.as_str());
        let now = clock::monotonic();
        let mut unlogged = self.unlogged.lock().unwrap_or_else(PoisonError::into_inner);
        unlogged.count += 1;
        if unlogged
            .logged_at
            .is_none_or(|at| now.duration_since(at) >= LOG_EVERY)
        {
            let client = client.map(|client| client.0.to_string());
            let failures = unlogged.count;
            *unlogged = UnloggedFailures {
                logged_at: Some(now),
                count: 0,
            };
            drop(unlogged);
            tracing::warn!(
                client,
                reason = reason.as_str(),
                failures,
                "requests without a valid token, of which this is the last"
            );
        }
    }
}

fn too_many(TooMany { per_s, wait }: TooMany) -> ApiError {
    let detail = format!(
        "an address may make {per_s} requests a second without a valid token; try again in {} ms",
        wait.as_millis()
    );
    ApiError::new(ProblemKind::TooManyRequests, detail).retry_after(wait.as_secs() + 1)
}
