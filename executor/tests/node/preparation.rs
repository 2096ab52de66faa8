//! Code and Python environments of programs: a killed daemon, a killed task and a full disk while
//! they are fetched or made.

use crate::command::{alone, run};
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_model::spec::{code_folder, code_object};
use muster_model::task::Outcome;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Writes a wheel of the package `greeting` with some bytes that cannot be compressed.
const WHEEL: &str = r#"
import os, sys, zipfile
info = "greeting-1.0.dist-info"
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.writestr("greeting.py", "text = 'hello'\n")
    wheel.writestr("greeting.bin", os.urandom(int(sys.argv[2])))
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", "")
"#;

/// An index of packages that answers when it is no longer held.
struct Index {
    address: String,
    is_held: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
    _folder: tempfile::TempDir,
}

impl Index {
    fn start(bytes: usize, is_held: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let wheel = folder.path().join("greeting-1.0-py3-none-any.whl");
        let made = Command::new("python3")
            .args(["-c", WHEEL])
            .arg(&wheel)
            .arg(bytes.to_string())
            .status();
        assert!(made.expect("python3 runs").success());
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let index = Self {
            address: listener.local_addr().expect("bound").to_string(),
            is_held: Arc::new(AtomicBool::new(is_held)),
            requests: Arc::default(),
            _folder: folder,
        };
        let (is_held, requests) = (Arc::clone(&index.is_held), Arc::clone(&index.requests));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                requests.fetch_add(1, Ordering::SeqCst);
                let (wheel, is_held) = (wheel.clone(), Arc::clone(&is_held));
                thread::spawn(move || answer(stream, &wheel, &is_held));
            }
        });
        index
    }

    /// A program that needs the package.
    fn program(&self) -> Value {
        json!({
            "argv": ["python3", "-c", "import greeting; print(greeting.text, 'end', sep='\\n')"],
            "python": { "requirements": "requirements.txt" },
            "files": { "requirements.txt": "greeting==1.0\n" },
            "env": { "PIP_INDEX_URL": format!("http://{}/simple", self.address), "PIP_NO_CACHE_DIR": "1" },
        })
    }
}

fn answer(mut stream: TcpStream, wheel: &PathBuf, is_held: &AtomicBool) -> Option<()> {
    let mut line = String::new();
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    lines.read_line(&mut line).ok()?;
    let mut header = String::new();
    while lines.read_line(&mut header).ok()? > 2 {
        header.clear();
    }
    while is_held.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(10));
    }
    let (kind, body) = if line.contains(".whl") {
        ("application/octet-stream", fs::read(wheel).ok()?)
    } else {
        let name = "greeting-1.0-py3-none-any.whl";
        let page = format!("<!DOCTYPE html><a href=\"/{name}\">{name}</a>");
        ("text/html", page.into_bytes())
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&body).ok()
}

/// Runs a program that prints `end` last, and returns its log.
fn succeeds(site: &Site, generation: u64, task: TaskToAssign) -> String {
    let (outcome, log) = run(site, generation, task);
    assert_eq!(outcome, Outcome::exited(0), "{log}");
    log
}

/// Stores a code archive of one file of this many bytes and returns its SHA-256.
fn store(site: &Site, bytes: usize) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let mut noise = vec![0; bytes];
    let random = fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut noise));
    random.expect("random bytes");
    fs::write(folder.path().join("noise"), noise).expect("written");
    let packed = muster_archive::pack(folder.path()).expect("packed");
    let stored = site.path().join("checkpoints").join(code_folder(
        site.command(0, json!({ "argv": ["true"] }))
            .launch
            .tenant_id,
    ));
    fs::create_dir_all(&stored).expect("made");
    fs::write(stored.join(code_object(&packed.sha256)), &packed.bytes).expect("written");
    packed.sha256
}

fn sized(archive: &str) -> Value {
    json!({
        "argv": ["sh", "-c", "wc -c < noise; echo end"],
        "code": { "archive": archive },
    })
}

