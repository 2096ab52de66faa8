//! Minimal HTTP client, so that the cores are left to the API server and Postgres. It keeps one
//! connection, sends one request at a time and reuses its buffers.

use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub struct KeepAliveClient {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl KeepAliveClient {
    /// Connects, for repeated posts of `document`.
    pub async fn connect(
        address: SocketAddr,
        token: &str,
        path: &str,
        document: &str,
    ) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{document}",
            document.len()
        );
        Ok(Self {
            stream,
            request: request.into_bytes(),
            answer: Vec::with_capacity(16 << 10),
        })
    }

    /// Sends the request and reads the whole answer, which must be 201.
    pub async fn post(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.request).await?;
        self.answer.clear();
        let head = loop {
            let count = self.stream.read_buf(&mut self.answer).await?;
            ensure!(count > 0, "the api closed the connection");
            if let Some(end) = self
                .answer
                .windows(4)
                .position(|bytes| bytes == b"\r\n\r\n")
            {
                break end + 4;
            }
        };
        let text = str::from_utf8(&self.answer[..head])?.to_ascii_lowercase();
        let length: usize = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .context("an answer with a length")?
            .trim()
            .parse()?;
        while self.answer.len() < head + length {
            let count = self.stream.read_buf(&mut self.answer).await?;
            ensure!(count > 0, "the api closed the connection");
        }
        ensure!(
            text.starts_with("http/1.1 201"),
            "expected 201, got {}",
            String::from_utf8_lossy(&self.answer)
        );
        Ok(())
    }
}
