//! Metrics of a daemon.

use crate::site::Site;
use muster_model::task::Outcome;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

const WAITING: &str = "trap 'exit 0' TERM; while :; do sleep 0.02; done";

/// Returns an address on which nothing listens at present.
pub fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound")
}

/// Returns every series with its value.
pub fn scraped(at: SocketAddr) -> BTreeMap<String, f64> {
    let mut connection = TcpStream::connect(at).expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
    connection.write_all(request.as_bytes()).expect("asked");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("answered");
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    let lines = text.lines().filter(|line| line.starts_with("muster_"));
    let series = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        (name.to_owned(), value.parse().expect("a number"))
    });
    series.collect()
}

/// Waits until the series has this value.
fn until_is(site: &Site, at: SocketAddr, name: &str, value: f64) {
    site.until_it(&format!("{name} is {value}"), || {
        scraped(at)
            .get(name)
            .is_some_and(|there| (there - value).abs() < 1e-9)
    });
}

#[test]
fn metrics_show_tasks_ends_gpus_and_session() {
    let at = free_port();
    let listen = at.to_string();
    let mut site = Site::started(10_000, &["--metrics-listen", &listen]);
    let worker = site.task(0, WAITING);
    let failing = site.task(1, "exit 3");
    let good = site.task(2, "exit 0");
    let program = site.command(3, serde_json::json!({ "argv": ["sleep", "600"] }));
    let all = [
        worker.clone(),
        failing.clone(),
        good.clone(),
        program.clone(),
    ];
    site.scheduler.assign(1, &all);
    site.until_running(&worker);
    site.until_running(&program);
    assert_eq!(site.until_gone(&failing), Outcome::exited(3));
    assert_eq!(site.until_gone(&good), Outcome::exited(0));
    until_is(&site, at, "muster_executor_connected", 1.0);
    until_is(&site, at, "muster_executor_sessions_total", 1.0);
    until_is(&site, at, "muster_executor_lease_seconds", 10.0);
    until_is(&site, at, "muster_executor_gpus", 4.0);
    until_is(&site, at, "muster_executor_gpus_held", 2.0);
    until_is(&site, at, "muster_executor_tasks{kind=\"worker\"}", 1.0);
    until_is(&site, at, "muster_executor_tasks{kind=\"command\"}", 1.0);
    until_is(&site, at, "muster_executor_tasks{kind=\"ps_shard\"}", 0.0);
    until_is(
        &site,
        at,
        "muster_executor_task_launches_total{kind=\"worker\"}",
        3.0,
    );
    until_is(
        &site,
        at,
        "muster_executor_task_launches_total{kind=\"command\"}",
        1.0,
    );
    until_is(
        &site,
        at,
        "muster_executor_task_ends_total{outcome=\"failed\"}",
        1.0,
    );
    until_is(
        &site,
        at,
        "muster_executor_task_ends_total{outcome=\"succeeded\"}",
        1.0,
    );
    let age_s = scraped(at)["muster_executor_heartbeat_age_seconds"];
    assert!((0.0..10.0).contains(&age_s), "{age_s}");

    site.scheduler.cut();
    until_is(&site, at, "muster_executor_connected", 0.0);
    let (before, mut after) = (scraped(at), scraped(at));
    let age = "muster_executor_heartbeat_age_seconds";
    while after[age] <= before[age] {
        after = scraped(at);
    }
    site.scheduler.come_back();
    until_is(&site, at, "muster_executor_connected", 1.0);
    until_is(&site, at, "muster_executor_sessions_total", 2.0);

    // The next daemon knows the earlier ends and does not count them again.
    let started = scraped(at)["muster_executor_started_timestamp_seconds"];
    site.kill();
    site.start();
    site.until_it("it listens again", || TcpStream::connect(at).is_ok());
    until_is(&site, at, "muster_executor_tasks{kind=\"worker\"}", 1.0);
    let anew = scraped(at);
    assert!(anew["muster_executor_started_timestamp_seconds"] > started);
    assert!(
        anew.keys().all(|name| !name.contains("_ends_total")),
        "{anew:?}"
    );
    site.scheduler
        .assign(2, &[worker.stopped(), program.stopped()]);
    let _ = site.until_gone(&worker);
    let _ = site.until_gone(&program);
    until_is(&site, at, "muster_executor_gpus_held", 0.0);
    site.finish();
}

#[test]
fn used_metrics_address_is_reported_with_its_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("bound").to_string();
    let site = Site::new(10_000, &["--metrics-listen", &listen]);
    let mut daemon = site.spawn();
    assert!(!daemon.wait().expect("reaped").success());
    let log = std::fs::read_to_string(site.path().join("daemon.log")).expect("a log");
    assert!(
        log.contains(&format!(
            "cannot listen at {listen}, the setting metrics_listen"
        )),
        "{log}"
    );
}
