//! Decides whether an executor may act for the node that it names.
//!
//! Once an executor has presented its own credential, only that credential is accepted for the
//! node. The cluster's join token, which all executors know, lets a node join for the first time. A
//! one-time token lets one executor take over a node.

use crate::config::Rejoin;
use muster_model::node::NodeState;
use muster_store::membership::{ExecutorRecord, SecretHash};
use sha2::{Digest as _, Sha256};
use tonic::Status;

/// Prefix of one-time tokens.
const ONE_TIME: &str = "muster_join_";

/// Evidence in a Hello.
#[derive(Debug, Clone)]
pub struct Presented<'h> {
    pub name: &'h str,
    /// SHA-256; `None` for executors of the previous release.
    pub credential: Option<SecretHash>,
    pub identity: &'h str,
    pub token: Token,
}

/// Join token of a Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    Cluster,
    /// One-time token for this node.
    Once,
    Wrong,
}

/// Result of an admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// By the node's credential.
    Proven,
    /// Without a credential: this executor and all earlier ones of the node are of the previous
    /// release.
    Unproven,
    /// The presented credential becomes the node's.
    Binds,
}

/// Reason of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    #[error(
        "join_token is wrong; expected that of this cluster, or a one-time token for node {name}"
    )]
    Token { name: String },
    #[error(
        "node {name} has a credential, and this executor presents {presents}. Start it with the node's data folder. If that is lost, {remedy}"
    )]
    Credential {
        name: String,
        presents: &'static str,
        remedy: &'static str,
    },
    #[error(
        "node {name} has an identity, and this executor presents {presents}; it is let in once the node counts as lost"
    )]
    Identity {
        name: String,
        presents: &'static str,
    },
}

impl From<JoinRefusal> for Status {
    fn from(refusal: JoinRefusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            JoinRefusal::Token { .. } => Self::unauthenticated(message),
            JoinRefusal::Credential { .. } => Self::permission_denied(message),
            JoinRefusal::Identity { .. } => Self::unavailable(message),
        }
    }
}

/// Whether the token has the form of a one-time token.
pub fn may_be_once(token: &str) -> bool {
    token.starts_with(ONE_TIME)
}

/// SHA-256 of a secret.
pub fn hash(secret: &str) -> SecretHash {
    Sha256::digest(secret.as_bytes()).into()
}

/// Decides on a Hello. `known` is the node's row, `None` for a new node.
///
/// # Errors
/// [`JoinRefusal`].
pub fn admit(
    hello: &Presented<'_>,
    known: Option<&ExecutorRecord>,
    rejoin: Rejoin,
) -> Result<Admission, JoinRefusal> {
    let own = known.and_then(|member| member.credential.as_deref());
    if own.is_some_and(|own| hello.credential.is_some_and(|given| given == own)) {
        return Ok(Admission::Proven);
    }
    if hello.token == Token::Wrong {
        return Err(JoinRefusal::Token {
            name: hello.name.to_owned(),
        });
    }
    let admission = match hello.credential {
        Some(_) => Admission::Binds,
        None => Admission::Unproven,
    };
    let Some(known) = known else {
        return Ok(admission);
    };
    let is_lost = known.state == NodeState::Lost;
    if own.is_some() {
        let may_replace = hello.token == Token::Once || (rejoin == Rejoin::Lost && is_lost);
        return match admission {
            Admission::Binds if may_replace => Ok(Admission::Binds),
            _ => Err(JoinRefusal::Credential {
                name: hello.name.to_owned(),
                presents: hello.credential.map_or("none", |_| "another"),
                remedy: match rejoin {
                    Rejoin::Lost => {
                        "it may join once the node counts as lost, or with a one-time token (`muster nodes join`)"
                    }
                    Rejoin::Reset => {
                        "an administrator resets the node (`muster nodes reset`), or makes a one-time token for it (`muster nodes join`)"
                    }
                },
            }),
        };
    }
    // No executor of this node has had a credential yet, so the identity is the only evidence.
    let is_same = known
        .identity
        .as_deref()
        .is_none_or(|own| own == hello.identity);
    if is_same || is_lost || hello.token == Token::Once {
        return Ok(admission);
    }
    Err(JoinRefusal::Identity {
        name: hello.name.to_owned(),
        presents: if hello.identity.is_empty() {
            "none"
        } else {
            "another"
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(credential: Option<&str>, identity: &'static str, token: Token) -> Presented<'static> {
        Presented {
            name: "node-1",
            credential: credential.map(hash),
            identity,
            token,
        }
    }

    fn member(
        state: NodeState,
        credential: Option<&str>,
        identity: Option<&str>,
    ) -> ExecutorRecord {
        ExecutorRecord {
            state,
            credential: credential.map(|secret| hash(secret).to_vec()),
            identity: identity.map(str::to_owned),
        }
    }

    #[test]
    fn node_credential_alone_admits_executor() {
        use NodeState::{Lost, Up};
        use Token::{Cluster, Once, Wrong};
        let table = [
            // state, presented credential, token: result with `Lost`, with `Reset`
            (
                Up,
                Some("own"),
                Wrong,
                Some(Admission::Proven),
                Some(Admission::Proven),
            ),
            (
                Lost,
                Some("own"),
                Wrong,
                Some(Admission::Proven),
                Some(Admission::Proven),
            ),
            (Up, Some("other"), Cluster, None, None),
            (Up, None, Cluster, None, None),
            (Lost, Some("other"), Cluster, Some(Admission::Binds), None),
            (Lost, None, Cluster, None, None),
            (
                Up,
                Some("other"),
                Once,
                Some(Admission::Binds),
                Some(Admission::Binds),
            ),
            (Up, None, Once, None, None),
            (Lost, Some("other"), Wrong, None, None),
        ];
        for (state, credential, token, by_lost, by_reset) in table {
            let known = member(state, Some("own"), Some("folder"));
            let hello = hello(credential, "folder", token);
            for (rejoin, expected) in [(Rejoin::Lost, by_lost), (Rejoin::Reset, by_reset)] {
                let admitted = admit(&hello, Some(&known), rejoin).ok();
                assert_eq!(admitted, expected, "{state:?} {hello:?} {rejoin:?}");
            }
        }
    }

    #[test]
    fn known_identity_refuses_other_or_missing_identity() {
        let known = member(NodeState::Up, None, Some("folder"));
        for credential in [None, Some("own")] {
            let expected = credential.map_or(Admission::Unproven, |_| Admission::Binds);
            let same = hello(credential, "folder", Token::Cluster);
            assert_eq!(admit(&same, Some(&known), Rejoin::Lost), Ok(expected));
            for identity in ["", "another"] {
                let other = hello(credential, identity, Token::Cluster);
                let refused = admit(&other, Some(&known), Rejoin::Lost);
                assert!(refused.is_err(), "{identity:?}");
                let lost = member(NodeState::Lost, None, Some("folder"));
                let untold = member(NodeState::Up, None, None);
                for known in [lost, untold] {
                    let admitted = admit(&other, Some(&known), Rejoin::Lost);
                    assert_eq!(admitted, Ok(expected), "{identity:?}");
                }
            }
        }
    }

    #[test]
    fn new_node_without_token_is_refused() {
        for (token, expected) in [
            (Token::Cluster, Some(Admission::Binds)),
            (Token::Once, Some(Admission::Binds)),
            (Token::Wrong, None),
        ] {
            let hello = hello(Some("own"), "folder", token);
            assert_eq!(admit(&hello, None, Rejoin::Reset).ok(), expected);
        }
    }
}
