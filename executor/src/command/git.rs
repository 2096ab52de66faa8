//! The code of a program as a commit of a git repository, fetched by the task as its own user.
//!
//! The commit is fetched once per node and tenant, into a bare repository ([`super::kept`]), and
//! checked out from there. Hooks and helpers of the node's git are not used, and no command line
//! contains a credential.

use super::check::{Failed, until_ended};
use super::environment::Paths;
use super::error::CommandError;
use super::kept;
use super::secrets;
use muster_archive::ArchiveDigest;
use muster_model::assignment::TaskLaunch;
use muster_model::spec::{Command, GitSource};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process;

const PROGRAM: &str = "git";
/// Time limit of one command, in milliseconds.
const LIMIT_MS: u64 = 30 * 60 * 1_000;
/// Reference of the commit in the bare repository.
const REFERENCE: &str = "refs/heads/muster";
/// Variables by which the answering program gets the password, and the host that may get it.
const PASSWORD: &str = "MUSTER_GIT_PASSWORD";
const HOST: &str = "MUSTER_GIT_HOST";
/// Answers git's questions for user and password of one host. Servers that take a token accept any
/// user. Another host or a proxy would otherwise get the password.
const ASKPASS: &str = "#!/bin/sh
case \"$1\" in
*\"'https://$MUSTER_GIT_HOST'\"* | *\"'https://\"*\"@$MUSTER_GIT_HOST'\"*) ;;
*) exit 1 ;;
esac
case \"$1\" in
Username*) echo x-access-token ;;
*) printf '%s\\n' \"$MUSTER_GIT_PASSWORD\" ;;
esac
";
const NOT_IN_BRANCHES: &str = "no branch or tag of the repository contains it, and the server \
                               sends no other commits";
/// Last lines of servers that do not send a commit by its id.
const NOT_BY_ID: [&str; 3] = [
    "unadvertised object",
    "not our ref",
    "couldn't find remote ref",
];
/// Variables that would make git use another repository, or write credentials into the log.
const REMOVED: [&str; 10] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_TRACE_CURL",
    "GIT_CURL_VERBOSE",
    "SSH_ASKPASS",
    "GIT_DEFAULT_HASH",
];
/// Settings of each command, in place of those of the node.
const SETTINGS: [&str; 12] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.askPass=",
    "credential.helper=",
    "credential.useHttpPath=false",
    "init.defaultObjectFormat=sha1",
    // Maintenance would continue in the background.
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "advice.detachedHead=false",
    // A stalled transfer ends after two minutes.
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=120",
];

/// Checks out the commit into the working folder, which is empty.
pub(super) fn lay_out(
    paths: &Paths,
    launch: &TaskLaunch,
    command: &Command,
    git: &GitSource,
) -> Result<(), CommandError> {
    let source = CommitSource {
        paths,
        command,
        git,
    };
    let kept = kept::ready(paths, launch, &name(git), |folder| source.fetch(folder))?;
    source.check_out(&kept.path)
}

/// Returns the name of the kept repository.
fn name(git: &GitSource) -> String {
    let mut digest = ArchiveDigest::default();
    digest.update(format!("{}\n{}", git.url, git.commit).as_bytes());
    format!("{}{}", kept::COMMIT_PREFIX, &digest.hex()[..32])
}

struct CommitSource<'a> {
    paths: &'a Paths,
    command: &'a Command,
    git: &'a GitSource,
}

