//! A program can write its task's folder as the executor's user. Whichever files it replaces there,
//! the executor reads and writes no other file because of them, and continues with the node's other
//! tasks.

use crate::command::{introduce, told};
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::assignment::{Observed, TaskReport};
use muster_model::task::Outcome;
use serde_json::json;
use std::fs;
use std::path::PathBuf;

const SECRET: &str = "what only the executor may read, such as its service account's token\n";
/// All files that the executor or a shim opens in a task's folder.
const FILES: &str = "log log.00000000000000000000 events.jsonl exit.json shim.json shim.lock shim.err standing peers.json shipped.json driver.json stopping.json checkpoint-request.json token environment.json pod.json task.json";
/// End of a hostile task's script.
const WAIT: &str = "\ntouch done\nuntil [ -e go-on ]; do sleep 0.02; done\nexit 4\n";

fn secret(site: &Site) -> PathBuf {
    let path = site.path().join("secret");
    fs::write(&path, SECRET).expect("our own folder");
    path
}

/// Runs a task with this script, and another task beside it from its start to its end. Waits for
/// the end of the first one too.
fn beside_a_neighbour(site: &Site, script: &str) -> TaskToAssign {
    let begin = "echo up\nuntil [ -e begin ]; do sleep 0.02; done\n";
    let hostile = site.task(0, &format!("{begin}{script}{WAIT}"));
    site.scheduler.assign(1, std::slice::from_ref(&hostile));
    site.until_log_has(&hostile, "up");
    fs::write(site.task_folder(&hostile).join("begin"), "").expect("our own folder");
    let done = site.task_folder(&hostile).join("done");
    site.until_it("it has done its worst", || done.exists());
    let neighbour = site.task(1, "echo not disturbed; exit 3");
    site.scheduler
        .assign(2, &[hostile.clone(), neighbour.clone()]);
    assert_eq!(site.until_gone(&neighbour), Outcome::exited(3));
    site.until_log_has(&neighbour, "not disturbed");
    fs::write(site.task_folder(&hostile).join("go-on"), "").expect("our own folder");
    assert_eq!(site.until_gone(&hostile), Outcome::exited(4));
    hostile
}

fn is_noted(site: &Site, task: &TaskToAssign, what: &str) -> bool {
    told(site, task)
        .iter()
        .any(|report| matches!(report, TaskReport::Note { message } if message.contains(what)))
}

#[test]
fn link_in_place_of_the_log_is_not_shipped() {
    let site = Site::started(60_000, &[]);
    let path = secret(&site);
    let script = format!("rm log; ln -s '{}' log", path.display());
    let hostile = beside_a_neighbour(&site, &script);
    site.until("its owner is told", |heard| {
        let log = heard.log(hostile.id());
        assert_eq!(log, "up\n", "the log is the program's output and no more");
        let lines = heard.events.get(&hostile.id()).into_iter().flatten();
        lines
            .map(|(_, line)| line)
            .any(|line| line.contains("log is a link"))
    });
    site.finish();
}

#[test]
fn links_in_place_of_all_files_are_not_followed() {
    let mut site = Site::started(60_000, &[]);
    let path = secret(&site);
    let script = format!(
        r#"
daemon=$(cut -d ' ' -f 4 "/proc/$PPID/stat")
for file in {FILES}; do
    rm -f "$file"; ln -s '{secret}' "$file"
    for pid in $daemon $PPID; do ln -s '{secret}' ".$file.tmp-$pid"; done
done"#,
        secret = path.display()
    );
    let hostile = beside_a_neighbour(&site, &script);
    assert_eq!(fs::read_to_string(&path).expect("there"), SECRET);
    site.scheduler.assign(3, &[]);
    site.kill();
    site.start();
    site.until("the next daemon is there", |heard| heard.hellos.len() >= 2);
    let last = site.task(2, "echo later");
    site.scheduler.assign(4, std::slice::from_ref(&last));
    site.until_gone(&last);
    let heard = format!("{:?}", site.scheduler.heard());
    assert!(!heard.contains("service account"), "{heard}");
    assert!(
        !site.scheduler.heard().log(hostile.id()).contains("service"),
        "nothing is shipped of it"
    );
    assert_eq!(fs::read_to_string(&path).expect("there"), SECRET);
    site.finish();
}

#[test]
fn forged_end_is_ignored_while_the_task_runs() {
    let site = Site::started(60_000, &[]);
    let forge = r#"echo '{"kind":"exited","code":0}' > exit.json; rm -f shim.lock"#;
    // The last reported state is the real end, and it is reported once.
    let hostile = beside_a_neighbour(&site, forge);
    let heard = site.scheduler.heard();
    let ends = heard
        .statuses
        .iter()
        .filter(|(id, observed)| *id == hostile.id() && matches!(observed, Observed::Gone { .. }));
    assert_eq!(ends.count(), 1, "{:?}", heard.statuses);
    drop(heard);
    site.finish();
}

