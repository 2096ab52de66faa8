//! Client layer that counts every request to Kubernetes' API.

use super::OperatorMetrics;
use crate::clock;
use axum::http::{Request, Response};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::client::{Body, ClientBuilder};
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// Returns a client that counts requests and never repeats one. kube's own retry would repeat a
/// rejected request 15 times with pauses up to minutes. A reconciliation would occupy its slot of
/// the work queue for that time; [`crate::backoff`] retries the object after one second instead.
///
/// # Errors
/// If the configuration is invalid.
pub fn kubernetes(
    mut config: kube::Config,
    metrics: &OperatorMetrics,
) -> kube::Result<kube::Client> {
    config.default_retry = false;
    let counting = RequestCountingLayer(metrics.clone());
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&counting)
        .build())
}

struct RequestCountingLayer(OperatorMetrics);

impl<S> Layer<S> for RequestCountingLayer {
    type Service = RequestCountingService<S>;

    fn layer(&self, inner: S) -> RequestCountingService<S> {
        let metrics = self.0.clone();
        RequestCountingService { inner, metrics }
    }
}

struct RequestCountingService<S> {
    inner: S,
    metrics: OperatorMetrics,
}

impl<S, B> Service<Request<Body>> for RequestCountingService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let metrics = self.metrics.clone();
        let method = request.method().clone();
        let resource = resource(request.uri().path());
        let asked = clock::monotonic();
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            let status = answer.as_ref().map(Response::status);
            let status = status.as_ref().map_or("none", |status| status.as_str());
            let took = clock::monotonic().saturating_duration_since(asked);
            metrics.record_kubernetes_request((method.as_str(), &resource), status, took);
            answer
        }
        .boxed()
    }
}

/// Returns the resource of a path without names: `trainingjobs` or `trainingjobs/status`.
fn resource(path: &str) -> String {
    let segments: Vec<&str> = path.split('/').filter(|one| !one.is_empty()).collect();
    let within = match segments.as_slice() {
        ["api", _, within @ ..] | ["apis", _, _, within @ ..] => within,
        _ => &[],
    };
    match within {
        [] => "none".to_owned(),
        ["namespaces", _, of, _, part, ..] => format!("{of}/{part}"),
        ["namespaces", _, of, ..] => (*of).to_owned(),
        [of, _, part, ..] => format!("{of}/{part}"),
        [of, ..] => (*of).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::resource;

    #[test]
    fn request_labels_contain_no_names() {
        for (path, of) in [
            ("/api/v1/namespaces/vision", "namespaces"),
            ("/api/v1/nodes", "nodes"),
            ("/api/v1/nodes/gpu-1", "nodes"),
            ("/api/v1/pods", "pods"),
            ("/api/v1/namespaces/muster/pods", "pods"),
            ("/api/v1/namespaces/muster/pods/a-1", "pods"),
            ("/apis/events.k8s.io/v1/namespaces/vision/events", "events"),
            ("/apis/muster.dev/v1alpha1/trainingjobs", "trainingjobs"),
            (
                "/apis/muster.dev/v1alpha1/namespaces/vision/trainingjobs/mine",
                "trainingjobs",
            ),
            (
                "/apis/muster.dev/v1alpha1/namespaces/vision/trainingjobs/mine/status",
                "trainingjobs/status",
            ),
            (
                "/apis/muster.dev/v1alpha1/tenants/vision/status",
                "tenants/status",
            ),
            ("/version", "none"),
        ] {
            assert_eq!(resource(path), of, "{path}");
        }
    }
}
