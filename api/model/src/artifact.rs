//! Artifacts: files of a job's program that are kept in the checkpoint store.
//!
//! The store names an object by an id and not by the artifact's path. So a path never reaches a
//! file system, and an artifact is replaced by the change of one row.

use crate::id::{JobId, TenantId};
use crate::task::Role;

/// Folder of the checkpoint store with the artifacts of all tenants. Folders of jobs begin with the
/// tenant's id, so it is no tenant's.
pub const ARTIFACTS_FOLDER: &str = "artifacts";

/// Maximum length of a path in bytes.
pub const MAX_PATH_BYTES: usize = 500;

/// Rule for paths, for messages.
pub const PATH_RULE: &str = "1 to 500 bytes of UTF-8: names separated by '/', none of them empty, '.' or '..', without control characters and '\\'";

/// Returns the folder of a job's artifacts, relative to the checkpoint store.
#[must_use]
pub fn artifact_folder(tenant: TenantId, job: JobId) -> String {
    format!("{ARTIFACTS_FOLDER}/{tenant}/{job}")
}

/// Whether the text is a path of an artifact ([`PATH_RULE`]).
#[must_use]
pub fn is_artifact_path(text: &str) -> bool {
    (1..=MAX_PATH_BYTES).contains(&text.len())
        && text.split('/').all(|name| !matches!(name, "" | "." | ".."))
        && !text.contains(|character: char| character.is_control() || character == '\\')
}

/// Returns the path of a file that a task has written to its output folder. Files of rank 0 keep
/// their name, so that a job of one worker and a larger one have equal names. Other tasks have a
/// folder of their own.
#[must_use]
pub fn path_of_task(role: Role, name: &str) -> String {
    match role {
        Role::Worker { rank: 0 } => name.to_owned(),
        Role::Worker { rank } => format!("rank-{rank}/{name}"),
        Role::PsShard { index } => format!("ps-{index}/{name}"),
    }
}

/// Returns the content type for a path by its ending.
#[must_use]
pub fn content_type_of(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "html" | "htm" => "text/html",
        "json" | "ipynb" => "application/json",
        "csv" => "text/csv",
        "tsv" => "text/tab-separated-values",
        "md" => "text/markdown",
        "txt" | "log" | "py" | "yaml" | "yml" | "toml" | "ini" | "cfg" | "jsonl" => "text/plain",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "pdf" => "application/pdf",
        _ if name == "MLmodel" => "text/plain",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_leads_nowhere_else() {
        for path in [
            "a",
            "plots/loss curve.png",
            "ä/…",
            ".hidden",
            "a/..b/c..",
            &"x".repeat(500),
        ] {
            assert!(is_artifact_path(path), "{path}");
        }
        for path in [
            "",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/../b",
            "a/./b",
            "a\nb",
            "a\0b",
            "a\\b",
            "\u{7f}",
            &"x".repeat(501),
        ] {
            assert!(!is_artifact_path(path), "{path:?}");
        }
    }

    #[test]
    fn only_rank_0_writes_without_a_folder() {
        let path = |role| path_of_task(role, "a/b");
        assert_eq!(path(Role::Worker { rank: 0 }), "a/b");
        assert_eq!(path(Role::Worker { rank: 3 }), "rank-3/a/b");
        assert_eq!(path(Role::PsShard { index: 0 }), "ps-0/a/b");
    }

    #[test]
    fn content_type_follows_the_ending() {
        assert_eq!(content_type_of("a.d/Loss.PNG"), "image/png");
        assert_eq!(content_type_of("model/MLmodel"), "text/plain");
        assert_eq!(content_type_of("a.png/weights"), "application/octet-stream");
    }
}
