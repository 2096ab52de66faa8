//! S3-compatible server of a test: moto, in the python3 that `scripts/ensure-s3` finds.
//!
//! Tests access it by plain HTTP requests, so that the client under test does not verify itself. It
//! checks no signatures.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};

const BUCKET: &str = "muster-test";

/// Ends with its input, so also when the test is killed.
const SERVER: &str = "
import sys, logging
logging.getLogger('werkzeug').setLevel(logging.ERROR)
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
";

/// Names the owner of the objects; the server reads only the name.
const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

/// A bucket, initially empty.
pub struct TestBucket {
    server: Child,
    _input: ChildStdin,
    address: String,
}

impl TestBucket {
    /// Starts the server. Fails if it is not installed.
    pub fn start() -> Self {
        let python = std::env::var("MUSTER_S3_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let probe = Command::new(&python)
            .args(["-c", "import moto.server, moto.s3.responses"])
            .output();
        assert!(
            probe.is_ok_and(|output| output.status.success()),
            "{python} has no moto; scripts/ensure-s3 gets one that has, for MUSTER_S3_PYTHON"
        );
        let mut server = Command::new(python)
            .args(["-c", SERVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let mut output = BufReader::new(server.stdout.take().unwrap());
        output.read_line(&mut port).unwrap();
        let bucket = Self {
            _input: server.stdin.take().unwrap(),
            server,
            address: format!("127.0.0.1:{}", port.trim()),
        };
        assert_eq!(bucket.request("PUT", "", b"").0, 200, "a bucket is made");
        bucket
    }

    /// Address in the format of a node's configuration.
    pub fn place(&self) -> String {
        format!("s3://{BUCKET}/some/prefix")
    }

    /// Environment variables by which a node reaches it.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// Sends a request. Returns status and body.
    pub fn request(&self, method: &str, target: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} /{BUCKET}{target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: {AUTHORIZATION}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_off(end + 4))
    }

    /// Keys of all objects below the prefix, without it.
    pub fn objects(&self) -> Vec<String> {
        let prefix = "some/prefix/";
        let (_, body) = self.request("GET", &format!("?list-type=2&prefix={prefix}"), b"");
        let keys = between(&String::from_utf8(body).unwrap(), "<Key>", "</Key>");
        keys.iter()
            .map(|key| key[prefix.len()..].to_owned())
            .collect()
    }

    /// Keys of multipart uploads that were started and neither completed nor aborted.
    pub fn uploads(&self) -> Vec<String> {
        let (_, body) = self.request("GET", "?uploads", b"");
        let body = String::from_utf8(body).unwrap();
        let uploads = between(&body, "<Upload>", "</Upload>").concat();
        between(&uploads, "<Key>", "</Key>")
    }

    pub fn read(&self, object: &str) -> Vec<u8> {
        let (status, body) = self.request("GET", &format!("/some/prefix/{object}"), b"");
        assert_eq!(status, 200, "{object}");
        body
    }

    pub fn write(&self, object: &str, bytes: &[u8]) {
        let (status, _) = self.request("PUT", &format!("/some/prefix/{object}"), bytes);
        assert_eq!(status, 200, "{object}");
    }
}

impl Drop for TestBucket {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn between(text: &str, open: &str, close: &str) -> Vec<String> {
    let after = text.split(open).skip(1);
    after
        .map(|rest| rest.split(close).next().unwrap().to_owned())
        .collect()
}
