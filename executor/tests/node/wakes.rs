//! What becomes of a task is looked at because the loop is told of it, and not at its next look in any case, which comes too: that would be up to
//! a second late and no other test would notice. So looks are counted by what has woken the loop, however long each of them takes to come.

use crate::metrics::{free_port, scraped};
use crate::site::Site;
use muster_model::task::Outcome;
use std::fs;

const TASKS: u32 = 6;
/// A look that was due may come just before.
const MOST_TASKS: u32 = 4;
const WORDS: u32 = 10;
/// Tries for them: a word may be seen by a look that was due.
const TRIES: u32 = 60;

#[test]
fn ends_and_words_of_tasks_wake_the_loop() {
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
