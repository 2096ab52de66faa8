//! Remote sessions in tasks: commands, terminals, ports and copies.

use crate::command::introduce;
use crate::remote_stub::{Received, TestSession};
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_executor::process::ProcessId;
use muster_model::remote::{
    INPUT_WINDOW_BYTES, RemoteAction, RemoteEnd, RemoteFrame, Terminal, TerminalSize,
};
use muster_model::task::Outcome;
use serde_json::json;
use std::fs;
use std::net::TcpListener;

fn exec(command: &[&str]) -> RemoteAction {
    RemoteAction::Exec {
        command: command.iter().map(ToString::to_string).collect(),
        terminal: None,
    }
}

fn sh(script: &str) -> RemoteAction {
    exec(&["sh", "-c", script])
}

fn read(path: &str) -> RemoteAction {
    RemoteAction::Read {
        path: path.to_owned(),
    }
}

fn started(site: &Site, script: &str) -> TaskToAssign {
    let task = site.task(0, script);
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_running(&task);
    task
}

fn run(site: &Site, task: &TaskToAssign, action: &RemoteAction) -> Received {
    site.scheduler.open(task.id(), action).read_all()
}

fn refused(received: &Received) -> String {
    match &received.end {
        Some(RemoteEnd::Failed { message }) if !received.has_started => message.clone(),
        other => panic!("not refused: {other:?}"),
    }
}

fn end(site: Site, task: &TaskToAssign) {
    site.scheduler.assign(9, &[task.stopped()]);
    site.until_gone(task);
    site.finish();
}

fn until_dead(site: &Site, processes: &[ProcessId]) {
    site.until_it("the processes are gone", || {
        processes.iter().all(|process| !process.is_alive())
    });
}

#[test]
fn command_has_exit_code_streams_folder_and_environment() {
    let site = Site::started(10_000, &[]);
    let task = started(&site, "export LATER=1; cd /usr; echo up; exec sleep 1000");
    site.until_log_has(&task, "up");
    let script = "echo out; echo err >&2; echo $MUSTER_TASK_ID $PWD $LATER; exit 3";
    let mut session = site.scheduler.open(task.id(), &sh(script));
    let received = session.read_all();
    assert!(received.has_started);
    assert_eq!(received.end, Some(RemoteEnd::Exited { code: 3 }));
    assert_eq!(received.text(), format!("out\n{} /usr 1\n", task.id()));
    assert_eq!(received.errors, b"err\n");
    assert_eq!(session.attach.node_name, "node-a");
    let credential = site.scheduler.heard().hellos[0].credential.clone();
    assert_eq!(session.attach.credential, credential);

    let killed = run(&site, &task, &sh("kill -9 $$"));
    assert_eq!(killed.end, Some(RemoteEnd::Signalled { signal: 9 }));
    let missing = run(&site, &task, &exec(&["no-such-program"]));
    let message = refused(&missing);
    assert!(message.contains("no-such-program"), "{message}");
    end(site, &task);
}

#[test]
fn input_arrives_whole_and_its_end_too() {
    let site = Site::started(10_000, &[]);
    let task = started(&site, "exec sleep 1000");
    let session = site.scheduler.open(task.id(), &sh("cat; echo end >&2"));
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let (mut session, sent) = (session, data.clone());
    let sender = session.sender();
    let writes = std::thread::spawn(move || {
        for block in sent.chunks(50_000) {
            sender(RemoteFrame::Input(block.to_vec()));
        }
        sender(RemoteFrame::InputEnd);
    });
    let received = session.read_all();
    writes.join().expect("written");
    assert!(received.output == data, "{} bytes", received.output.len());
    assert_eq!(received.errors, b"end\n");
    assert_eq!(received.end, Some(RemoteEnd::Exited { code: 0 }));
    end(site, &task);
}

#[test]
fn terminal_has_a_size_that_changes() {
    let site = Site::started(10_000, &[]);
    let task = started(&site, "exec sleep 1000");
    let terminal = Terminal {
        name: "xterm-test".to_owned(),
        size: TerminalSize {
            rows: 33,
            columns: 111,
        },
    };
    let script = "stty size; echo $TERM; test -t 0 && tty > /dev/null && echo terminal; \
                  trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.1; done";
    let action = RemoteAction::Exec {
        command: ["sh", "-c", script].map(str::to_owned).into(),
        terminal: Some(terminal),
    };
    let mut session = site.scheduler.open(task.id(), &action);
    let mut received = Received::default();
    session.read_until(&mut received, |received| received.text().contains("ready"));
    let text = received.text();
    assert!(
        text.contains("33 111") && text.contains("xterm-test") && text.contains("terminal"),
        "{text}"
    );
    session.send(RemoteFrame::Resize(TerminalSize {
        rows: 44,
        columns: 55,
    }));
    session.read_until(&mut received, |_| false);
    assert!(received.text().contains("44 55"), "{}", received.text());
    assert_eq!(received.end, Some(RemoteEnd::Exited { code: 5 }));

    // Control characters reach the command as signals.
    let action = RemoteAction::Exec {
        command: ["sh", "-c", "echo $$; exec sleep 1000"]
            .map(str::to_owned)
            .into(),
        terminal: Some(Terminal {
            name: "dumb".to_owned(),
            size: TerminalSize {
                rows: 1,
                columns: 1,
            },
        }),
    };
    let mut session = site.scheduler.open(task.id(), &action);
    let process = session.process();
    session.send(RemoteFrame::Input(vec![3]));
    let received = session.read_all();
    assert_eq!(received.end, Some(RemoteEnd::Signalled { signal: 2 }));
    assert!(!process.is_alive());
    end(site, &task);
}

