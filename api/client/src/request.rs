//! A request and its answer.

use crate::error::ClientError;
use muster_model::id::JobId;
use muster_model::view::Problem;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Upgraded, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(5);
/// Longest time between two pieces of an answer. Streams send a heartbeat every 10 seconds; all
/// other answers begin within 30.
const SILENCE: Duration = Duration::from_secs(35);

/// Longest time of an upload; the server's limit is ten minutes.
const UPLOAD: Duration = Duration::from_secs(615);

/// A server and the token for it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// For uploads, which last longer than `SILENCE` before the answer begins.
    uploads: reqwest::Client,
    base: Url,
    /// Tenant for which an administrator acts; `None` for its own.
    tenant: Option<HeaderValue>,
    observer: Option<RequestObserver>,
}

/// Result of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestOutcome<'a> {
    pub method: &'a str,
    /// Kind of the requested object, without names: `jobs`, `nodes`.
    pub of: &'a str,
    /// `None` if no answer arrived.
    pub status: Option<u16>,
}

/// Callback for the result of each request.
#[derive(Clone)]
struct RequestObserver(Arc<dyn Fn(&RequestOutcome<'_>) + Send + Sync>);

/// A request before it is sent.
pub(crate) struct Request {
    request: RequestBuilder,
    method: Method,
    of: String,
    observer: Option<RequestObserver>,
}

impl Client {
    /// Creates a client of `server`, such as `http://127.0.0.1:7070`. Certificates of https are
    /// checked against the authorities of the system. Nothing is sent yet.
    ///
    /// # Errors
    /// [`ClientError::Address`] if the address is invalid, or the token has characters that no
    /// token has.
    pub fn new(server: &str, token: &str) -> Result<Self, ClientError> {
        let wrong = || ClientError::Address {
            what: "the server's address",
            value: server.to_owned(),
            expected: "it is such as http://127.0.0.1:7070 or https://muster.example",
        };
        let mut base = Url::parse(server).map_err(|_| wrong())?;
        let path = format!("{}/api/v1/", base.path().trim_end_matches('/'));
        if base.cannot_be_a_base() || !matches!(base.scheme(), "http" | "https") {
            return Err(wrong());
        }
        base.set_path(&path);
        let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
            ClientError::Address {
                what: "the token",
                value: "…".to_owned(),
                expected: "it is one line of visible characters",
            }
        })?;
        bearer.set_sensitive(true);
        // TLS is rustls with ring in the whole workspace. An error means that the process has
        // already chosen a provider, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let built = |silence| {
            let client = reqwest::Client::builder()
                .connect_timeout(CONNECT)
                .read_timeout(silence)
                .default_headers(HeaderMap::from_iter([(AUTHORIZATION, bearer.clone())]))
                .user_agent(concat!("muster-client/", env!("CARGO_PKG_VERSION")));
            client.build().map_err(|source| ClientError::Unreachable {
                url: server.to_owned(),
                source,
            })
        };
        Ok(Self {
            http: built(SILENCE)?,
            uploads: built(UPLOAD)?,
            base,
            tenant: None,
            observer: None,
        })
    }

    /// Returns a client that calls `observer` with the result of each of its requests.
    #[must_use]
    pub fn observed_by(
        self,
        observer: impl Fn(&RequestOutcome<'_>) + Send + Sync + 'static,
    ) -> Self {
        let observer = Some(RequestObserver(Arc::new(observer)));
        Self { observer, ..self }
    }

    /// Returns a client that acts for another tenant. For administrators.
    ///
    /// # Errors
    /// [`ClientError::Address`] if the name has characters that no name has.
    pub fn for_tenant(&self, name: &str) -> Result<Self, ClientError> {
        let value = HeaderValue::from_str(name).map_err(|_| ClientError::Address {
            what: "the tenant",
            value: name.to_owned(),
            expected: "it is one line of visible characters",
        })?;
        Ok(Self {
            tenant: Some(value),
            ..self.clone()
        })
    }

    /// Returns the address of a job's page.
    #[must_use]
    pub fn job_page(&self, id: JobId) -> String {
        let mut page = self.base.clone();
        let root = page.path().trim_end_matches("api/v1/").to_owned();
        page.set_path(&format!("{root}jobs/{id}"));
        page.to_string()
    }

    /// Returns a request to a path of segments, which are escaped.
    pub(crate) fn request(&self, method: Method, segments: &[&str]) -> Request {
        self.request_by(&self.http, method, segments)
    }

    /// Returns a request with this content.
    pub(crate) fn upload(&self, method: Method, segments: &[&str], content: Vec<u8>) -> Request {
        let request = self.request_by(&self.uploads, method, segments);
        let sent = request
            .request
            .header(CONTENT_TYPE, "application/octet-stream");
        Request {
            request: sent.body(content),
            ..request
        }
    }

    fn request_by(&self, http: &reqwest::Client, method: Method, segments: &[&str]) -> Request {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .expect("the base is one")
            .pop_if_empty()
            .extend(segments);
        let request = http.request(method.clone(), url);
        Request {
            request: match &self.tenant {
                Some(tenant) => request.header("muster-tenant", tenant),
                None => request,
            },
            method,
            of: segments.first().copied().unwrap_or_default().to_owned(),
            observer: self.observer.clone(),
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        query: &[(&'static str, String)],
    ) -> Result<T, ClientError> {
        answer(send(self.request(Method::GET, segments).query(query)).await?).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        segments: &[&str],
    ) -> Result<T, ClientError> {
        answer(send(self.request(Method::POST, segments)).await?).await
    }
}

impl Request {
    pub fn query<T: Serialize + ?Sized>(self, query: &T) -> Self {
        let request = self.request.query(query);
        Self { request, ..self }
    }

    pub fn header(self, name: &'static str, value: &str) -> Self {
        let request = self.request.header(name, value);
        Self { request, ..self }
    }

    pub fn json<T: Serialize + ?Sized>(self, body: &T) -> Self {
        let request = self.request.json(body);
        Self { request, ..self }
    }
}

impl std::fmt::Debug for RequestObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestObserver").finish_non_exhaustive()
    }
}

/// Returns the connection if the server has changed its protocol.
pub(crate) async fn switch(request: Request) -> Result<Upgraded, ClientError> {
    let response = send(request).await?;
    let (url, status) = (response.url().to_string(), response.status().as_u16());
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let source = "the server did not change the protocol; a proxy may have removed Upgrade";
        return Err(ClientError::Decode {
            url,
            status,
            source: source.into(),
        });
    }
    response.upgrade().await.map_err(unreachable)
}

