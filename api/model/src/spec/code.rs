//! The code of a program: `command.code`, an archive in the cluster's checkpoint store, or
//! `command.git`, a commit. `command.python`: the packages that it needs.

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

/// Code of a program: a commit of a git repository, which each task checks out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GitSource {
    /// Address of the repository: `https://`, `ssh://` or `file://`, at most 2048 bytes.
    #[cfg_attr(feature = "schema", schema(max_length = 2048))]
    pub url: String,
    /// Id of the commit: 40 hexadecimal digits, or 64 in a repository with SHA-256.
    #[cfg_attr(feature = "schema", schema(pattern = "^([0-9a-f]{40}|[0-9a-f]{64})$"))]
    pub commit: String,
    /// Name of one of the command's `secrets` that is the password for `https://`, such as an
    /// access token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// Python environment of a program. It is made once for each node and equal requirements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PythonEnvironment {
    /// File of the program's code or `files`: requirements for pip, such as `requirements.txt`, or
    /// a lock file, `uv.lock` beside its `pyproject.toml` or `pylock.toml`. Packages of the node's
    /// `python3` stay visible, except with a lock file.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 255))]
    pub requirements: String,
}

/// Format of a lock file of Python packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockFile {
    /// `uv.lock`
    Uv,
    /// `pylock.toml` or `pylock.NAME.toml` (PEP 751)
    Pylock,
}

impl PythonEnvironment {
    /// Returns the format if the requirements are a lock file, by their name.
    #[must_use]
    pub fn lock_file(&self) -> Option<LockFile> {
        let name = self.file_name();
        if name == "uv.lock" {
            return Some(LockFile::Uv);
        }
        let is_pylock = name.starts_with("pylock.") && name.ends_with(".toml");
        is_pylock.then_some(LockFile::Pylock)
    }

    /// Returns what to use in place of a file that is known and not supported.
    #[must_use]
    pub fn in_place_of_requirements(&self) -> Option<&'static str> {
        match self.file_name() {
            "environment.yml" | "environment.yaml" | "conda-lock.yml" => Some(
                "requirements for pip or a lock file of uv; for an environment of conda, make an image with it and name it in pod.image",
            ),
            "poetry.lock" | "pdm.lock" | "Pipfile.lock" | "Pipfile" => Some(
                "requirements for pip or a lock file of uv; export this file, for example with `poetry export` or `pdm export`",
            ),
            "pyproject.toml" => Some("uv.lock, which `uv lock` makes beside this file"),
            _ => None,
        }
    }

    fn file_name(&self) -> &str {
        let path = self.requirements.rsplit_once('/');
        path.map_or(&self.requirements, |(_, name)| name)
    }
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
    use super::*;

    fn of(path: &str) -> PythonEnvironment {
        PythonEnvironment {
            requirements: path.to_owned(),
        }
    }

    #[test]
    fn lock_files_are_known_by_their_names() {
        for (path, expected) in [
            ("uv.lock", Some(LockFile::Uv)),
            ("a/uv.lock", Some(LockFile::Uv)),
            ("pylock.toml", Some(LockFile::Pylock)),
            ("pylock.train.toml", Some(LockFile::Pylock)),
            ("requirements.txt", None),
            ("requirements.lock", None),
        ] {
            assert_eq!(of(path).lock_file(), expected, "{path}");
            assert_eq!(of(path).in_place_of_requirements(), None, "{path}");
        }
        let conda = of("a/environment.yml").in_place_of_requirements();
        assert!(conda.expect("refused").contains("pod.image"));
        assert!(of("poetry.lock").in_place_of_requirements().is_some());
    }

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