impl CommitSource<'_> {
    /// Fetches the commit into a new bare repository.
    fn fetch(&self, folder: &Path) -> Result<(), CommandError> {
        let (url, commit) = (self.git.url.as_str(), self.git.commit.as_str());
        super::say(&format!("fetching commit {commit} of {url}"));
        let password = self.password()?;
        fs::create_dir_all(folder).map_err(CommandError::write(folder))?;
        self.init(folder, &["--bare"])?;
        let own = ["fetch", "--quiet", "--depth", "1", "--no-tags", url, commit];
        match self.run(folder, &own, password.as_ref())? {
            None => {}
            Some(failed) if is_not_by_id(&failed) => {
                super::say("the server sends no commit by its id; fetching all branches and tags");
                let all = [
                    "fetch",
                    "--quiet",
                    "--no-tags",
                    url,
                    "+refs/heads/*:refs/remote/heads/*",
                    "+refs/tags/*:refs/remote/tags/*",
                ];
                self.must(folder, &all, password.as_ref())?;
                if !self.has_commit(folder)? {
                    return Err(self.no_commit(NOT_IN_BRANCHES));
                }
            }
            Some(failed) => return Err(self.failed("git fetch", failed)),
        }
        if let Some(askpass) = &password {
            let _ = fs::remove_file(&askpass.program);
        }
        let reference = ["update-ref", REFERENCE, commit];
        match self.run(folder, &reference, None)? {
            None => Ok(()),
            Some(_) => Err(self.no_commit("it is the id of another object")),
        }
    }

    /// Checks out from the bare repository, and compares the commit.
    fn check_out(&self, kept: &Path) -> Result<(), CommandError> {
        let work = &self.paths.work;
        self.init(work, &[])?;
        let kept = kept.display().to_string();
        let fetch = [
            "fetch",
            "--quiet",
            "--depth",
            "1",
            "--no-tags",
            kept.as_str(),
            REFERENCE,
        ];
        self.must(work, &fetch, None)?;
        let check_out = ["checkout", "--quiet", "--detach", self.git.commit.as_str()];
        self.must(work, &check_out, None)?;
        // Git LFS finds its server by the remote.
        let remote = ["config", "remote.origin.url", self.git.url.as_str()];
        self.must(work, &remote, None)?;
        let head = self.output(work, &["rev-parse", "--verify", "HEAD"])?;
        if head.trim() != self.git.commit {
            return Err(self.no_commit("it is the id of another object"));
        }
        if work.join(".gitmodules").exists() {
            super::say("submodules of the repository are not fetched");
        }
        Ok(())
    }

    fn init(&self, folder: &Path, options: &[&str]) -> Result<(), CommandError> {
        let mut init = vec!["init", "--quiet", "--template="];
        // Releases of git before 2.29 do not have the option.
        if self.git.commit.len() == 64 {
            init.push("--object-format=sha256");
        }
        init.extend(options);
        self.must(folder, &init, None)
    }

    fn has_commit(&self, folder: &Path) -> Result<bool, CommandError> {
        let commit = format!("{}^{{commit}}", self.git.commit);
        let failed = self.run(folder, &["cat-file", "-e", &commit], None)?;
        Ok(failed.is_none())
    }

    fn must(
        &self,
        folder: &Path,
        arguments: &[&str],
        askpass: Option<&AskPass>,
    ) -> Result<(), CommandError> {
        match self.run(folder, arguments, askpass)? {
            None => Ok(()),
            Some(failed) => {
                let what = format!("git {}", arguments[0]);
                Err(self.failed(&what, failed))
            }
        }
    }

    /// Runs git in a folder; its output becomes part of the task's log.
    fn run(
        &self,
        folder: &Path,
        arguments: &[&str],
        askpass: Option<&AskPass>,
    ) -> Result<Option<Failed>, CommandError> {
        let git = self.prepared(folder, arguments, askpass);
        until_ended(git, Path::new(PROGRAM), Some(LIMIT_MS)).map_err(without_git)
    }

    fn output(&self, folder: &Path, arguments: &[&str]) -> Result<String, CommandError> {
        let output = self.prepared(folder, arguments, None).output();
        let output = output.map_err(CommandError::start(PROGRAM));
        let output = output.map_err(without_git)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn prepared(
        &self,
        folder: &Path,
        arguments: &[&str],
        askpass: Option<&AskPass>,
    ) -> process::Command {
        let mut git = process::Command::new(PROGRAM);
        git.current_dir(folder).envs(&self.command.env);
        for name in REMOVED {
            git.env_remove(name);
        }
        if !self.command.env.contains_key("GIT_SSH_COMMAND") {
            git.env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes");
        }
        git.env("GIT_TERMINAL_PROMPT", "0");
        // The checkout would fetch large files without the secret.
        git.env("GIT_LFS_SKIP_SMUDGE", "1");
        git.env("GIT_ALLOW_PROTOCOL", "https:ssh:file");
        // The last line of an error is compared with `NOT_BY_ID`.
        git.env("LC_ALL", "C");
        for setting in SETTINGS {
            git.args(["-c", setting]);
        }
        if let Some(askpass) = askpass {
            git.env("GIT_ASKPASS", &askpass.program);
            git.env(PASSWORD, &askpass.password);
            git.env(HOST, &askpass.host);
            // Another host would get the password.
            git.args(["-c", "http.followRedirects=false"]);
        }
        git.args(arguments);
        git
    }

    /// Writes the program that answers git, if the document names a secret.
    fn password(&self) -> Result<Option<AskPass>, CommandError> {
        let Some(name) = &self.git.secret else {
            return Ok(None);
        };
        let failed = CommandError::read(format!("secret {name}"));
        let password = secrets::value(&self.paths.task, self.command, name).map_err(failed)?;
        let program = self.paths.task.join("git-askpass");
        let written = write_program(&program);
        written.map_err(CommandError::write(&program))?;
        let host = host(&self.git.url).to_owned();
        Ok(Some(AskPass {
            program,
            password,
            host,
        }))
    }

    fn failed(&self, what: &str, Failed { how, said }: Failed) -> CommandError {
        CommandError::Git {
            url: self.git.url.clone(),
            commit: self.git.commit.clone(),
            what: what.to_owned(),
            how,
            said,
        }
    }

    fn no_commit(&self, why: &'static str) -> CommandError {
        CommandError::NoCommit {
            url: self.git.url.clone(),
            commit: self.git.commit.clone(),
            why,
        }
    }
}

