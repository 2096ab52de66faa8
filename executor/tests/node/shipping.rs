//! Logs and events on their way to the scheduler.

use crate::site::Site;
use muster_model::assignment::Observed;
use muster_model::task::Outcome;
use std::fs;

#[test]
fn rotated_log_arrives_complete_and_in_order() {
    let site = Site::started(60_000, &["--log-part-bytes", "5000", "--log-parts", "3"]);
    // Slow enough for the daemon to keep up: parts that rotate away unread are lost by design.
    let script =
        "i=0; while [ $i -lt 100 ]; do printf '%0499d\\n' $i; i=$((i + 1)); sleep 0.02; done";
    let task = site.task(0, script);
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_gone(&task);
    site.until("the log is whole", |heard| {
        heard.log(task.id()).len() == 50_000
    });
    let expected: String = (0..100).map(|line| format!("{line:0499}\n")).collect();
    assert_eq!(site.scheduler.heard().log(task.id()), expected);
    let parts = fs::read_dir(site.task_folder(&task))
        .expect("listed")
        .flatten();
    let parts: Vec<_> = parts
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("log"))
        .collect();
    assert_eq!(parts.len(), 3);
    assert!(
        parts
            .iter()
            .all(|part| part.metadata().expect("there").len() <= 5_500)
    );
    site.finish();
}

#[test]
fn flood_of_output_is_bounded_and_delays_no_state() {
    let site = Site::started(60_000, &[]);
    let flood = site.task(
        0,
        "head -c 20000000 /dev/zero | tr '\\0' x; while :; do sleep 0.02; done",
    );
    let other = site.task(1, "exit 6");
    site.scheduler.assign(1, &[flood.clone(), other.clone()]);
    assert_eq!(site.until_gone(&other), Outcome::exited(6));
    site.until("all of it is there", |heard| {
        heard.log(flood.id()).len() == 20_000_000
    });
    assert!(site.scheduler.heard().largest_report_bytes < 1 << 20);
    site.scheduler.assign(2, &[]);
    assert_eq!(site.until_gone(&flood), Outcome::signalled(15));
    site.finish();
}

/// Otherwise the scheduler would take a finished task for one that vanished.
#[test]
fn end_is_reported_after_the_last_event() {
    let site = Site::started(60_000, &[]);
    let script = r#"
awk 'BEGIN { for (i = 0; i < 40000; i++) printf "{\"kind\":\"note\",\"message\":\"%0200d\"}\n", i }' >> events.jsonl
echo '{"kind":"finished","step":9,"reason":"steps","model_path":"m"}' >> events.jsonl
printf 'half a li' >> events.jsonl
"#;
    let task = site.task(0, script);
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until("it is gone", |heard| {
        let is_gone = matches!(heard.last(task.id()), Some(Observed::Gone { .. }));
        assert!(
            !is_gone || heard.events[&task.id()].len() == 40_001,
            "gone before its last event"
        );
        is_gone
    });
    assert!(site.scheduler.heard().events[&task.id()][&40_000].contains("finished"));
    site.finish();
}

/// Otherwise a reader that follows the log would end before the last lines, which often contain the
/// reason of a failure.
#[test]
fn end_is_reported_after_the_rest_of_the_log() {
    let site = Site::started(60_000, &[]);
    let tasks: Vec<_> = (0..6)
        .map(|index| {
            let script = format!("echo first; sleep 0.{}; echo last; exit 3", 30 + 3 * index);
            site.task(index, &script)
        })
        .collect();
    site.scheduler.assign(1, &tasks);
    site.until("all are gone", |heard| {
        tasks.iter().all(|task| {
            let is_gone = matches!(heard.last(task.id()), Some(Observed::Gone { .. }));
            let log = heard.log(task.id());
            assert!(!is_gone || log == "first\nlast\n", "gone after {log:?}");
            is_gone
        })
    });
    site.finish();
}
