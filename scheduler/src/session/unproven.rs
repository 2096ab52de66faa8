//! Limit on the data of a session before its token is accepted. A message is read only when it has
//! arrived completely.

use axum::body::Body;
use futures::StreamExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::Status;
use tonic::codegen::http::Request;

/// Maximum bytes of a session until its token is accepted. A Hello with 64 GPUs has some kilobytes.
pub const MAX_UNPROVEN_BYTES: usize = 1 << 20;

/// Whether a session's token was accepted; an extension of its request.
#[derive(Debug, Clone, Default)]
pub struct Proof(Arc<AtomicBool>);

impl Proof {
    pub fn accept(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_accepted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ends the request's body after [`MAX_UNPROVEN_BYTES`] unless its [`Proof`] is accepted.
pub fn bounded(mut request: Request<tonic::body::Body>) -> Request<tonic::body::Body> {
    let proof = Proof::default();
    request.extensions_mut().insert(proof.clone());
    request.map(|body| {
        let mut received = 0;
        let pieces = Body::new(body).into_data_stream().map(move |piece| {
            let piece = piece.map_err(|error| error.into_inner())?;
            if !proof.is_accepted() {
                received += piece.len();
            }
            if received > MAX_UNPROVEN_BYTES && !proof.is_accepted() {
                let detail =
                    format!("more than {MAX_UNPROVEN_BYTES} bytes before the session was welcomed");
                return Err(Box::new(Status::resource_exhausted(detail)) as axum::BoxError);
            }
            Ok(piece)
        });
        tonic::body::Body::new(Body::from_stream(pieces))
    })
}
