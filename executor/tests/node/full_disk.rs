//! A disk that one task fills: the other tasks continue, the node reports it, and accepts tasks
//! again once there is space.

use crate::site::Site;
use muster_model::assignment::Observed;
use muster_model::task::Outcome;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

const PATIENT: &str = "echo up; until [ -e go-on ]; do sleep 0.02; done; exit 3";
/// Number of heartbeats of more than two leases; a lease has five.
const TWO_LEASES: u64 = 12;

/// Fills the disk of the data folder completely.
fn fill(site: &Site) -> PathBuf {
    let path = site.data().join("filler");
    let mut file = fs::File::create(&path).expect("made");
    for piece in [64 << 10, 4_096, 1] {
        while file.write_all(&vec![1; piece]).is_ok() {}
    }
    path
}

#[test]
fn lease_generation_and_ends_are_written_on_a_full_disk() {
    let flags = ["--disk-reserve-bytes", "0"];
    let mut site = Site::on_a_disk(4_096, 1_500, &flags);
    let task = site.task(0, PATIENT);
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_log_has(&task, "up");
    let go_on = site.task_folder(&task).join("go-on");
    fs::File::create(&go_on).expect("an inode for later");
    fs::rename(&go_on, site.task_folder(&task).join("held")).expect("kept");
    let filler = fill(&site);
    let before = site.scheduler.heard().heartbeats;
    site.until("two leases are over", |heard| {
        heard.heartbeats > before + TWO_LEASES
    });
    assert!(site.record(&task).task.is_alive(), "its lease was extended");
    let late = site.task(1, "exit 0");
    site.scheduler.assign(2, &[task.clone(), late.clone()]);
    let refused = site.until_gone(&late);
    assert!(refused.is_refusal(), "{refused}");
    fs::rename(site.task_folder(&task).join("held"), &go_on).expect("told");
    assert_eq!(site.until_gone(&task), Outcome::exited(3));
    let exit = fs::read_to_string(site.task_folder(&task).join("exit.json")).expect("written");
    assert_eq!(exit, r#"{"kind":"exited","code":3}"#);
    site.kill();
    site.start();
    site.until("the generation was kept", |heard| {
        let hello = heard.hellos.get(1);
        hello.is_some_and(|hello| hello.generation == 2)
    });
    fs::remove_file(filler).expect("removed");
    let last = site.task(2, "exit 5");
    site.scheduler.assign(3, std::slice::from_ref(&last));
    assert_eq!(site.until_gone(&last), Outcome::exited(5));
    site.finish();
}

#[test]
fn node_without_space_refuses_tasks_and_recovers_by_itself() {
    let flags = ["--disk-reserve-bytes", "1048576"];
    let site = Site::on_a_disk(4_096, 10_000, &flags);
    let filler = fill(&site);
    site.until("the node says so", |heard| {
        let told = heard.unfit.last().is_some_and(|why| !why.is_empty());
        told && heard.unfit.len() <= 2
    });
    let why = site.scheduler.heard().unfit.last().cloned();
    let why = why.expect("just heard");
    assert!(
        why.contains("free of 4.0 MiB; it takes tasks again above 1.0 MiB"),
        "{why}"
    );
    let task = site.task(0, "exit 0");
    site.scheduler.assign(1, std::slice::from_ref(&task));
    assert_eq!(site.until_gone(&task), Outcome::refused(why));
    fs::remove_file(filler).expect("removed");
    site.until("the node takes tasks again", |heard| {
        heard.unfit.last().is_some_and(String::is_empty)
    });
    let task = site.task(0, "exit 6");
    site.scheduler.assign(2, std::slice::from_ref(&task));
    assert_eq!(site.until_gone(&task), Outcome::exited(6));
    site.finish();
}

#[test]
fn task_that_fills_the_disk_ends_and_others_continue() {
    let flags = ["--disk-reserve-bytes", "2097152"];
    let site = Site::on_a_disk(8_192, 2_000, &flags);
    let neighbour = site.task(0, PATIENT);
    let fill = "mkdir deep; dd if=/dev/zero of=deep/big bs=64k; while :; do sleep 0.02; done";
    let greedy = site.task(1, fill);
    site.scheduler
        .assign(1, &[neighbour.clone(), greedy.clone()]);
    let end = site.until_gone(&greedy);
    let told = end.to_string();
    assert!(told.contains("the most of the 2 tasks there"), "{told}");
    assert!(!end.is_node_fault(), "the job pays: {told}");
    assert_eq!(
        site.scheduler.heard().last(neighbour.id()),
        Some(&Observed::Running)
    );
    site.scheduler.assign(2, std::slice::from_ref(&neighbour));
    site.until(
        "its folder is gone, and the node takes tasks again",
        |heard| heard.unfit.len() > 1 && heard.unfit.last().is_some_and(String::is_empty),
    );
    fs::write(site.task_folder(&neighbour).join("go-on"), "").expect("there is space");
    assert_eq!(site.until_gone(&neighbour), Outcome::exited(3));
    site.finish();
}

#[test]
fn task_over_its_disk_limit_ends_with_the_reason() {
    let site = Site::started(60_000, &["--task-disk-bytes", "1048576"]);
    let (small, large) = (
        site.task(0, PATIENT),
        site.task(
            1,
            "dd if=/dev/zero of=big bs=64k count=48; while :; do sleep 0.02; done",
        ),
    );
    site.scheduler.assign(1, &[small.clone(), large.clone()]);
    let told = site.until_gone(&large).to_string();
    assert!(
        told.contains("its folder holds 3.0 MiB, the limit is 1.0 MiB"),
        "{told}"
    );
    fs::write(site.task_folder(&small).join("go-on"), "").expect("our own folder");
    assert_eq!(site.until_gone(&small), Outcome::exited(3));
    site.finish();
}

/// Runs as any user: the disk is not full, but the generation cannot be stored.
#[test]
fn assignment_waits_until_its_generation_is_stored() {
    let site = Site::started(60_000, &[]);
    site.until("it is in session", |heard| {
        heard.heartbeats > 0 || !heard.hellos.is_empty()
    });
    let in_the_way = site.data().join("generation");
    fs::remove_file(&in_the_way).expect("made at the start");
    fs::create_dir(&in_the_way).expect("our own folder");
    let task = site.task(0, "exit 4");
    site.scheduler.assign(1, std::slice::from_ref(&task));
    let log = site.path().join("daemon.log");
    site.until_it("it has tried", || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        log.matches("an assignment waits").count() >= 2
    });
    assert_eq!(site.scheduler.heard().last(task.id()), None);
    fs::remove_dir(&in_the_way).expect("our own folder");
    assert_eq!(site.until_gone(&task), Outcome::exited(4));
    site.finish();
}
