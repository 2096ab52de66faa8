//! `command.code`: the code of a program as an archive in the cluster's checkpoint store, and
//! `command.python`: the packages that it needs.

use crate::id::TenantId;
use serde::{Deserialize, Serialize};

/// Code of a program: an archive that a client has uploaded (`PUT /code/{sha256}`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Code {
    /// SHA-256 of an archive of this tenant, as 64 hexadecimal digits. `muster run` and `muster
    /// submit --code` upload a folder and set it.
    #[cfg_attr(feature = "schema", schema(pattern = "^[0-9a-f]{64}$"))]
    pub archive: String,
}

/// Python environment of a program. It is made once for each node and equal requirements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PythonEnvironment {
    /// File of `code` or `files` with the requirements for pip, such as `requirements.txt`.
    /// Packages of the node's `python3` stay visible.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 255))]
    pub requirements: String,
}

/// Whether the text is a SHA-256 as 64 lower-case hexadecimal digits. It is then also a plain file
/// name.
#[must_use]
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Folder of the checkpoint store with the code archives of all tenants. Folders of jobs begin with
/// the tenant's id, so it is no tenant's.
pub const CODE_FOLDER: &str = "code";

/// Returns the folder of a tenant's code archives, relative to the checkpoint store.
#[must_use]
pub fn code_folder(tenant: TenantId) -> String {
    format!("{CODE_FOLDER}/{tenant}")
}

/// Returns the file name of an archive in [`code_folder`].
#[must_use]
pub fn code_object(sha256: &str) -> String {
    format!("{sha256}.tar.zst")
}

#[cfg(test)]
mod tests {
    use super::is_sha256;

    #[test]
    fn digest_has_64_lower_case_digits() {
        assert!(is_sha256(&"0a".repeat(32)));
        for wrong in [
            "0a".repeat(31),
            "0A".repeat(32),
            "0g".repeat(32),
            "../".repeat(21) + "a",
            String::new(),
        ] {
            assert!(!is_sha256(&wrong), "{wrong}");
        }
    }
}