/// Returns the response if the request succeeded.
pub(crate) async fn send(request: Request) -> Result<Response, ClientError> {
    let answer = request.request.send().await;
    if let Some(RequestObserver(observer)) = &request.observer {
        let status = answer.as_ref().map(Response::status);
        observer(&RequestOutcome {
            method: request.method.as_str(),
            of: &request.of,
            status: status.ok().map(|status| status.as_u16()),
        });
    }
    let response = answer.map_err(unreachable)?;
    let status = response.status();
    if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response);
    }
    Err(refusal(response).await)
}

/// Parses the body of a response.
pub(crate) async fn answer<T: DeserializeOwned>(response: Response) -> Result<T, ClientError> {
    let (url, status) = (response.url().to_string(), response.status().as_u16());
    let bytes = response.bytes().await.map_err(unreachable)?;
    serde_json::from_slice(&bytes).map_err(|source| ClientError::Decode {
        url,
        status,
        source: source.into(),
    })
}

pub(crate) fn unreachable(source: reqwest::Error) -> ClientError {
    let url = source.url().map(ToString::to_string).unwrap_or_default();
    ClientError::Unreachable {
        url,
        source: source.without_url(),
    }
}

async fn refusal(response: Response) -> ClientError {
    let (url, status) = (response.url().to_string(), response.status().as_u16());
    let is_problem = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/problem+json"));
    let body = match response.bytes().await {
        Ok(body) => body,
        Err(source) => return unreachable(source),
    };
    if !is_problem {
        let source = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        return ClientError::Decode {
            url,
            status,
            source: source.into(),
        };
    }
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => ClientError::Problem(Box::new(problem)),
        Err(source) => ClientError::Decode {
            url,
            status,
            source: source.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::Client;
    use crate::error::ClientError;

    #[test]
    fn invalid_address_is_refused_at_once() {
        for server in ["http://127.0.0.1:7070", "https://muster.example"] {
            assert!(Client::new(server, "token").is_ok(), "{server}");
        }
        for server in [
            "ftp://muster.example",
            "muster.example",
            "mailto:x@muster.example",
        ] {
            match Client::new(server, "token") {
                Err(ClientError::Address { expected, .. }) => {
                    assert!(expected.contains("https://"));
                }
                other => panic!("{server} gave {:?}", other.map(drop)),
            }
        }
    }
}