#[test]
fn forged_records_are_ignored_by_the_next_daemon() {
    let mut site = Site::started(60_000, &[]);
    let bystander = site.task(
        1,
        "echo up; until [ -e go-on ]; do sleep 0.02; done; exit 5",
    );
    let begin = "echo up; until [ -e begin ]; do sleep 0.02; done\n";
    // The forged `shim.json` names the bystander's processes.
    let script = r#"
echo '{"kind":"exited","code":0}' > exit.json
rm -f shim.lock
cp "../$(cat bystander)/shim.json" shim.json
touch done
until [ -e go-on ]; do sleep 0.02; done
exit 4"#;
    let hostile = site.task(0, &format!("{begin}{script}"));
    let tasks = [hostile.clone(), bystander.clone()];
    site.scheduler.assign(1, &tasks);
    for task in &tasks {
        site.until_log_has(task, "up");
    }
    let own = site.record(&hostile);
    let folder = site.task_folder(&hostile);
    fs::write(folder.join("bystander"), bystander.id().to_string()).expect("our own folder");
    site.kill();
    fs::write(folder.join("begin"), "").expect("our own folder");
    site.until_it("it has done its worst", || folder.join("done").exists());
    site.start();
    site.until_running_in_second_session(&[&hostile, &bystander]);
    // A stop reaches the task's own processes.
    site.scheduler
        .assign(2, &[hostile.stopped(), bystander.clone()]);
    site.until_gone(&hostile);
    assert!(!own.task.is_alive());
    fs::write(site.task_folder(&bystander).join("go-on"), "").expect("our own folder");
    assert_eq!(site.until_gone(&bystander), Outcome::exited(5));
    site.finish();
}

/// Reads of the daemon by a task of the same user. As root, every process could read every other.
#[test]
fn task_of_the_daemons_user_reads_none_of_its_secrets() {
    let site = Site::of_a_plain_user(60_000, &[]);
    let script = r#"
daemon=$(cut -d ' ' -f 4 "/proc/$PPID/stat")
for pid in $daemon $PPID; do
    cat "/proc/$pid/environ" >> stolen
    head -c 1 "/proc/$pid/mem" 2>> refused
    cat "/proc/$pid/maps" >> stolen
done
grep -q NoNewPrivs:.1 /proc/self/status && ulimit -H -c
exit 4"#;
    let task = site.task(0, script);
    site.scheduler.assign(1, std::slice::from_ref(&task));
    assert_eq!(site.until_gone(&task), Outcome::exited(4));
    let folder = site.task_folder(&task);
    assert_eq!(fs::read_to_string(folder.join("stolen")).expect("made"), "");
    let refused = fs::read_to_string(folder.join("refused")).expect("made");
    assert_eq!(refused.matches("Permission denied").count(), 2, "{refused}");
    // It gains no privileges and leaves no core dump.
    site.until_log_has(&task, "0\n");
    site.finish();
}

#[test]
fn pipes_in_place_of_files_do_not_block_the_executor() {
    let mut site = Site::started(60_000, &[]);
    let script = format!("for file in {FILES}; do rm -f \"$file\"; mkfifo \"$file\"; done");
    let hostile = beside_a_neighbour(&site, &script);
    site.scheduler.assign(3, &[]);
    site.kill();
    site.start();
    site.until("the next daemon is there", |heard| heard.hellos.len() >= 2);
    let last = site.task(2, "exit 5");
    site.scheduler.assign(4, std::slice::from_ref(&last));
    assert_eq!(site.until_gone(&last), Outcome::exited(5));
    assert!(site.scheduler.heard().log(hostile.id()).starts_with("up\n"));
    site.finish();
}

#[test]
fn folders_in_place_of_files_hide_no_end() {
    let site = Site::started(60_000, &[]);
    let script = format!("for file in {FILES}; do rm -f \"$file\"; mkdir -p \"$file/full\"; done");
    beside_a_neighbour(&site, &script);
    site.finish();
}

/// Sparse files, which take no space. A read of the whole file or of its first line would take
/// memory and minutes.
#[test]
fn endless_files_do_not_block_and_hide_no_end() {
    let site = Site::started(60_000, &[]);
    let script = "for file in events.jsonl standing stopping.json shipped.json token; do truncate -s 4T \"$file\"; done
truncate -s 4T false-end; mv false-end exit.json
truncate -s 1 log.18446744073709551615
echo '{\"kind\":\"note\",\"message\":\"x\"}' >> events.jsonl";
    let hostile = beside_a_neighbour(&site, script);
    site.until_it("its owner is told", || {
        is_noted(&site, &hostile, "without an end")
    });
    site.finish();
}

/// The shim reads slices from this file: a blocked shim would neither stop the program nor enforce
/// the lease.
#[test]
fn pipe_in_place_of_the_peers_does_not_prevent_a_stop() {
    let site = Site::started(60_000, &[]);
    let script = "rm ../peers.json; mkfifo ../peers.json; echo ready; exec sleep 600";
    let program = site.command(0, json!({ "argv": ["sh", "-c", script] }));
    let mut tasks = [program];
    site.scheduler.assign(1, &tasks);
    introduce(&site, &mut tasks);
    site.until_log_has(&tasks[0], "ready");
    site.scheduler.assign(3, &[tasks[0].stopped()]);
    assert_eq!(site.until_gone(&tasks[0]), Outcome::stopped());
    site.finish();
}