/// A command with a child in a session of its own, which ignores SIGHUP.
const STUBBORN: &str = "setsid sh -c 'trap \"\" HUP; echo $$; exec sleep 1000' & exec sleep 1001";

fn child_and_session(site: &Site, task: &TaskToAssign) -> (ProcessId, TestSession) {
    let mut session = site.scheduler.open(task.id(), &sh(STUBBORN));
    (session.process(), session)
}

#[test]
fn no_process_outlives_client_daemon_or_task() {
    let mut site = Site::started(10_000, &[]);
    let task = started(&site, "exec sleep 1000");
    // The client leaves.
    let (child, session) = child_and_session(&site, &task);
    drop(session);
    until_dead(&site, &[child]);
    // It also leaves while the command does not read its input.
    let mut session = site
        .scheduler
        .open(task.id(), &sh("echo $$; exec sleep 1000"));
    let child = session.process();
    let full = INPUT_WINDOW_BYTES / 8;
    for _ in 0..8 {
        session.send(RemoteFrame::Input(vec![0; full]));
    }
    drop(session);
    until_dead(&site, &[child]);
    // Input above the window ends the session.
    let mut session = site
        .scheduler
        .open(task.id(), &sh("echo $$; exec sleep 1000"));
    let child = session.process();
    for _ in 0..12 {
        session.send(RemoteFrame::Input(vec![0; full]));
    }
    let received = session.read_all();
    let more = "the client sent more input than it may".to_owned();
    assert_eq!(received.end, Some(RemoteEnd::Failed { message: more }));
    until_dead(&site, &[child]);
    // The command ends before its child.
    let script = "setsid sh -c 'echo $$; exec sleep 1000' & sleep 0.3";
    let mut session = site.scheduler.open(task.id(), &sh(script));
    let child = session.process();
    let received = session.read_all();
    assert_eq!(received.end, Some(RemoteEnd::Exited { code: 0 }));
    assert!(!child.is_alive());
    // The daemon is killed.
    let (child, session) = child_and_session(&site, &task);
    site.kill();
    until_dead(&site, &[child]);
    drop(session);
    site.start();
    site.until("the second session", |heard| heard.hellos.len() == 2);
    // The task ends. Its shim was adopted by the second daemon.
    let (child, mut session) = child_and_session(&site, &task);
    site.scheduler.assign(9, &[task.stopped()]);
    let received = session.read_all();
    assert!(
        matches!(&received.end, Some(RemoteEnd::Failed { message }) if message == "the task has ended"),
        "{:?}",
        received.end
    );
    site.until_gone(&task);
    until_dead(&site, &[child]);
    let late = run(&site, &task, &sh("true"));
    assert!(refused(&late).contains("does not run"));
    site.finish();
}

