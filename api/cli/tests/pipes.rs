//! Output without a reader.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn muster(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(args).env_remove("RUST_BACKTRACE");
    command
}

/// Returns the writing end of a pipe whose reading end is closed.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    Stdio::from(writer)
}

fn assert_quiet(args: &[&str], output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*said), (Some(0), ""), "{args:?}");
}

#[test]
fn closed_stdout_ends_a_command_quietly() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("UTF-8");
    for args in [
        &["completion", "bash"][..],
        &["completion", "zsh"],
        &["--help"],
        &["submit", "--help"],
        &["down", "--data", data],
    ] {
        let output = muster(args).stdout(closed()).output().expect("it runs");
        assert_quiet(args, &output);
    }
}

#[test]
fn closed_stderr_keeps_the_exit_code() {
    let args = ["--server", "http://127.0.0.1:1", "--token", "t", "list"];
    let mut command = muster(&args);
    let status = command.stdout(Stdio::null()).stderr(closed()).status();
    assert_eq!(status.expect("it runs").code(), Some(5));
}

#[test]
fn login_reads_the_token_with_stderr_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = muster(&["--server", "http://127.0.0.1:1", "login"]);
    command.env("HOME", folder.path()).stdin(Stdio::piped());
    let mut child = command.stderr(closed()).spawn().expect("it runs");
    let mut answer = child.stdin.take().expect("a pipe");
    answer.write_all(b"token\n").expect("it reads");
    drop(answer);
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
}
