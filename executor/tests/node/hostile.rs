//! A program may write its task's folder as the executor's own user. Whatever it puts there in a file's place, the executor reads nothing
//! else for it, writes nowhere else, and goes on with the other tasks of the node.

use crate::command::{introduce, told};
use crate::scheduler::Wanted;
use crate::site::Site;
use muster_model::assignment::{Observed, TaskReport};
use muster_model::task::Outcome;
use serde_json::json;
use std::fs;
use std::path::PathBuf;

const SECRET: &str = "what only the executor may read, such as its service account's token\n";
/// All that executor or shim open in a task's folder.
const FILES: &str = "log log.00000000000000000000 events.jsonl exit.json shim.json shim.lock shim.err standing peers.json shipped.json driver.json stopping.json token environment.json pod.json task.json";
/// What a task does once it has done its worst.
const WAIT: &str = "\ntouch done\nuntil [ -e go-on ]; do sleep 0.02; done\nexit 4\n";

fn secret(site: &Site) -> PathBuf {
    let path = site.path().join("secret");
    fs::write(&path, SECRET).expect("our own folder");
    path
}

/// Runs a task that does this, and another beside it from its beginning to its end; the first one's end is told as well.
fn beside_a_neighbour(site: &Site, script: &str) -> Wanted {
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

fn is_noted(site: &Site, task: &Wanted, what: &str) -> bool {
    told(site, task)
        .iter()
        .any(|report| matches!(report, TaskReport::Note { message } if message.contains(what)))
}

#[test]
fn a_link_in_place_of_a_tasks_log_ships_nothing_of_what_it_points_to() {
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
fn links_in_place_of_all_files_lead_the_executor_nowhere() {
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
fn forged_end_is_not_believed_while_the_task_runs() {
    let site = Site::started(60_000, &[]);
    let forge = r#"echo '{"kind":"exited","code":0}' > exit.json; rm -f shim.lock"#;
    // Its last state is what it really ends with, and it is told of once.
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
fn forged_records_are_not_believed_by_the_next_daemon() {
    let mut site = Site::started(60_000, &[]);
    let bystander = site.task(
        1,
        "echo up; until [ -e go-on ]; do sleep 0.02; done; exit 5",
    );
    let begin = "echo up; until [ -e begin ]; do sleep 0.02; done\n";
    // The file of its shim names the bystander's processes.
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
    site.until("the next daemon tells of both", |heard| {
        heard.hellos.len() >= 2 && heard.statuses.len() >= 4
    });
    assert_eq!(
        site.scheduler.heard().last(hostile.id()),
        Some(&Observed::Running)
    );
    // Told to stop, it is its own processes that stop.
    site.scheduler
        .assign(2, &[hostile.stopped(), bystander.clone()]);
    site.until_gone(&hostile);
    assert!(!own.task.is_alive());
    fs::write(site.task_folder(&bystander).join("go-on"), "").expect("our own folder");
    assert_eq!(site.until_gone(&bystander), Outcome::exited(5));
    site.finish();
}

/// What a task of the daemon's own user can read of it. As root every process can read every other.
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
    // It gains no rights, and leaves no core.
    site.until_log_has(&task, "0\n");
    site.finish();
}

#[test]
fn pipes_in_place_of_files_hold_up_nobody() {
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

/// Sparse, so that it takes no room: read whole, or to the end of its first line, it would take memory and minutes.
#[test]
fn files_without_end_hold_up_nobody_and_hide_no_end() {
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

/// The shim looks there for turns: one that waited would neither stop the program nor keep its lease.
#[test]
fn a_pipe_in_place_of_a_programs_peers_keeps_nobody_from_stopping_it() {
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
