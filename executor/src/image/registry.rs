//! Requests to a registry: the manifest of an image for this node's platform, its configuration,
//! and its layers.

use super::credentials;
use super::error::ImageError;
use crate::clock;
use futures::TryStreamExt as _;
use muster_model::error_chain::chain;
use oci_client::Reference;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::errors::{DigestError, OciDistributionError, OciErrorCode};
use oci_client::manifest::{ImageIndexEntry, OciDescriptor, OciImageManifest, OciManifest};
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;
use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

const CONNECT: Duration = Duration::from_secs(10);
const NO_BYTES: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Maximum size of an image's configuration, in bytes.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// A registry, for one image.
pub(super) struct Registry {
    client: Client,
    auth: RegistryAuth,
    reference: Reference,
    /// Time for which failed requests are repeated.
    patience: Duration,
}

/// An image as its registry has it now, for this node's platform.
#[derive(Debug)]
pub(super) struct ResolvedImage {
    /// Digest of the manifest, such as `sha256:…`.
    pub digest: String,
    pub manifest: OciImageManifest,
}

/// The part of an image's configuration that applies to programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ImageConfig {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub config: Option<RunConfig>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RunConfig {
    #[serde(default)]
    pub env: Option<Vec<String>>,
    #[serde(default)]
    pub working_dir: Option<String>,
}

/// Parses the name of an image.
///
/// # Errors
/// [`ImageError::Name`].
pub(super) fn parse(image: &str) -> Result<Reference, ImageError> {
    image
        .parse()
        .map_err(|error: oci_client::ParseError| ImageError::Name {
            image: image.to_owned(),
            why: error.to_string(),
        })
}

