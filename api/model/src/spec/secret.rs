//! `command.secrets`: which secrets of the tenant a program receives, and how.

use serde::{Deserialize, Serialize};

/// Maximum length of a secret's name.
pub const MAX_SECRET_NAME: usize = 63;

/// Rule of [`is_secret_name`], for messages.
pub const SECRET_NAME_RULE: &str =
    "1 to 63 characters of A-Z, a-z, 0-9, '_', '.' and '-', beginning with a letter or '_'";

/// A secret of the tenant (`PUT /secrets/{name}`) that the program receives, by default as an
/// environment variable of the secret's name. At most one of `env` and `file` is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SecretRef {
    /// Name of a secret of this tenant. `muster secrets set NAME` stores one.
    #[cfg_attr(
        feature = "schema",
        schema(pattern = "^[A-Za-z_][A-Za-z0-9_.-]{0,62}$")
    )]
    pub name: String,
    /// Another environment variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// File of this name in the folder `$MUSTER_SECRETS_DIR`, in place of a variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl SecretRef {
    /// Returns the environment variable; `None` for a file.
    #[must_use]
    pub fn variable(&self) -> Option<&str> {
        match (&self.env, &self.file) {
            (Some(variable), _) => Some(variable),
            (None, Some(_)) => None,
            (None, None) => Some(&self.name),
        }
    }
}

/// Whether the text may be the name of a secret.
#[must_use]
pub fn is_secret_name(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_next = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    text.len() <= MAX_SECRET_NAME
        && text.bytes().next().is_some_and(is_first)
        && text.bytes().all(is_next)
}

/// Whether shells accept the text as the name of a variable.
#[must_use]
pub fn is_variable_name(text: &str) -> bool {
    let is_next = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= 255
        && text
            .bytes()
            .next()
            .is_some_and(|byte| is_next(byte) && !byte.is_ascii_digit())
        && text.bytes().all(is_next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_begin_with_a_letter() {
        for right in ["HF_TOKEN", "_x", "wandb-key", "a.b-c_D9", &"x".repeat(63)] {
            assert!(is_secret_name(right), "{right}");
        }
        for wrong in ["", "9a", ".a", "-a", "a b", "a/b", "ä", &"x".repeat(64)] {
            assert!(!is_secret_name(wrong), "{wrong}");
        }
        assert!(is_variable_name("_A9") && !is_variable_name("wandb-key"));
    }
}
