//! Tenants of namespaces, and clients that act for them.
//!
//! A namespace's label `muster.dev/tenant` names its tenant. Without the label it is the tenant of
//! the operator's setting, or else the tenant with the namespace's name. A token of Muster belongs
//! to one tenant. With an administrator's token the operator creates a token for each tenant that
//! it needs, valid for a day. These tokens are not stored.

use crate::clock;
use crate::error::Error;
use crate::metrics::OperatorMetrics;
use crate::rejection::ObjectRejection;
use futures::Stream;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use muster_client::{Client, ClientError};
use muster_model::tenant::Access;
use muster_model::view::NewToken;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub const LABEL: &str = "muster.dev/tenant";
const TOKEN_LIVES: time::Duration = time::Duration::hours(24);
/// Time after which a token is replaced.
const TOKEN_USED: Duration = Duration::from_secs(12 * 3_600);
/// Time for which a namespace's label is cached.
const NAMESPACE_KNOWN: Duration = Duration::from_secs(10);
/// User of the operator's tokens, which Muster records as the author of its requests.
const USER: &str = "kubernetes";

#[derive(Debug, Clone)]
pub enum AdminToken {
    Given(String),
    /// Read again for each use, because secrets in pods are replaced while it runs.
    File(PathBuf),
}

pub struct Tenants {
    kubernetes: kube::Client,
    server: String,
    token: AdminToken,
    /// Tenant of namespaces without a label.
    default: Option<String>,
    namespaces: Mutex<HashMap<String, (Instant, String)>>,
    clients: Mutex<HashMap<String, (Instant, Client)>>,
    metrics: OperatorMetrics,
    /// Controllers whose objects may wait for a tenant.
    waiting: std::sync::Mutex<Vec<UnboundedSender<String>>>,
    /// Client of the administrator, with its token.
    admin: std::sync::Mutex<Option<(String, Client)>>,
}

/// Result of a request for a tenant's client.
#[derive(Debug)]
pub enum TenantLookup {
    Client(Client),
    /// Muster has no such tenant.
    NoSuchTenant(ObjectRejection),
}

impl Tenants {
    #[must_use]
    pub fn new(
        kubernetes: kube::Client,
        server: String,
        token: AdminToken,
        default: Option<String>,
        metrics: OperatorMetrics,
    ) -> Self {
        Self {
            kubernetes,
            server,
            token,
            default,
            namespaces: Mutex::default(),
            clients: Mutex::default(),
            metrics,
            waiting: std::sync::Mutex::default(),
            admin: std::sync::Mutex::default(),
        }
    }

    /// Returns the tenant of a namespace.
    ///
    /// # Errors
    /// If Kubernetes' API does not answer.
    pub async fn of_namespace(&self, namespace: &str) -> Result<String, Error> {
        let now = clock::monotonic();
        let mut known = self.namespaces.lock().await;
        if let Some((at, tenant)) = known.get(namespace)
            && now.duration_since(*at) < NAMESPACE_KNOWN
        {
            return Ok(tenant.clone());
        }
        let api: Api<Namespace> = Api::all(self.kubernetes.clone());
        let found = api
            .get_metadata_opt(namespace)
            .await
            .map_err(Error::kubernetes("a namespace was not read"))?;
        let label = found.and_then(|found| found.metadata.labels?.remove(LABEL));
        let tenant = label
            .or_else(|| self.default.clone())
            .unwrap_or_else(|| namespace.to_owned());
        known.retain(|_, (at, _)| now.duration_since(*at) < NAMESPACE_KNOWN);
        known.insert(namespace.to_owned(), (now, tenant.clone()));
        Ok(tenant)
    }