fn environments(site: &Site) -> Vec<String> {
    let tenants = fs::read_dir(site.data().join("environments")).expect("there");
    let inside = tenants.flat_map(|tenant| fs::read_dir(tenant.expect("one").path()).expect("one"));
    let names = inside.map(|entry| entry.expect("one").file_name().into_string().expect("text"));
    names.filter(|name| !name.ends_with(".lock")).collect()
}

#[test]
fn code_arrives_although_daemon_is_killed_meanwhile() {
    let mut site = Site::started(60_000, &[]);
    let archive = store(&site, 60 << 20);
    let task = alone(&site, 0, sized(&archive));
    site.scheduler.assign(1, std::slice::from_ref(&task));
    let is_fetching = || {
        let entries = fs::read_dir(site.data().join("code"));
        let mut names = entries.into_iter().flatten().flatten();
        names.any(|entry| entry.path().extension().is_some_and(|end| end == "half"))
    };
    site.until_it("it is being fetched", is_fetching);
    site.kill();
    site.start();
    assert_eq!(site.until_gone(&task), Outcome::exited(0));
    site.until_log_has(&task, &format!("{}\nend", 60 << 20));
    let cached = fs::read_dir(site.data().join("code")).expect("there");
    assert_eq!(cached.count(), 1, "no part of the first fetch is left");
    site.finish();
}

#[test]
fn environment_is_made_although_daemon_is_killed_meanwhile() {
    let index = Index::start(10, true);
    let mut site = Site::started(60_000, &[]);
    let task = alone(&site, 0, index.program());
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_it("pip asks", || index.requests.load(Ordering::SeqCst) > 0);
    site.kill();
    index.is_held.store(false, Ordering::SeqCst);
    site.start();
    assert_eq!(site.until_gone(&task), Outcome::exited(0));
    site.until_log_has(&task, "hello\nend");
    assert_eq!(environments(&site).len(), 1);
    site.finish();
}

#[test]
fn environment_of_killed_task_is_made_again() {
    let index = Index::start(10, true);
    let site = Site::started(60_000, &[]);
    let task = alone(&site, 0, index.program());
    site.scheduler.assign(1, std::slice::from_ref(&task));
    site.until_it("pip asks", || index.requests.load(Ordering::SeqCst) > 0);
    let shim = site.record(&task).task;
    assert!(shim.signal(rustix::process::Signal::KILL));
    assert!(!matches!(
        site.until_gone(&task),
        Outcome::Exited { code: 0, .. }
    ));
    index.is_held.store(false, Ordering::SeqCst);
    let log = succeeds(&site, 2, alone(&site, 1, index.program()));
    assert!(log.contains("installing") && log.contains("hello"), "{log}");
    let log = succeeds(&site, 3, alone(&site, 2, index.program()));
    assert!(!log.contains("installing"), "{log}");
    site.finish();
}

#[test]
fn code_without_space_names_it_and_leaves_room() {
    let site = Site::on_a_disk(8 << 10, 60_000, &["--disk-reserve-bytes", "0"]);
    let large = alone(&site, 0, sized(&store(&site, 6 << 20)));
    site.scheduler.assign(1, std::slice::from_ref(&large));
    let outcome = site.until_gone(&large);
    assert!(outcome.to_string().contains("No space left"), "{outcome}");
    let log = succeeds(&site, 2, alone(&site, 1, sized(&store(&site, 1000))));
    assert!(log.contains("1000"), "{log}");
    site.finish();
}

#[test]
fn environment_without_space_names_it_and_leaves_nothing() {
    let index = Index::start(9 << 20, false);
    let site = Site::on_a_disk(8 << 10, 60_000, &["--disk-reserve-bytes", "0"]);
    let task = alone(&site, 0, index.program());
    site.scheduler.assign(1, std::slice::from_ref(&task));
    let outcome = site.until_gone(&task).to_string();
    assert!(outcome.contains("pip install ended"), "{outcome}");
    assert!(outcome.contains("No space left"), "{outcome}");
    assert_eq!(environments(&site), Vec::<String>::new());
    let small = Index::start(10, false);
    succeeds(&site, 2, alone(&site, 1, small.program()));
    site.finish();
}
