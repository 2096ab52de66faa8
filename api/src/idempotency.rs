//! Requests with an `Idempotency-Key`: a repetition within a day gets the answer of the first
//! request and has no effect. Claim, effect and stored answer must be in one transaction.

use crate::auth::Caller;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use muster_store::idempotency::{self, Claim};
use muster_store::{PgConnection, StoreError};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use time::Duration;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Lifetime of a stored answer.
const KEPT: Duration = Duration::hours(24);

/// Key that the client chose; unique within its tenant.
#[derive(Debug, Clone)]
pub struct IdempotencyKey(String);

/// Whether the request must be carried out.
pub enum IdempotencyCheck {
    /// It must; its answer is stored in the same transaction.
    First(IdempotentRequest),
    /// It was carried out before.
    Again(StoredResponse),
}

/// The first request under its key, or a request without a key.
#[derive(Debug)]
pub struct IdempotentRequest(Option<IdempotencyKey>);

/// The stored answer of the first request.
#[derive(Debug)]
pub struct StoredResponse {
    status: u16,
    body: String,
}

/// Returns the key of a request; `None` without one.
pub fn key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, ApiError> {
    let Some(value) = headers.get(KEY) else {
        return Ok(None);
    };
    let visible = value
        .to_str()
        .ok()
        .filter(|text| (1..=255).contains(&text.len()));
    match visible {
        Some(text) => Ok(Some(IdempotencyKey(text.to_owned()))),
        None => Err(ApiError::parameter(
            "Idempotency-Key",
            &format!("{value:?}"),
            "1 to 255 visible ASCII characters",
        )),
    }
}

/// Claims a key. `request` is everything that identifies the request; `what` names its effect in
/// messages.
pub async fn claim(
    conn: &mut PgConnection,
    caller: &Caller,
    key: Option<IdempotencyKey>,
    request: &[&[u8]],
    what: &str,
) -> Result<IdempotencyCheck, ApiError> {
    let Some(IdempotencyKey(key)) = key else {
        return Ok(IdempotencyCheck::First(IdempotentRequest(None)));
    };
    let hash = request.iter().fold(Sha256::new(), Sha256::chain_update);
    let (hash, now) = (hash.finalize().into(), clock::now());
    match idempotency::claim(conn, caller.tenant_id, &key, &hash, now, now + KEPT).await? {
        Claim::New => Ok(IdempotencyCheck::First(IdempotentRequest(Some(
            IdempotencyKey(key),
        )))),
        Claim::Replay { status, body } => {
            Ok(IdempotencyCheck::Again(StoredResponse { status, body }))
        }
        Claim::Mismatch => {
            let detail = format!(
                "the key {key:?} was sent with another request before; send a new key with a new {what}"
            );
            Err(ApiError::new(ProblemKind::KeyReused, detail))
        }
    }
}

impl IdempotentRequest {
    /// Stores the answer for repetitions of the request.
    pub async fn keep(
        &self,
        conn: &mut PgConnection,
        caller: &Caller,
        status: StatusCode,
        body: &str,
    ) -> Result<(), StoreError> {
        let Some(IdempotencyKey(key)) = &self.0 else {
            return Ok(());
        };
        idempotency::store(conn, caller.tenant_id, key, status.as_u16(), body).await
    }
}

impl StoredResponse {
    /// Returns the body of the stored answer.
    pub fn read<View: DeserializeOwned>(&self) -> Option<View> {
        serde_json::from_str(&self.body).ok()
    }

    /// Returns the stored answer. `place` is the path of its object, if the first answer had one.
    pub fn answer<View: DeserializeOwned>(
        self,
        place: impl Fn(View) -> Option<String>,
    ) -> Response {
        let place = self.read().and_then(place);
        let status = StatusCode::from_u16(self.status).expect("as it was kept");
        let mut response = answer(status, place.as_deref(), self.body);
        response
            .headers_mut()
            .insert(REPLAYED, HeaderValue::from_static("true"));
        response
    }
}

/// Returns an answer in JSON, with the path of its object.
pub fn answer(status: StatusCode, place: Option<&str>, body: String) -> Response {
    let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
    if let Some(place) = place.and_then(|place| HeaderValue::from_str(place).ok()) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}
