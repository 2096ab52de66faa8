//! Code from git: a checkout of a commit, and the commit of a working folder.

use super::UsageError;
use crate::document::map_in;
use anyhow::{Context as _, bail};
use muster_model::schedule::SCHEDULE_LABEL;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Labels that describe the code, the array and the schedule of one submission, and not of its
/// copies.
pub const OF_SUBMISSION: [&str; 4] = [COMMIT, CHANGED, super::array::LABEL, SCHEDULE_LABEL];

/// Label with the commit of the code.
const COMMIT: &str = "git-commit";
/// Label of code with changes that are not committed.
const CHANGED: &str = "git-changed";

/// Checks out `URL` or `URL@REF` into a new folder. `REF` is a branch, a tag or a commit; the
/// default is that of the repository. Only this commit is fetched, with the user's own credentials.
///
/// # Errors
/// If git is missing or cannot fetch it.
pub fn checkout(source: &str) -> anyhow::Result<TempDir> {
    let (url, reference) = split(source);
    if url.is_empty() || url.starts_with('-') || reference.starts_with('-') {
        bail!(UsageError(format!(
            "--git {source}: expected URL or URL@REF"
        )));
    }
    let folder = tempfile::tempdir().context("make a folder for the checkout")?;
    // git runs in the new folder, so a relative path of this machine becomes a whole one.
    let local = std::fs::canonicalize(url).ok();
    let local = local.as_deref().and_then(Path::to_str);
    run(folder.path(), &["init", "--quiet"])?;
    let fetch = [
        "fetch",
        "--quiet",
        "--depth",
        "1",
        local.unwrap_or(url),
        reference,
    ];
    run(folder.path(), &fetch).with_context(|| format!("fetch {reference} of {url}"))?;
    run(folder.path(), &["checkout", "--quiet", "FETCH_HEAD"])?;
    Ok(folder)
}

/// Splits at the first `@` behind the host, so that `git@host:path` stays whole and the name of a
/// branch may contain `/`.
fn split(source: &str) -> (&str, &str) {
    let path = match source.split_once("://") {
        Some((scheme, rest)) => {
            let host = scheme.len() + 3;
            host + rest.find('/').unwrap_or(rest.len())
        }
        // `user@host:path`
        None => source.find(':').map_or(0, |at| at + 1),
    };
    match source[path..].find('@') {
        Some(at) if !source[path + at + 1..].is_empty() => {
            (&source[..path + at], &source[path + at + 1..])
        }
        _ => (source, "HEAD"),
    }
}

/// Labels a document with the commit of the folder. A folder outside of git, or without a commit,
/// gives no labels. Labels of the document stay.
pub fn label(document: &mut Value, folder: &Path) {
    let Ok(commit) = run(folder, &["rev-parse", "HEAD"]) else {
        return;
    };
    let Ok(changes) = run(folder, &["status", "--porcelain", "--", "."]) else {
        return;
    };
    let is_changed = !changes.trim().is_empty();
    if let Some(labels) = map_in(document, "labels") {
        labels.entry(COMMIT).or_insert_with(|| json!(commit.trim()));
        if is_changed {
            labels.entry(CHANGED).or_insert_with(|| json!("true"));
        }
    }
}

/// Labels a document with the commit of its `command.git`. Labels of the document stay.
pub fn label_source(document: &mut Value) {
    let commit = document.pointer("/command/git/commit").cloned();
    let Some(commit) = commit.filter(Value::is_string) else {
        return;
    };
    if let Some(labels) = map_in(document, "labels") {
        labels.entry(COMMIT).or_insert(commit);
    }
}

/// Runs git in a folder and returns its output.
fn run(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("git");
    let output = command
        .arg("-C")
        .arg(folder)
        .args(arguments)
        // Set in hooks of git: they would name another repository.
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        // A missing password fails instead of waiting for input.
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()
        .context("run git")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("git {}: {}", arguments[0], said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn reference_follows_the_last_at_of_the_path() {
        for (source, expected) in [
            ("https://host/a/b", ("https://host/a/b", "HEAD")),
            ("https://host/a/b@v1.2", ("https://host/a/b", "v1.2")),
            (
                "https://user@host/a/b.git@main",
                ("https://user@host/a/b.git", "main"),
            ),
            ("git@host:a/b.git", ("git@host:a/b.git", "HEAD")),
            ("git@host:a/b.git@0a1b", ("git@host:a/b.git", "0a1b")),
            (
                "https://host/a/b@feature/x",
                ("https://host/a/b", "feature/x"),
            ),
            ("/srv/a@feature/x", ("/srv/a", "feature/x")),
            ("../b@", ("../b@", "HEAD")),
        ] {
            assert_eq!(split(source), expected, "{source}");
        }
    }

    /// Makes a repository with one commit, and returns the commit.
    fn repository(folder: &Path) -> String {
        fs::write(folder.join("train.py"), "print(1)").expect("our own folder");
        run(folder, &["init", "--quiet", "--initial-branch", "main"]).expect("git");
        run(folder, &["add", "train.py"]).expect("git");
        let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let commit = ["commit", "--quiet", "-m", "one"];
        run(folder, &[&author[..], &commit].concat()).expect("git");
        let commit = run(folder, &["rev-parse", "HEAD"]).expect("git");
        commit.trim().to_owned()
    }

    #[test]
    fn checkout_has_the_files_of_the_commit() {
        let origin = tempfile::tempdir().expect("a folder");
        let commit = repository(origin.path());
        let url = format!("file://{}", origin.path().display());
        for source in [url.clone(), format!("{url}@main")] {
            let folder = checkout(&source).expect("a checkout");
            let text = fs::read_to_string(folder.path().join("train.py"));
            assert_eq!(text.expect("the file"), "print(1)");
            let mut document = json!({});
            label(&mut document, folder.path());
            assert_eq!(document, json!({ "labels": { COMMIT: commit } }));
        }
        let error = checkout(&format!("{url}@none")).expect_err("no such branch");
        assert!(
            format!("{error:#}").contains("fetch none of file://"),
            "{error:#}"
        );
        assert!(checkout("--upload-pack=x").is_err());
    }

    #[test]
    fn document_is_labelled_with_its_commit() {
        let mut document = json!({ "command": { "git": { "commit": "0a" } } });
        label_source(&mut document);
        assert_eq!(document["labels"], json!({ COMMIT: "0a" }));
        let mut other = json!({ "command": { "argv": ["true"] } });
        label_source(&mut other);
        assert_eq!(other, json!({ "command": { "argv": ["true"] } }));
    }

    #[test]
    fn changed_folder_is_labelled() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut document = json!({ "labels": { "team": "x" } });
        label(&mut document, folder.path());
        assert_eq!(
            document,
            json!({ "labels": { "team": "x" } }),
            "no repository"
        );
        let commit = repository(folder.path());
        fs::write(folder.path().join("train.py"), "print(2)").expect("our own folder");
        label(&mut document, folder.path());
        let labels = json!({ "team": "x", COMMIT: commit, CHANGED: "true" });
        assert_eq!(document["labels"], labels);
    }
}
