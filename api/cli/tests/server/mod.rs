//! A test server that selects its answer by the start of the request line, and `muster` as its
//! client.
#![allow(dead_code, reason = "each test program uses a part")]

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

pub struct Server {
    address: SocketAddr,
    /// Request lines without the protocol, each with its body.
    heard: Arc<Mutex<Vec<(String, String)>>>,
}

impl Server {
    /// Starts a server. A string is sent as an event stream, other values as JSON. Requests without
    /// an answer get 404.
    pub fn new<'a>(answers: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let answers = answers.into_iter();
        let answers: Vec<(String, Value)> = answers
            .map(|(start, answer)| (start.to_owned(), answer))
            .collect();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("an address");
        let address = listener.local_addr().expect("an address");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.expect("a connection"), &answers, &hears);
            }
        });
        Self { address, heard }
    }

    /// Returns the exit code and the output on stdout and stderr.
    pub fn muster(&self, arguments: &[&str]) -> (i32, String) {
        self.muster_with(arguments, "")
    }

    /// The same with this standard input.
    pub fn muster_with(&self, arguments: &[&str], input: &str) -> (i32, String) {
        self.muster_in(arguments, input, &[])
    }

    /// The same with these environment variables.
    pub fn muster_in(
        &self,
        arguments: &[&str],
        input: &str,
        variables: &[(&str, &str)],
    ) -> (i32, String) {
        let home = tempfile::tempdir().expect("a folder");
        let server = format!("http://{}", self.address);
        let mut child = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(["--server", &server, "--token", "t"])
            .args(arguments)
            .env_clear()
            .env("HOME", home.path())
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A command that does not read it may have ended.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        let (out, err) = (output.stdout, output.stderr);
        let said = [out, err].concat();
        let said = String::from_utf8(said).expect("text");
        (output.status.code().expect("it ends by itself"), said)
    }

    /// Returns the request lines of a method.
    pub fn asked(&self, method: &str) -> Vec<String> {
        let heard = self.heard.lock().expect("nobody panics");
        let heard = heard.iter().map(|(line, _)| line.clone());
        heard.filter(|line| line.starts_with(method)).collect()
    }

    /// Returns the body of the only request with this start.
    pub fn body(&self, start: &str) -> Value {
        let heard = self.heard.lock().expect("nobody panics");
        let mut bodies = heard.iter().filter(|(line, _)| line.starts_with(start));
        let (_, body) = bodies.next().expect("it was asked");
        assert!(bodies.next().is_none(), "asked twice: {start}");
        serde_json::from_str(body).expect("JSON")
    }
}

fn answer(stream: TcpStream, answers: &[(String, Value)], heard: &Mutex<Vec<(String, String)>>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a request");
    let (mut header, mut length) = (String::new(), 0);
    while reader.read_line(&mut header).expect("a header") > 2 {
        let lower = header.to_ascii_lowercase();
        if let Some(bytes) = lower.strip_prefix("content-length:") {
            length = bytes.trim().parse().expect("a number");
        }
        header.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let found = answers.iter().find(|(start, _)| line.starts_with(start));
    let body = String::from_utf8(body).expect("text");
    heard.lock().expect("nobody panics").push((line, body));
    let json = "application/json";
    let (status, kind, body) = match found {
        Some((_, Value::String(events))) => ("200 OK", "text/event-stream", events.clone()),
        Some((_, answer)) if answer.get("status").is_some_and(|status| status == 422) => {
            let problem = "application/problem+json";
            ("422 Unprocessable Content", problem, answer.to_string())
        }
        Some((_, answer)) => ("200 OK", json, answer.to_string()),
        None => (
            "404 Not Found",
            json,
            json!({ "type": "urn:muster:problem:not-found", "title": "Not found", "status": 404 })
                .to_string(),
        ),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n");
    // The client may have closed the connection.
    let _ = write!(
        reader.get_mut(),
        "{head}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
}

pub fn id(number: u32) -> String {
    format!("00000000-0000-7000-8000-{number:012}")
}

/// Returns a job of two to four workers with one GPU each.
pub fn job(number: u32, name: &str, phase: &str) -> Value {
    let state = match phase {
        "failed" => json!({ "phase": "failed", "reason": "code 3" }),
        _ => json!({ "phase": phase }),
    };
    json!({
        "id": id(number), "tenant": "vision", "name": name, "labels": {}, "priority": 0, "phase": phase, "state": state,
        "intent": "run", "revision": 0, "failures": 0, "waiting": null,
        "workers": { "running": 2, "min": 2, "max": 4 }, "ps_shards": { "running": 0, "min": 0, "max": 0 },
        "progress": null, "model_path": null, "failure": null, "resume_step": null, "submitted_by": "ada",
        "submitted_at": "2026-01-01T00:00:30Z", "started_at": null, "finished_at": null,
        "spec": {
            "version": "muster/v1", "name": name, "scale": { "workers": { "min": 2, "max": 4 } }, "resources": { "worker": { "gpus": 1 } },
            "command": { "argv": ["true"] },
        },
    })
}