const SERVER: &str = r#"
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print("port", server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    data = b""
    while piece := connection.recv(65536):
        data += piece
    connection.sendall(data.upper())
    connection.close()
"#;

fn port_in(text: &str) -> u16 {
    let line = text.lines().find_map(|line| line.strip_prefix("port "));
    line.expect("a line").trim().parse().expect("a port")
}

fn echo(site: &Site, task: &TaskToAssign, port: u16) -> Received {
    let mut session = site.scheduler.open(task.id(), &RemoteAction::Port { port });
    session.send(RemoteFrame::Input(b"hello ".to_vec()));
    session.send(RemoteFrame::Input(b"port".to_vec()));
    session.send(RemoteFrame::InputEnd);
    session.read_all()
}

#[test]
fn only_ports_of_the_task_are_reachable() {
    let site = Site::started(10_000, &[]);
    fs::write(site.path().join("server.py"), SERVER).expect("written");
    let task = started(&site, "exec python3 $HOME/server.py");
    site.until_log_has(&task, "port ");
    let port = port_in(&site.scheduler.heard().log(task.id()));
    let received = echo(&site, &task, port);
    assert_eq!(received.text(), "HELLO PORT");
    assert_eq!(received.end, Some(RemoteEnd::Closed));

    let foreign = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = foreign.local_addr().expect("an address").port();
    let message = refused(&run(&site, &task, &RemoteAction::Port { port }));
    assert!(message.contains("outside of the task"), "{message}");
    drop(foreign);
    let message = refused(&run(&site, &task, &RemoteAction::Port { port }));
    assert!(
        message.contains("no process of the task listens"),
        "{message}"
    );

    // A server that was started in a session belongs to the task, and not to another one.
    let command = exec(&["sh", "-c", "exec python3 $HOME/server.py"]);
    let mut session = site.scheduler.open(task.id(), &command);
    let mut received = Received::default();
    session.read_until(&mut received, |received| received.output.contains(&b'\n'));
    let port = port_in(&received.text());
    assert_eq!(echo(&site, &task, port).text(), "HELLO PORT");
    let other = site.task(1, "exec sleep 1000");
    site.scheduler.assign(2, &[task.clone(), other.clone()]);
    site.until_running(&other);
    let message = refused(&run(&site, &other, &RemoteAction::Port { port }));
    assert!(message.contains("outside of the task"), "{message}");
    drop(session);
    site.scheduler.assign(9, &[task.stopped(), other.stopped()]);
    site.until_gone(&task);
    site.until_gone(&other);
    site.finish();
}

#[test]
fn files_are_copied_in_both_directions() {
    let site = Site::started(10_000, &[]);
    let script = "mkdir runs && echo loss > runs/log && ln -s /etc/passwd runs/link && echo up; exec sleep 1000";
    let task = started(&site, script);
    site.until_log_has(&task, "up");
    let copy = run(&site, &task, &read("runs"));
    assert_eq!(copy.end, Some(RemoteEnd::Exited { code: 0 }));
    let note = String::from_utf8_lossy(&copy.errors).into_owned();
    assert!(note.contains("runs/link"), "{note}");
    let names = copy.text();
    assert!(
        names.contains("runs/log") && !names.contains("root:"),
        "{names}"
    );

    let action = RemoteAction::Write {
        path: "runs".to_owned(),
    };
    let mut session = site.scheduler.open(task.id(), &action);
    for block in copy.output.chunks(1_000) {
        session.send(RemoteFrame::Input(block.to_vec()));
    }
    session.send(RemoteFrame::InputEnd);
    let received = session.read_all();
    assert_eq!(received.end, Some(RemoteEnd::Exited { code: 0 }));
    let list = run(&site, &task, &sh("cat runs/runs/log"));
    assert_eq!(list.text(), "loss\n");
    let missing = run(&site, &task, &read("nothing"));
    assert_eq!(missing.end, Some(RemoteEnd::Exited { code: 1 }));
    assert!(String::from_utf8_lossy(&missing.errors).contains("nothing"));
    end(site, &task);
}

#[test]
fn session_has_user_limits_and_view_of_its_task() {
    let site = Site::with_user_per_tenant(&[]);
    // The scripts of the other tests lie in the machine's `/tmp`, which this task does not see.
    let script = "echo of the task > /tmp/mark; echo up; exec sleep 1000";
    let mut task = site.command(0, json!({ "argv": ["sh", "-c", script] }));
    task.launch.tenant_number = Some(3);
    let mut tasks = [task];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    let [task] = tasks;
    site.until_log_has(&task, "up");
    let facts = "id -u; id -g; id -G; cat /tmp/mark; readlink /proc/self/ns/mnt; cat /proc/self/cgroup; ulimit -c; \
                 grep -E '^(NoNewPrivs|CapEff|CapPrm)' /proc/self/status";
    let received = run(&site, &task, &sh(facts));
    let program = site.record(&task).task;
    let of_program = |name: &str| {
        let path = format!("/proc/{}/{name}", program.pid);
        fs::read_to_string(&path)
            .unwrap_or_else(|_| fs::read_link(&path).expect("a link").display().to_string() + "\n")
    };
    let expected = format!(
        "200003\n200003\n200003\nof the task\n{}{}0\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n",
        of_program("ns/mnt"),
        of_program("cgroup"),
    );
    assert_eq!(received.text(), expected);
    assert!(!std::path::Path::new("/tmp/mark").exists());

    // Copies run as that user, too, and in its view.
    let secret = site.path().join("secret");
    fs::write(&secret, "x").expect("written");
    let copy = run(&site, &task, &read(&secret.display().to_string()));
    assert_eq!(copy.end, Some(RemoteEnd::Exited { code: 1 }));
    assert!(
        run(&site, &task, &read("/tmp/mark"))
            .text()
            .contains("of the task")
    );
    end(site, &task);
}

#[test]
fn wrong_frames_end_a_session_and_nothing_else() {
    let site = Site::started(10_000, &[]);
    let task = started(&site, "exec sleep 1000");
    for wrong in [
        vec![],
        vec![200, 0, 0, 0, 0],
        vec![1, 0xff, 0xff, 0xff, 0xff],
        vec![1, 0, 0, 0, 9, 1],
    ] {
        let mut session = site
            .scheduler
            .open(task.id(), &sh("echo $$; exec sleep 1000"));
        let child = session.process();
        session.send_bytes(wrong);
        let received = session.read_all();
        assert_eq!(received.end, Some(RemoteEnd::ClientGone));
        until_dead(&site, &[child]);
    }
    assert_eq!(
        run(&site, &task, &sh("exit 7")).end,
        Some(RemoteEnd::Exited { code: 7 })
    );
    site.scheduler.assign(9, &[task.stopped()]);
    assert!(matches!(
        site.until_gone(&task),
        Outcome::Signalled { .. } | Outcome::Exited { .. }
    ));
    site.finish();
}