/// The answering program, the password, and the host that may get it.
struct AskPass {
    program: PathBuf,
    password: String,
    host: String,
}

/// Returns the host of an address, with its port.
fn host(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host)
}

fn write_program(path: &Path) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(path)?;
    file.write_all(ASKPASS.as_bytes())
}

fn is_not_by_id(failed: &Failed) -> bool {
    let said = failed.said.as_deref().unwrap_or_default();
    NOT_BY_ID.iter().any(|text| said.contains(text))
}

/// Names git as what the node lacks.
fn without_git(error: CommandError) -> CommandError {
    match error {
        CommandError::Start { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            CommandError::NoGit
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::environment::tests::paths as test_paths;
    use crate::command::test_launch;
    use serde_json::{Value, json};

    /// A repository of another user's machine, and a task that needs its commit.
    struct Site {
        place: tempfile::TempDir,
        commit: String,
    }

    fn git(folder: &Path, arguments: &[&str]) -> String {
        let mut command = process::Command::new("git");
        command
            .current_dir(folder)
            .args(["-c", "user.name=a", "-c", "user.email=a@b"]);
        let output = command.args(arguments).output().expect("git");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    }

    impl Site {
        fn new(format: &str) -> Self {
            let place = tempfile::tempdir().expect("a folder");
            let origin = place.path().join("origin");
            fs::create_dir_all(&origin).expect("made");
            fs::create_dir_all(place.path().join("data/environments")).expect("made");
            git(
                &origin,
                &[
                    "init",
                    "-q",
                    "-b",
                    "main",
                    &format!("--object-format={format}"),
                ],
            );
            fs::write(origin.join("train.py"), "print(1)").expect("written");
            git(&origin, &["add", "."]);
            git(&origin, &["commit", "-q", "-m", "one"]);
            let commit = git(&origin, &["rev-parse", "HEAD"]);
            fs::write(origin.join("train.py"), "print(2)").expect("written");
            git(&origin, &["commit", "-q", "-am", "two"]);
            Self { place, commit }
        }

        fn origin(&self) -> PathBuf {
            self.place.path().join("origin")
        }

        /// Lays out the code of a new task. Returns its working folder.
        fn task(&self, name: &str, commit: &str) -> Result<PathBuf, CommandError> {
            self.task_with(name, commit, &json!({}))
        }

        fn task_with(
            &self,
            name: &str,
            commit: &str,
            env: &Value,
        ) -> Result<PathBuf, CommandError> {
            let url = format!("file://{}", self.origin().display());
            let git = json!({ "url": url, "commit": commit });
            let command = json!({ "argv": ["true"], "env": env, "git": git });
            let command: Command = serde_json::from_value(command).expect("a command");
            let task = self.place.path().join("data/tasks").join(name);
            let work = task.join("work");
            fs::create_dir_all(&work).expect("made");
            let paths = Paths {
                task,
                work: work.clone(),
                ..test_paths()
            };
            let source = command.git.as_ref().expect("set");
            lay_out(&paths, &test_launch(), &command, source).map(|()| work)
        }

        fn text(&self, name: &str, commit: &str) -> String {
            let work = self.task(name, commit).expect("checked out");
            fs::read_to_string(work.join("train.py")).expect("the file")
        }
    }

    #[test]
    fn commit_is_checked_out_in_both_formats() {
        for format in ["sha1", "sha256"] {
            let site = Site::new(format);
            assert_eq!(site.text("a", &site.commit), "print(1)", "{format}");
        }
    }

    #[test]
    fn second_task_needs_no_server() {
        let site = Site::new("sha1");
        assert_eq!(site.text("a", &site.commit), "print(1)");
        fs::remove_dir_all(site.origin()).expect("removed");
        assert_eq!(site.text("b", &site.commit), "print(1)");
        let error = site.task("c", &"0a".repeat(20)).expect_err("no server");
        assert!(error.is_retryable() && error.lacks().is_none(), "{error}");
    }

    #[test]
    fn server_without_ids_sends_everything() {
        let site = Site::new("sha1");
        // Servers of the first protocol send only what a branch or tag names.
        let old = json!({
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.version",
            "GIT_CONFIG_VALUE_0": "0",
        });
        let work = site.task_with("a", &site.commit, &old).expect("fetched");
        let text = fs::read_to_string(work.join("train.py")).expect("the file");
        assert_eq!(text, "print(1)");
        let kept = fs::read_dir(site.place.path().join("data/environments"));
        let tenant = kept.expect("kept").next().expect("one").expect("read");
        let kept = fs::read_dir(tenant.path())
            .expect("kept")
            .filter_map(Result::ok);
        let mut kept = kept.filter(|entry| entry.path().is_dir());
        let kept = kept.next().expect("one").path();
        let all = git(&kept, &["rev-list", "--all", "--count"]);
        assert_eq!(all, "2", "the server has sent everything");
        let error = site.task("b", &"0a".repeat(20)).expect_err("no commit");
        assert!(matches!(error, CommandError::NoCommit { .. }), "{error}");
        assert!(!error.is_retryable());
    }

    #[test]
    fn id_of_another_object_is_refused() {
        let site = Site::new("sha1");
        git(
            &site.origin(),
            &["tag", "-a", "-m", "v1", "v1", &site.commit],
        );
        let tag = git(&site.origin(), &["rev-parse", "v1"]);
        let error = site.task("a", &tag).expect_err("a tag");
        assert!(error.to_string().contains("another object"), "{error}");
    }

    #[test]
    fn hooks_and_templates_of_the_node_are_not_used() {
        let site = Site::new("sha1");
        let work = site.task("a", &site.commit).expect("checked out");
        assert!(!work.join(".git/hooks").exists());
        let remote = git(&work, &["config", "remote.origin.url"]);
        assert_eq!(remote, format!("file://{}", site.origin().display()));
    }

    #[test]
    fn password_is_answered_and_in_no_argument() {
        let place = tempfile::tempdir().expect("a folder");
        let program = place.path().join("git-askpass");
        write_program(&program).expect("written");
        let answer = |question: &str| {
            let mut asked = process::Command::new(&program);
            asked.arg(question).env(HOST, "host:8443");
            let output = asked.env(PASSWORD, "p 'w\\n").output();
            String::from_utf8(output.expect("run").stdout).expect("text")
        };
        let user = answer("Username for 'https://host:8443': ");
        assert_eq!(user, "x-access-token\n");
        let password = answer("Password for 'https://x@host:8443': ");
        assert_eq!(password, "p 'w\\n\n");
        for other in [
            "https://x@host",
            "http://x@host:8443",
            "https://x@ahost:8443",
        ] {
            assert_eq!(answer(&format!("Password for '{other}': ")), "", "{other}");
        }
        assert_eq!(host("https://x@host:8443/a@b"), "host:8443");
        let value = json!({
            "argv": ["true"], "secrets": [{ "name": "TOKEN" }], "env": { "TOKEN": "p4ss" },
            "git": { "url": "https://host/a", "commit": "0a".repeat(20), "secret": "TOKEN" },
        });
        let command: Command = serde_json::from_value(value).expect("a command");
        let found = secrets::value(place.path(), &command, "TOKEN").expect("there");
        assert_eq!(found, "p4ss");
        let paths = Paths {
            task: place.path().to_owned(),
            work: place.path().to_owned(),
            ..test_paths()
        };
        let source = CommitSource {
            paths: &paths,
            command: &command,
            git: command.git.as_ref().expect("set"),
        };
        let askpass = source.password().expect("written");
        let started = source.prepared(place.path(), &["fetch", "https://host/a"], askpass.as_ref());
        let shown: Vec<_> = started
            .get_args()
            .map(|text| text.to_string_lossy())
            .collect();
        assert!(shown.iter().all(|text| !text.contains("p4ss")), "{shown:?}");
        assert!(
            shown
                .iter()
                .any(|text| text == "http.followRedirects=false")
        );
    }
}
