//! Messages between node and scheduler that do not concern single tasks.

use crate::site::Site;
use muster_model::assignment::Observed;
use muster_model::node::{Capacity, GpuKind};
use muster_model::task::Outcome;
use std::os::unix::fs::PermissionsExt as _;

const WAITING: &str = "trap 'exit 0' TERM; while :; do sleep 0.02; done";

#[test]
fn hello_contains_identity_and_capacity() {
    let site = Site::started(10_000, &[]);
    site.until("it is in session", |heard| !heard.hellos.is_empty());
    let hello = site.scheduler.heard().hellos[0].clone();
    let capacity: Capacity = serde_json::from_str(&hello.capacity_json).expect("a capacity");
    assert_eq!((hello.node_name.as_str(), hello.generation), ("node-a", 0));
    assert_eq!(
        capacity
            .gpus
            .iter()
            .map(|gpu| (gpu.index, gpu.kind))
            .collect::<Vec<_>>(),
        [
            (0, GpuKind::CpuSlot),
            (1, GpuKind::CpuSlot),
            (2, GpuKind::CpuSlot),
            (3, GpuKind::CpuSlot)
        ]
    );
    assert!(capacity.memory_bytes > 0 && capacity.cpu_milli >= 1_000 && !hello.boot_id.is_empty());
    assert_eq!(hello.credential.len(), 64);
    site.finish();
}

#[test]
fn credential_is_private_and_survives_restarts() {
    let mut site = Site::started(10_000, &[]);
    site.until("it is in session", |heard| !heard.hellos.is_empty());
    let file = site.path().join("data/credential");
    let mode = file.metadata().expect("it is kept").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    site.kill();
    site.start();
    site.until("it is back", |heard| heard.hellos.len() >= 2);
    let heard = site.scheduler.heard();
    assert_eq!(heard.hellos[0].credential, heard.hellos[1].credential);
    drop(heard);
    site.finish();
}

#[test]
fn older_generation_is_refused_also_after_a_restart() {
    let mut site = Site::started(60_000, &[]);
    let (kept, never, later) = (
        site.task(0, WAITING),
        site.task(1, "exit 0"),
        site.task(2, "exit 0"),
    );
    site.scheduler.assign(5, std::slice::from_ref(&kept));
    site.until_running(&kept);
    site.scheduler.assign(4, std::slice::from_ref(&never));
    site.scheduler.assign(5, &[kept.clone(), later.clone()]);
    site.until_gone(&later);
    assert!(site.record(&kept).task.is_alive() && !site.task_folder(&never).exists());
    site.scheduler.assign(4, std::slice::from_ref(&never));
    site.kill();
    site.start();
    site.until("it is back", |heard| {
        heard.hellos.len() == 2 && heard.hellos[1].generation == 5
    });
    let last = site.task(3, "exit 0");
    site.scheduler.assign(6, &[kept.clone(), last.clone()]);
    site.until_gone(&last);
    assert!(site.record(&kept).task.is_alive() && !site.task_folder(&never).exists());
    site.scheduler.assign(7, &[]);
    assert_eq!(site.until_gone(&kept), Outcome::exited(0));
    site.finish();
}

#[test]
fn acknowledged_task_is_forgotten_and_its_folder_pruned() {
    let site = Site::started(10_000, &["--keep-ended-tasks", "1"]);
    let (first, second) = (site.task(0, "echo a"), site.task(1, "echo b"));
    site.scheduler.assign(1, &[first.clone(), second.clone()]);
    site.until_gone(&first);
    site.until_gone(&second);
    site.until_log_has(&first, "a");
    site.until_log_has(&second, "b");
    assert!(
        site.task_folder(&first).exists(),
        "kept as long as it is assigned"
    );
    site.scheduler.assign(2, std::slice::from_ref(&second));
    site.scheduler.assign(3, &[]);
    site.until_it("one folder is left", || {
        site.task_folder(&first).exists() != site.task_folder(&second).exists()
    });
    let told = site.scheduler.heard().statuses.len();
    site.scheduler.cut();
    site.scheduler.come_back();
    site.until("it is back", |heard| heard.hellos.len() >= 2);
    let third = site.task(2, "exit 0");
    site.scheduler.assign(4, std::slice::from_ref(&third));
    site.until_gone(&third);
    let heard = site.scheduler.heard();
    assert!(
        heard.statuses[told..]
            .iter()
            .all(|(id, _)| *id == third.id()),
        "{:?}",
        heard.statuses
    );
    drop(heard);
    site.finish();
}

