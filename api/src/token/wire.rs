//! How tokens are shown, and how they are made.

use crate::auth;
use crate::clock;
use crate::problem::Refusal;
use muster_model::view::TokenView;
use muster_store::token::{Hash, Token};
use std::fmt::Write as _;

/// `tenant` is the name of the one that its user is of.
pub fn token(token: Token, tenant: &str) -> TokenView {
    TokenView {
        id: token.id,
        name: token.name,
        user: token.user_name,
        tenant: tenant.to_owned(),
        access: token.access,
        created_at: token.created_at,
        expires_at: token.expires_at,
        revoked_at: token.revoked_at,
    }
}

/// A new secret and what the store knows it by. The prefix lets scanners of leaked secrets recognise it.
///
/// # Errors
/// When the operating system has no randomness to give.
pub fn secret() -> Result<(String, Hash), Refusal> {
    let bytes = clock::secret().map_err(|error| Refusal::internal(&error))?;
    let mut secret = String::from("muster_");
    for byte in bytes {
        let _ = write!(secret, "{byte:02x}");
    }
    let hash = auth::hash(&secret);
    Ok((secret, hash))
}
