//! Programs in images of a real registry, on a node without a container runtime.

use crate::command::{alone, introduce, run, told};
use crate::isolation::{VICTIM, program_of, start_victim};
use crate::registry::{Registry, busybox, one_file};
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::assignment::TaskReport;
use muster_model::id::JobId;
use muster_model::task::Outcome;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use uuid::Uuid;

/// Returns a program in an image, as the only worker of its own job.
fn in_image(site: &Site, slot: u32, image: &str, command: Value) -> TaskToAssign {
    let mut task = alone(site, slot, command);
    task.launch.spec.pod.image = Some(image.to_owned());
    task.launch.job_id = JobId(Uuid::from_u128(100 + u128::from(slot)));
    task.launch.tenant_number = Some(slot);
    task
}

fn settings(registry: &Registry) -> Vec<&str> {
    vec!["--insecure-registries", &registry.address]
}

/// What a program finds in its image, as lines of NAME=VALUE.
const LOOK: &str = "
echo uid=$(id -u)
echo work=$(pwd)
echo image=$(cat /etc/of-image)
echo in_image=$IN_IMAGE own=$OWN path=$PATH
echo root=$(ls -A / | wc -l) home_of_root=$(ls -A /root | wc -l)
test -e /home && echo sees=/home
test -e /usr && echo sees=/usr
ls $DATA && ls -A $DATA
ls $DATA/tasks
echo $MUSTER_TASK_DIR && test -r $MUSTER_TASK_DIR/task.json && echo folder=yes
echo x > $MUSTER_CHECKPOINT_DIR/x && echo checkpoints=written
echo x > $HOME/x && echo home=written
echo x > /tmp/x && echo tmp=written
echo x > /etc/x || echo etc=refused
echo x > /dev/null && echo null=written
test -d /dev/shm && ls /dev
echo end";

fn look(site: &Site, generation: u64, slot: u32, image: &str) -> String {
    let data = site.data().display().to_string();
    let command = json!({ "argv": ["sh", "-c", LOOK], "env": { "OWN": "1", "DATA": data } });
    let (outcome, log) = run(site, generation, in_image(site, slot, image, command));
    assert!(
        matches!(outcome, Outcome::Exited { code: 0, .. }),
        "{outcome}: {log}"
    );
    for expected in [
        "image=hello",
        "work=/srv/work",
        "in_image=yes own=1 path=/bin",
        "home_of_root=0",
        "folder=yes",
        "checkpoints=written",
        "home=written",
        "tmp=written",
        "etc=refused",
        "null=written",
        "sha256:",
    ] {
        assert!(log.contains(expected), "{expected:?} is not in {log}");
    }
    assert!(!log.contains("sees="), "{log}");
    // Of the executor's data folder it sees its own task.
    assert!(
        !log.contains("credential") && !log.contains("shims"),
        "{log}"
    );
    log
}

