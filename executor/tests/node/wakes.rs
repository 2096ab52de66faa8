//! A change of a task wakes the node loop. Without that, the next regular poll would find the
//! change up to a second later, and no other test would fail. So the test counts polls by their
//! cause and measures no durations.

use crate::metrics::{free_port, scraped};
use crate::site::Site;
use muster_model::task::Outcome;
use std::fs;

const TASKS: u32 = 6;
/// Minimum number of ends that wake the loop: a regular poll may find an end first.
const MOST_TASKS: u32 = 4;
const WORDS: u32 = 10;
/// Number of attempts: a regular poll may find an output line first.
const TRIES: u32 = 60;

#[test]
fn ends_and_output_of_tasks_wake_the_loop() {
    let at = free_port();
    let flags = [
        "--metrics-listen",
        &at.to_string(),
        "--report-interval-ms",
        "1",
    ];
    let site = Site::started(60_000, &flags);
    site.until_it("it listens", || std::net::TcpStream::connect(at).is_ok());
    let looks = || scraped(at)["muster_executor_looks_total{woken_by=\"task\"}"];
    assert!(looks() < 1.0, "there is no task");
    let mut woken = 0;
    for number in 0..TASKS {
        let silent = site.task(number, "until [ -e go-on ]; do sleep 0.02; done");
        site.scheduler
            .assign(u64::from(number) + 1, std::slice::from_ref(&silent));
        site.until_running(&silent);
        let before = looks();
        fs::write(site.task_folder(&silent).join("go-on"), "").expect("our own folder");
        assert_eq!(site.until_gone(&silent), Outcome::exited(0));
        woken += u32::from(looks() > before);
    }
    assert!(woken >= MOST_TASKS, "for {woken} ends of {TASKS}");

    let script = "i=0; while [ ! -e enough ]; do echo \"word $i.\"; until [ -e heard-$i ]; do sleep 0.01; done; i=$((i + 1)); done";
    let talker = site.task(0, script);
    site.scheduler
        .assign(u64::from(TASKS) + 1, std::slice::from_ref(&talker));
    site.until_log_has(&talker, "word 0.");
    let (before, folder) = (looks(), site.task_folder(&talker));
    let mut number = 0;
    while looks() < before + f64::from(WORDS) {
        assert!(number < TRIES, "for words: {} after {before}", looks());
        fs::write(folder.join(format!("heard-{number}")), "").expect("our own folder");
        number += 1;
        site.until_log_has(&talker, &format!("word {number}."));
    }
    fs::write(folder.join("enough"), "").expect("our own folder");
    fs::write(folder.join(format!("heard-{number}")), "").expect("our own folder");
    assert_eq!(site.until_gone(&talker), Outcome::exited(0));
    site.finish();
}