/// Architecture of this node, as images name it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Registry {
    /// `insecure` are registries that are spoken to without TLS.
    ///
    /// # Errors
    /// If the name or the credentials are wrong.
    pub(super) fn of(
        image: &str,
        insecure: &[String],
        auth_file: Option<&Path>,
        patience: Duration,
    ) -> Result<Self, ImageError> {
        let reference = parse(image)?;
        let auth = credentials::of_registry(auth_file, reference.resolve_registry())?;
        // Another part of the process may have chosen it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::new(ClientConfig {
            protocol: ClientProtocol::HttpsExcept(insecure.to_vec()),
            connect_timeout: Some(CONNECT),
            read_timeout: Some(NO_BYTES),
            user_agent: "muster-executor",
            ..ClientConfig::default()
        });
        Ok(Self {
            client,
            auth,
            reference,
            patience,
        })
    }

    /// Name of the registry.
    pub(super) fn name(&self) -> &str {
        self.reference.registry()
    }

    /// Name of the image's repository, with that of the registry.
    pub(super) fn repository(&self) -> String {
        format!("{}/{}", self.name(), self.reference.repository())
    }

    /// Whether the name of the image has a digest, so that no registry can change its content.
    pub(super) fn has_fixed_digest(&self) -> bool {
        self.reference.digest().is_some()
    }

    /// Asks for the manifest for this node's platform. Failed requests are repeated for `patience`.
    ///
    /// # Errors
    /// [`ImageError`].
    pub(super) async fn resolve(&self, patience: Duration) -> Result<ResolvedImage, ImageError> {
        let (manifest, digest) = self.manifest(&self.reference, patience).await?;
        let index = match manifest {
            OciManifest::Image(manifest) => return Ok(ResolvedImage { digest, manifest }),
            OciManifest::ImageIndex(index) => index,
        };
        let digest = self.entry(&index.manifests)?;
        let reference = self.reference.clone_with_digest(digest.clone());
        match self.manifest(&reference, patience).await? {
            (OciManifest::Image(manifest), _) => Ok(ResolvedImage { digest, manifest }),
            (OciManifest::ImageIndex(_), _) => Err(self.format("its index names another index")),
        }
    }

    fn entry(&self, entries: &[ImageIndexEntry]) -> Result<String, ImageError> {
        let node = architecture();
        let named = entries.iter().filter_map(|entry| {
            let platform = entry.platform.as_ref()?;
            let (os, architecture) = (&platform.os, &platform.architecture);
            Some((os.to_string(), architecture.to_string(), entry))
        });
        let named: Vec<_> = named.collect();
        let found = named
            .iter()
            .find(|(os, architecture, _)| os == "linux" && architecture == node);
        if let Some((_, _, entry)) = found {
            return Ok(entry.digest.clone());
        }
        let others = named
            .iter()
            .map(|(os, architecture, _)| format!("{os}/{architecture}"));
        Err(self.platform(others.collect::<Vec<_>>().join(", ")))
    }

    /// Asks for the configuration of the image.
    ///
    /// # Errors
    /// [`ImageError`], also if the image is for another platform.
    pub(super) async fn config(
        &self,
        manifest: &OciImageManifest,
    ) -> Result<ImageConfig, ImageError> {
        let size = u64::try_from(manifest.config.size).ok();
        let Some(size) = size.filter(|size| *size <= MAX_CONFIG_BYTES) else {
            return Err(self.format("its configuration is too large"));
        };
        let text = self
            .patiently(self.patience, || async {
                let mut text = Vec::new();
                let config = without_urls(&manifest.config);
                let mut stream = self
                    .client
                    .pull_blob_stream(&self.reference, &config)
                    .await?;
                while let Some(piece) = stream.try_next().await? {
                    text.extend_from_slice(&piece);
                    if text.len() as u64 > size {
                        let message = "its configuration is longer than its manifest says";
                        return Err(OciDistributionError::SpecViolationError(message.to_owned()));
                    }
                }
                Ok(text)
            })
            .await?;
        let config: ImageConfig = serde_json::from_slice(&text)
            .map_err(|error| self.format(&format!("its configuration: {error}")))?;
        if config.os != "linux" || config.architecture != architecture() {
            return Err(self.platform(format!("{}/{}", config.os, config.architecture)));
        }
        Ok(config)
    }

    /// Writes a layer into a file and verifies its digest. `add` is called with the number of bytes
    /// of each piece, and with that of all pieces, negative, before a repetition.
    ///
    /// # Errors
    /// [`ImageError`].
    pub(super) async fn layer(
        &self,
        layer: &OciDescriptor,
        path: &Path,
        add: &dyn Fn(i64),
    ) -> Result<(), ImageError> {
        self.patiently(self.patience, || async {
            let mut file = File::create(path)?;
            let mut stream = self
                .client
                .pull_blob_stream(&self.reference, &without_urls(layer))
                .await?;
            let mut done = 0;
            let written = loop {
                match stream.try_next().await {
                    Ok(Some(piece)) => {
                        let bytes = i64::try_from(piece.len()).unwrap_or(i64::MAX);
                        done += bytes;
                        add(bytes);
                        if done > layer.size {
                            let message = "it is longer than its manifest says".to_owned();
                            break Err(OciDistributionError::SpecViolationError(message));
                        }
                        if let Err(error) = file.write_all(&piece) {
                            break Err(error.into());
                        }
                    }
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error.into()),
                }
            };
            if written.is_err() {
                add(-done);
            }
            written
        })
        .await
        .map_err(|error| match error {
            ImageError::Layer(source) => ImageError::at(path)(source),
            other => other,
        })
    }

    async fn manifest(
        &self,
        reference: &Reference,
        patience: Duration,
    ) -> Result<(OciManifest, String), ImageError> {
        self.patiently(patience, || {
            self.client.pull_manifest(reference, &self.auth)
        })
        .await
    }

    /// Repeats a request that fails for a passing reason.
    async fn patiently<T, F: Future<Output = Result<T, OciDistributionError>>>(
        &self,
        patience: Duration,
        request: impl Fn() -> F,
    ) -> Result<T, ImageError> {
        let since_ms = clock::boottime_ms();
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match request().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if !is_passing(&error) {
                return Err(self.refusal(error));
            }
            let waited = Duration::from_millis(clock::boottime_ms().saturating_sub(since_ms));
            if waited + pause > patience {
                return Err(ImageError::Unreachable {
                    registry: self.name().to_owned(),
                    waited_s: waited.as_secs(),
                    why: chain(&error),
                });
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn refusal(&self, error: OciDistributionError) -> ImageError {
        let (registry, image) = (self.name().to_owned(), self.reference.whole());
        match error {
            OciDistributionError::UnauthorizedError { .. }
            | OciDistributionError::AuthenticationFailure(_)
            | OciDistributionError::ServerError { code: 403, .. } => {
                ImageError::NotAuthorised { registry, image }
            }
            OciDistributionError::ServerError { code: 404, .. } => {
                ImageError::NotFound { registry, image }
            }
            OciDistributionError::RegistryError { envelope, .. } => {
                match envelope.errors.first().map(|error| &error.code) {
                    Some(OciErrorCode::Unauthorized | OciErrorCode::Denied) => {
                        ImageError::NotAuthorised { registry, image }
                    }
                    Some(
                        OciErrorCode::ManifestUnknown
                        | OciErrorCode::NameUnknown
                        | OciErrorCode::NotFound
                        | OciErrorCode::NameInvalid,
                    ) => ImageError::NotFound { registry, image },
                    _ => {
                        let why = envelope.to_string();
                        ImageError::Registry { registry, why }
                    }
                }
            }
            OciDistributionError::IoError(source) if source.get_ref().is_none() => {
                ImageError::Layer(source)
            }
            OciDistributionError::ServerError { .. } => ImageError::Registry {
                registry,
                why: chain(&error),
            },
            other => self.format(&chain(&other)),
        }
    }

    fn platform(&self, found: String) -> ImageError {
        ImageError::Platform {
            image: self.reference.whole(),
            found,
            node: format!("linux/{}", architecture()),
        }
    }

    fn format(&self, why: &str) -> ImageError {
        ImageError::Format {
            image: self.reference.whole(),
            why: why.to_owned(),
        }
    }
}

/// A layer without the further addresses of its manifest: the node would send requests to any
/// address that the image names.
fn without_urls(descriptor: &OciDescriptor) -> OciDescriptor {
    OciDescriptor {
        urls: None,
        ..descriptor.clone()
    }
}

fn is_passing(error: &OciDistributionError) -> bool {
    match error {
        OciDistributionError::RequestError(error) => !error.is_builder() && !error.is_decode(),
        OciDistributionError::ServerError { code, .. } => *code >= 500 || *code == 429,
        OciDistributionError::RegistryError { envelope, .. } => envelope
            .errors
            .iter()
            .any(|error| error.code == OciErrorCode::Toomanyrequests),
        // The stream of a layer wraps errors of the connection. Those of the disk are plain.
        OciDistributionError::IoError(error) => {
            let inner = error.get_ref();
            inner.is_some_and(|inner| !inner.is::<DigestError>())
        }
        _ => false,
    }
}