#[test]
fn program_runs_in_image_as_its_tenant() {
    let registry = Registry::start();
    registry.push("base:1", vec![busybox(), one_file("opt/x", b"x")]);
    let site = Site::with_user_per_tenant(&settings(&registry));
    let greeting = site.scheduler.heard().hellos[0].capacity_json.clone();
    assert!(
        greeting.contains(r#""images":{"kind":"able"}"#),
        "{greeting}"
    );
    let log = look(&site, 1, 7, &registry.name("base:1"));
    assert!(log.contains("uid=200007"), "{log}");
    assert!(log.contains("2 of 2 layers"), "{log}");
    site.finish();
}

#[test]
fn program_runs_in_image_as_user_of_executor() {
    let registry = Registry::start();
    registry.push("base:1", vec![busybox()]);
    let flags = settings(&registry);
    let site = Site::started(60_000, &flags);
    let log = look(&site, 1, 0, &registry.name("base:1"));
    let own = rustix::process::geteuid().as_raw();
    assert!(log.contains(&format!("uid={own}\n")), "{log}");
    site.finish();
    // In a user namespace.
    let site = Site::of_a_plain_user(60_000, &flags);
    let log = look(&site, 1, 0, &registry.name("base:1"));
    assert!(!log.contains("uid=0\n"), "{log}");
    site.finish();
}

/// Runs all attempts of a tenant's program in an image against the victim's task, and returns those
/// that succeeded.
fn attack(tenant: u32) -> BTreeSet<String> {
    let registry = Registry::start();
    registry.push("base:1", vec![busybox()]);
    let site = Site::with_user_per_tenant(&settings(&registry));
    let mut victims = [program_of(&site, 0, 0, &["python3", "-c", VICTIM])];
    site.scheduler.assign(1, &victims);
    introduce(&site, &mut victims);
    let [victim] = victims;
    let said = start_victim(&site, &victim);
    let folder = site.task_folder(&victim).display().to_string();
    let (data, daemon) = (
        site.data().display().to_string(),
        site.daemon_pid().to_string(),
    );
    let script = include_str!("escape.sh");
    let argv = [
        "sh", "-c", script, "escape", &said[0], &folder, &said[2], &data, &daemon,
    ];
    let name = registry.name("base:1");
    let mut attacker = in_image(&site, 1, &name, json!({ "argv": argv }));
    attacker.launch.tenant_id = Uuid::from_u128(2 + u128::from(tenant)).into();
    attacker.launch.tenant_number = Some(tenant);
    site.scheduler
        .assign(3, &[victim.clone(), attacker.clone()]);
    let outcome = site.until_gone(&attacker);
    site.until_log_has(&attacker, "attempts: ");
    let log = site.scheduler.heard().log(attacker.id());
    assert!(
        matches!(outcome, Outcome::Exited { code: 0, .. }),
        "{outcome}: {log}"
    );
    eprintln!("{log}");
    assert!(log.contains("attempts: 33"), "{log}");
    site.scheduler.assign(4, &[victim.stopped()]);
    site.until_gone(&victim);
    site.finish();
    log.lines()
        .filter_map(|line| line.strip_suffix(": SUCCEEDED"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn program_in_image_reaches_nothing_of_another_tenant() {
    assert_eq!(attack(1), BTreeSet::new());
}

/// The attempts are real: processes of the same tenant are reached.
#[test]
fn program_in_image_reaches_processes_of_its_tenant() {
    let reached = attack(0);
    let reached: Vec<&str> = reached.iter().map(String::as_str).collect();
    let own = [
        "list_folder_of_process",
        "list_root_of_process",
        "read_arguments",
        "read_environment",
        "send_signal",
    ];
    for expected in own {
        assert!(
            reached.contains(&expected),
            "{expected} is not in {reached:?}"
        );
    }
    let refused = [
        "write_image_as_writable",
        "unmount_root",
        "create_device",
        "signal_shim",
    ];
    assert!(
        refused.iter().all(|name| !reached.contains(name)),
        "{reached:?}"
    );
}

#[test]
fn second_start_uses_cached_image() {
    let mut registry = Registry::start();
    registry.push("base:1", vec![busybox()]);
    let mut site = Site::started(60_000, &settings(&registry));
    let name = registry.name("base:1");
    look(&site, 1, 0, &name);
    // The next image shares a layer with it.
    registry.push("base:2", vec![busybox(), one_file("opt/x", b"x")]);
    let log = look(&site, 3, 1, &registry.name("base:2"));
    assert!(log.contains("1 of 2 layers"), "{log}");
    registry.stop();
    site.kill();
    site.start();
    let log = look(&site, 5, 2, &name);
    assert!(log.contains("cannot be reached"), "{log}");
    assert!(!log.contains("pulling"), "{log}");
    site.finish();
}

#[test]
fn program_in_image_is_stopped_within_its_grace() {
    let registry = Registry::start();
    registry.push("base:1", vec![busybox()]);
    let site = Site::with_user_per_tenant(&settings(&registry));
    let script = "trap 'echo stopped; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let deaf = "trap '' TERM; sleep 600 & echo ready; wait; wait; sleep 600";
    let name = registry.name("base:1");
    let tasks = [script, deaf].map(|script| {
        let slot = u32::from(script == deaf);
        in_image(&site, slot, &name, json!({ "argv": ["sh", "-c", script] }))
    });
    site.scheduler.assign(1, &tasks);
    for task in &tasks {
        site.until_log_has(task, "ready");
    }
    let stopped = tasks.clone().map(|task| task.stopped());
    site.scheduler.assign(3, &stopped);
    site.until_log_has(&tasks[0], "stopped");
    let outcome = site.until_gone(&tasks[0]);
    assert!(
        matches!(outcome, Outcome::Stopped { killed: false, .. }),
        "{outcome}"
    );
    let outcome = site.until_gone(&tasks[1]);
    assert!(
        matches!(outcome, Outcome::Stopped { killed: true, .. }),
        "{outcome}"
    );
    site.finish();
}

#[test]
fn image_that_cannot_be_had_names_the_reason() {
    let registry = Registry::start();
    registry.push("base:1", vec![one_file("x", b"x")]);
    registry.push_for("other:1", vec![busybox()], "s390x");
    let mut flags = settings(&registry);
    flags.extend(["--image-patience-ms", "300"]);
    let site = Site::started(60_000, &flags);
    let fails = |slot, image: &str, reasons: &[&str]| {
        let command = json!({ "argv": ["/bin/sh"] });
        let task = in_image(&site, slot, image, command);
        let (outcome, log) = run(&site, 1 + 2 * u64::from(slot), task.clone());
        let all = format!("{outcome} {log} {:?}", told(&site, &task));
        for reason in reasons {
            assert!(all.contains(reason), "{reason:?} is not in {all}");
        }
        told(&site, &task)
    };
    let missing = fails(
        0,
        &registry.name("none:1"),
        &["has no image", &registry.address],
    );
    let ends = |report: &TaskReport| {
        matches!(
            report,
            TaskReport::Failed {
                retryable: false,
                ..
            }
        )
    };
    assert!(missing.iter().any(ends), "{missing:?}");
    fails(
        1,
        &registry.name("other:1"),
        &["linux/s390x", "this node is linux/"],
    );
    fails(
        2,
        "127.0.0.1:1/x:1",
        &["registry 127.0.0.1:1 cannot be reached"],
    );
    let lacks = fails(3, &registry.name("base:1"), &["in image", "\"/bin/sh\""]);
    assert!(lacks.iter().any(ends), "{lacks:?}");
    site.finish();
}

#[test]
fn pull_of_killed_daemon_leaves_nothing_broken() {
    let registry = Registry::start();
    registry.push(
        "base:1",
        vec![busybox(), one_file("opt/x", &vec![7; 3 << 20])],
    );
    let mut site = Site::started(60_000, &settings(&registry));
    let name = registry.name("base:1");
    registry.hold(true);
    let command = json!({ "argv": ["sh", "-c", "echo $IN_IMAGE; echo end"] });
    let task = in_image(&site, 0, &name, command);
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_log_has(&task, "image ");
    let unfinished = site.data().join("images/unfinished");
    // As a pull that was interrupted while it unpacked.
    fs::create_dir_all(unfinished.join("half/fs/bin")).expect("made");
    site.kill();
    registry.hold(false);
    site.start();
    let (outcome, log) = run(&site, 2, task);
    assert!(
        matches!(outcome, Outcome::Exited { code: 0, .. }),
        "{outcome}: {log}"
    );
    assert!(log.contains("yes\nend"), "{log}");
    assert_eq!(fs::read_dir(&unfinished).expect("there").count(), 0);
    site.finish();
}

#[test]
fn image_without_space_is_refused_and_leaves_nothing() {
    let registry = Registry::start();
    let mut noise = vec![0_u8; 6 << 20];
    for (index, byte) in noise.iter_mut().enumerate() {
        *byte = (index.wrapping_mul(2_654_435_761) >> 13) as u8;
    }
    registry.push("large:1", vec![busybox(), one_file("opt/x", &noise)]);
    registry.push("base:1", vec![busybox()]);
    let mut flags = settings(&registry);
    flags.extend(["--disk-reserve-bytes", "0"]);
    let site = Site::on_a_disk(8 << 10, 60_000, &flags);
    let command = json!({ "argv": ["sh", "-c", "echo end"] });
    let task = in_image(&site, 0, &registry.name("large:1"), command.clone());
    let (outcome, log) = run(&site, 1, task);
    assert!(outcome.is_refusal(), "{outcome}: {log}");
    assert!(outcome.to_string().contains("No space left"), "{outcome}");
    let images = site.data().join("images");
    assert_eq!(
        fs::read_dir(images.join("whole")).expect("there").count(),
        0
    );
    assert_eq!(
        fs::read_dir(images.join("unfinished"))
            .expect("there")
            .count(),
        0
    );
    // Layers of the failed pull make room for the next one.
    let task = in_image(&site, 1, &registry.name("base:1"), command);
    let (outcome, log) = run(&site, 3, task);
    assert!(
        matches!(outcome, Outcome::Exited { code: 0, .. }),
        "{outcome}: {log}"
    );
    site.finish();
}
