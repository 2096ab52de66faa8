//! Rules of `command.git`.

use super::Errors;
use crate::spec::{Command, GitSource};

const MAX_URL_BYTES: usize = 2048;
const SCHEMES: [&str; 3] = ["https://", "ssh://", "file:///"];

pub(super) fn check(errors: &mut Errors, command: &Command) {
    let Some(git) = &command.git else {
        return;
    };
    errors.check(
        "command.git",
        &"given beside command.code",
        command.code.is_none(),
        "one of the two: git for a commit, code for an archive of a folder",
    );
    errors.check(
        "command.git.url",
        &format!("{:?}", git.url),
        is_url(&git.url),
        "an address of at most 2048 bytes that begins with https://, ssh:// or file:///, without spaces",
    );
    errors.check(
        "command.git.url",
        &"with a user or password",
        !has_credential(&git.url),
        "an address without them: it is in the document and the log. command.git.secret names a \
         secret that is the password",
    );
    errors.check(
        "command.git.commit",
        &format!("{:?}", git.commit),
        is_commit(&git.commit),
        "the whole id of a commit: 40 or 64 digits 0-9 a-f. `git rev-parse HEAD` shows it",
    );
    if let Some(secret) = &git.secret {
        check_secret(errors, command, git, secret);
    }
}

fn check_secret(errors: &mut Errors, command: &Command, git: &GitSource, secret: &str) {
    let mut secrets = command.secrets.iter();
    errors.check(
        "command.git.secret",
        &format!("{secret:?}"),
        secrets.any(|one| one.name == secret),
        "the name of one of command.secrets",
    );
    errors.check(
        "command.git.secret",
        &format!("given with {:?}", git.url),
        git.url.starts_with("https://"),
        "left out: only https:// has a password. For ssh:// set GIT_SSH_COMMAND in command.env",
    );
}

fn is_url(url: &str) -> bool {
    let rest = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme));
    url.len() <= MAX_URL_BYTES
        && rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['-', '/']))
        && !url.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// Whether the address contains `user:password@`. With `https://` a user alone may be a token.
fn has_credential(url: &str) -> bool {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split('/').next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    user.is_some_and(|user| scheme == "https" || user.contains(':'))
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use crate::spec::JobSpec;
    use serde_json::{Value, json};

    /// Returns the fields of a command with this `git` that are refused.
    fn refused(git: &Value, more: &Value) -> Vec<String> {
        let mut command = json!({ "argv": ["true"], "git": git });
        let fields = command.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        let document = json!({ "version": "muster/v1", "name": "x", "command": command });
        let spec: JobSpec = serde_json::from_value(document).expect("a document");
        let errors = spec.validate().err().unwrap_or_default();
        errors.into_iter().map(|error| error.field).collect()
    }

    fn of(url: &str) -> Value {
        json!({ "url": url, "commit": "0a".repeat(20) })
    }

    #[test]
    fn addresses_have_a_known_scheme_and_no_password() {
        for url in [
            "https://host/a.git",
            "https://host:8443/a",
            "ssh://git@host/a",
            "file:///srv/a",
        ] {
            assert_eq!(refused(&of(url), &json!({})), [""; 0], "{url}");
        }
        for url in [
            "",
            "https://",
            "http://host/a",
            "git@host:a",
            "/srv/a",
            "file://host/a",
            "ext::sh -c id",
            "--upload-pack=x",
            "ssh://-oProxyCommand=x/a",
            "https://host/a b",
            "https://user:password@host/a",
            "https://token@host/a",
            "ssh://user:password@host/a",
        ] {
            assert_eq!(refused(&of(url), &json!({})), ["command.git.url"], "{url}");
        }
    }

    #[test]
    fn commit_is_a_whole_id() {
        let mut git = of("https://host/a");
        git["commit"] = json!("0a".repeat(32));
        assert_eq!(refused(&git, &json!({})), [""; 0]);
        for wrong in ["main", "0a1b2c3", &"0A".repeat(20), &"0a".repeat(21)] {
            git["commit"] = json!(wrong);
            let fields = refused(&git, &json!({}));
            assert_eq!(fields, ["command.git.commit"], "{wrong}");
        }
    }

    #[test]
    fn secret_is_one_of_the_command_and_for_https() {
        let [mut git, mut ssh] = ["https://host/a", "ssh://host/a"].map(of);
        git["secret"] = json!("TOKEN");
        ssh["secret"] = json!("TOKEN");
        let secrets = json!({ "secrets": [{ "name": "TOKEN" }] });
        assert_eq!(refused(&git, &secrets), [""; 0]);
        assert_eq!(refused(&git, &json!({})), ["command.git.secret"]);
        assert_eq!(refused(&ssh, &secrets), ["command.git.secret"]);
    }

    #[test]
    fn git_excludes_code_and_working_dir() {
        let git = of("https://host/a");
        let code = json!({ "code": { "archive": "0a".repeat(32) } });
        assert_eq!(refused(&git, &code), ["command.git"]);
        let folder = json!({ "working_dir": "/srv" });
        assert_eq!(refused(&git, &folder), ["command.git"]);
    }
}