    /// Returns a client that may act for the tenant's jobs.
    ///
    /// # Errors
    /// If the REST interface does not answer, or rejects the administrator's token.
    pub async fn client(&self, tenant: &str) -> Result<TenantLookup, Error> {
        let now = clock::monotonic();
        let mut clients = self.clients.lock().await;
        if let Some((at, client)) = clients.get(tenant)
            && now.duration_since(*at) < TOKEN_USED
        {
            return Ok(TenantLookup::Client(client.clone()));
        }
        let wanted = NewToken {
            name: "operator".to_owned(),
            access: Access::Member,
            user: Some(USER.to_owned()),
            tenant: Some(tenant.to_owned()),
            expires_at: Some(clock::now() + TOKEN_LIVES),
        };
        let created = match self.admin()?.create_token(&wanted).await {
            Ok(created) => created,
            Err(error) if names_tenant(&error) => {
                return Ok(TenantLookup::NoSuchTenant(ObjectRejection {
                    reason: "NoSuchTenant",
                    message: format!(
                        "Muster has no tenant {tenant:?}, to which the namespace belongs; create it, or label the namespace with {LABEL}"
                    ),
                }));
            }
            Err(error) => return Err(Error::muster("no token was made")(error)),
        };
        let client = self.with(&created.secret)?;
        clients.insert(tenant.to_owned(), (now, client.clone()));
        Ok(TenantLookup::Client(client))
    }

    /// Returns the names of tenants that [`Self::was_created`] reports from now on.
    pub fn created(&self) -> impl Stream<Item = String> + Send + 'static {
        let (sender, receiver) = unbounded_channel();
        self.waiting().push(sender);
        futures::stream::unfold(receiver, |mut receiver: UnboundedReceiver<_>| async {
            Some((receiver.recv().await?, receiver))
        })
    }

    /// Reports that a tenant now exists in Muster.
    pub fn was_created(&self, tenant: &str) {
        let mut waiting = self.waiting();
        waiting.retain(|sender| sender.send(tenant.to_owned()).is_ok());
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<UnboundedSender<String>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Discards the tenant's token after Muster has rejected it: it was revoked, or the database
    /// was replaced.
    pub async fn forget(&self, tenant: &str) {
        self.clients.lock().await.remove(tenant);
    }

    /// Returns a client with the administrator's token. All reconciliations share it until the
    /// token changes, because a new client loads the system's certificate authorities and opens new
    /// connections.
    ///
    /// # Errors
    /// If the token cannot be read.
    pub fn admin(&self) -> Result<Client, Error> {
        let token = match &self.token {
            AdminToken::Given(token) => token.clone(),
            AdminToken::File(path) => {
                std::fs::read_to_string(path).map_err(|source| Error::TokenFile {
                    path: path.display().to_string(),
                    source,
                })?
            }
        };
        let mut made = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, client)) = made.as_ref()
            && *of == token
        {
            return Ok(client.clone());
        }
        let client = self.with(token.trim())?;
        *made = Some((token, client.clone()));
        Ok(client)
    }

    /// Creates a client whose requests are counted.
    fn with(&self, token: &str) -> Result<Client, Error> {
        let client = Client::new(&self.server, token);
        let client = client.map_err(Error::muster("no client was made"))?;
        let metrics = self.metrics.clone();
        Ok(client.observed_by(move |ended| metrics.record_muster_request(ended)))
    }
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let server = &self.server;
        f.debug_struct("Tenants")
            .field("server", server)
            .finish_non_exhaustive()
    }
}

fn names_tenant(error: &ClientError) -> bool {
    matches!(error, ClientError::Problem(problem) if problem.errors.iter().any(|error| error.field == "tenant"))
}

#[cfg(test)]
mod tests {
    use super::{AdminToken, Tenants};
    use crate::metrics::OperatorMetrics;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// Answers every request with an empty list of nodes, and counts connections.
    async fn serve(listener: TcpListener, dialled: Arc<AtomicUsize>) {
        while let Ok((mut line, _)) = listener.accept().await {
            dialled.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let body = r#"{"items":[],"next":null}"#;
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                while line.read(&mut [0; 4_096]).await.is_ok_and(|read| read > 0) {
                    if line.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    }

    #[tokio::test]
    async fn reconciliations_share_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let dialled = Arc::new(AtomicUsize::new(0));
        tokio::spawn(serve(listener, Arc::clone(&dialled)));
        let nowhere = "http://127.0.0.1:1".parse().expect("an address");
        let kubernetes = kube::Client::try_from(kube::Config::new(nowhere)).expect("a client");
        let server = format!("http://{address}");
        let token = AdminToken::Given("one".into());
        let tenants = Tenants::new(kubernetes, server, token, None, OperatorMetrics::default());
        for _ in 0..3 {
            let client = tenants.admin().expect("a client");
            client.nodes().await.expect("a list");
        }
        assert_eq!(dialled.load(Ordering::Relaxed), 1);
    }
}
