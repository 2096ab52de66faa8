//! Requests that come again under the same `Idempotency-Key` within a day: they get the answer of the first, and nothing is done twice.
//! Claim, carry out and keep belong in one transaction.

use crate::auth::Caller;
use crate::clock;
use crate::problem::{Kind, Refusal};
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
/// How long an answer is kept for whoever sends the same key again.
const KEPT: Duration = Duration::hours(24);

/// What the client chose; unique within its tenant.
#[derive(Debug, Clone)]
pub struct Key(String);

/// Whether the request is to be carried out.
pub enum Turn {
    /// Yes; the answer is to be kept in the same transaction.
    First(Once),
    /// It was.
    Again(Answered),
}

/// A request that nobody has sent before under its key, or that has none.
#[derive(Debug)]
pub struct Once(Option<Key>);

/// The answer of the first.
#[derive(Debug)]
pub struct Answered {
    status: u16,
    body: String,
}

/// The key of a request; `None` without one.
pub fn key(headers: &HeaderMap) -> Result<Option<Key>, Refusal> {
    let Some(value) = headers.get(KEY) else {
        return Ok(None);
    };
    let visible = value
        .to_str()
        .ok()
        .filter(|text| (1..=255).contains(&text.len()));
    match visible {
        Some(text) => Ok(Some(Key(text.to_owned()))),
        None => Err(Refusal::parameter(
            "Idempotency-Key",
            &format!("{value:?}"),
            "1 to 255 visible ASCII characters",
        )),
    }
}

/// `request` is all that makes two requests the same; `what` is what one brings about, for messages.
pub async fn claim(
    conn: &mut PgConnection,
    caller: &Caller,
    key: Option<Key>,
    request: &[&[u8]],
    what: &str,
) -> Result<Turn, Refusal> {
    let Some(Key(key)) = key else {
        return Ok(Turn::First(Once(None)));
    };
    let hash = request.iter().fold(Sha256::new(), Sha256::chain_update);
    let (hash, now) = (hash.finalize().into(), clock::now());
    match idempotency::claim(conn, caller.tenant_id, &key, &hash, now, now + KEPT).await? {
        Claim::New => Ok(Turn::First(Once(Some(Key(key))))),
        Claim::Replay { status, body } => Ok(Turn::Again(Answered { status, body })),
        Claim::Mismatch => {
            let detail = format!(
                "the key {key:?} was sent with another request before; send a new key with a new {what}"
            );
            Err(Refusal::new(Kind::KeyReused, detail))
        }
    }
}

impl Once {
    /// Keeps the answer for whoever sends the request again.
    pub async fn keep(
        &self,
        conn: &mut PgConnection,
        caller: &Caller,
        status: StatusCode,
        body: &str,
    ) -> Result<(), StoreError> {
        let Some(Key(key)) = &self.0 else {
            return Ok(());
        };
        idempotency::store(conn, caller.tenant_id, key, status.as_u16(), body).await
    }
}

impl Answered {
    /// What was answered.
    pub fn read<View: DeserializeOwned>(&self) -> Option<View> {
        serde_json::from_str(&self.body).ok()
    }

    /// The answer again; `place` is the path of what it shows, if the first answer named one.
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

/// An answer in JSON, with the path of what it shows.
pub fn answer(status: StatusCode, place: Option<&str>, body: String) -> Response {
    let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
    if let Some(place) = place.and_then(|place| HeaderValue::from_str(place).ok()) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}