#[test]
fn reports_are_repeated_after_the_scheduler_lost_them() {
    let site = Site::started(60_000, &[]);
    let script = r#"echo '{"kind":"finished","step":9,"reason":"steps","model_path":"m"}' >> events.jsonl; echo said"#;
    let (forgotten, ended, running) = (
        site.task(0, script),
        site.task(1, script),
        site.task(2, WAITING),
    );
    let all = [forgotten.clone(), ended.clone(), running.clone()];
    site.scheduler.assign(1, &all);
    for task in [&forgotten, &ended] {
        site.until_gone(task);
        site.until("its log is told", |heard| heard.log(task.id()) == "said\n");
    }
    site.until_running(&running);
    site.scheduler.assign(2, &[ended.clone(), running.clone()]);
    site.until_it("it is forgotten", || {
        let shipped = site.task_folder(&forgotten).join("shipped.json");
        std::fs::read_to_string(shipped).is_ok_and(|text| !text.contains("null"))
    });

    site.scheduler.cut();
    site.scheduler.lose();
    site.scheduler.assign(3, &all);
    site.scheduler.come_back();
    for task in [&forgotten, &ended] {
        site.until("its end and its last event are told again", |heard| {
            let events = heard.events.get(&task.id());
            let is_finished = events.is_some_and(|events| events[&0].contains("finished"));
            is_finished && matches!(heard.last(task.id()), Some(Observed::Gone { .. }))
        });
        site.until("its log is told again", |heard| {
            heard.log(task.id()) == "said\n"
        });
    }
    assert!(
        site.record(&running).task.is_alive(),
        "it is not started twice"
    );
    site.scheduler.assign(4, &[]);
    site.until_gone(&running);
    site.finish();
}

#[test]
fn data_folder_has_one_executor() {
    let site = Site::started(10_000, &[]);
    site.until("it is in session", |heard| !heard.hellos.is_empty());
    let mut second = site.spawn();
    assert!(!second.wait().expect("ended").success());
    let log = std::fs::read_to_string(site.path().join("daemon.log")).expect("written");
    assert!(
        log.contains("another executor uses the data folder"),
        "{log}"
    );
    site.finish();
}

#[test]
fn node_erases_the_files_of_one_job_on_request() {
    const TENANT: &str = "00000000-0000-0000-0000-000000000001";
    const JOB: &str = "00000000-0000-0000-0000-000000000002";
    const OTHER: &str = "00000000-0000-0000-0000-000000000003";
    let site = Site::started(10_000, &[]);
    site.until("it is in session", |heard| !heard.hellos.is_empty());
    assert!(site.scheduler.heard().hellos[0].erases);
    let of_tenant = site.path().join("checkpoints").join(TENANT);
    for job in [JOB, OTHER] {
        let step = of_tenant.join(job).join("step-0000000001-r1");
        std::fs::create_dir_all(&step).expect("made");
        std::fs::write(step.join("model.safetensors"), "x").expect("written");
    }
    site.scheduler.erase(TENANT, JOB);
    site.until("it has erased", |heard| heard.erased.len() == 1);
    assert!(!of_tenant.join(JOB).exists());
    assert!(of_tenant.join(OTHER).join("step-0000000001-r1").exists());
    site.scheduler.erase(TENANT, "../../data");
    site.until("it has answered", |heard| heard.erased.len() == 2);
    let heard = site.scheduler.heard();
    assert_eq!(heard.erased[0].error, "");
    assert!(heard.erased[1].error.contains("expected a UUID"));
    drop(heard);
    assert!(site.path().join("data").exists());
    site.finish();
}
