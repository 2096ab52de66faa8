//! The scheduler's side of remote sessions, within this process.

use muster_executor::process::ProcessId;
use muster_model::remote::{INPUT_WINDOW_BYTES, RemoteEnd, RemoteFrame};
use muster_proto::session::remote_piece::Piece;
use muster_proto::session::remote_sessions_server::RemoteSessions;
use muster_proto::session::{AttachRemote, RemotePiece};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc as std_mpsc};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

type Pieces = ReceiverStream<Result<RemotePiece, Status>>;

/// Time limit of each wait; no test measures time by it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sessions that wait for the node, by id.
#[derive(Clone, Default)]
pub struct RemoteStub {
    waiting: Arc<Mutex<BTreeMap<String, std_mpsc::Sender<Attached>>>>,
}

struct Attached {
    attach: AttachRemote,
    pieces: Streaming<RemotePiece>,
    sender: mpsc::Sender<Result<RemotePiece, Status>>,
}

/// A session as the client sees it. Dropping it is the leaving of the client.
pub struct TestSession {
    pub attach: AttachRemote,
    handle: Handle,
    /// Bytes of input that may be sent now.
    window: Arc<AtomicUsize>,
    pieces: Streaming<RemotePiece>,
    sender: mpsc::Sender<Result<RemotePiece, Status>>,
}

/// Everything that a session has sent.
#[derive(Debug, Default)]
pub struct Received {
    pub has_started: bool,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
    pub end: Option<RemoteEnd>,
}

impl Received {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

/// A session that the node has not attached yet.
pub struct WaitingSession(std_mpsc::Receiver<Attached>);

impl RemoteStub {
    pub fn expect(&self, id: &str) -> WaitingSession {
        let (sender, receiver) = std_mpsc::channel();
        let mut waiting = self.waiting.lock().expect("not poisoned");
        waiting.insert(id.to_owned(), sender);
        WaitingSession(receiver)
    }
}

impl WaitingSession {
    pub fn attached(self, handle: Handle) -> TestSession {
        let attached = self.0.recv_timeout(PATIENCE);
        let Attached {
            attach,
            pieces,
            sender,
        } = attached.expect("the node attaches");
        TestSession {
            attach,
            handle,
            window: Arc::new(AtomicUsize::new(INPUT_WINDOW_BYTES)),
            pieces,
            sender,
        }
    }
}

impl TestSession {
    pub fn send(&self, frame: RemoteFrame) {
        self.send_bytes(frame.encode());
    }

    pub fn send_bytes(&self, frame: Vec<u8>) {
        let piece = Some(Piece::Frame(frame));
        let sent = self.sender.blocking_send(Ok(RemotePiece { piece }));
        sent.expect("the node reads");
    }

    /// Returns a function that sends frames from another thread.
    pub fn sender(&self) -> impl Fn(RemoteFrame) + Send + 'static {
        let (sender, window) = (self.sender.clone(), Arc::clone(&self.window));
        move |frame| {
            if let RemoteFrame::Input(data) = &frame {
                while window.load(Ordering::SeqCst) < data.len() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                window.fetch_sub(data.len(), Ordering::SeqCst);
            }
            let piece = Some(Piece::Frame(frame.encode()));
            let sent = sender.blocking_send(Ok(RemotePiece { piece }));
            sent.expect("the node reads");
        }
    }

    /// Returns the next frame; `None` once the stream has ended.
    pub fn next(&mut self) -> Option<RemoteFrame> {
        let next = async { tokio::time::timeout(PATIENCE, self.pieces.message()).await };
        let piece = self.handle.block_on(next).expect("a frame arrives").ok()?;
        match piece?.piece {
            Some(Piece::Frame(frame)) => Some(RemoteFrame::decode(&frame).expect("a frame")),
            other => panic!("not a frame: {other:?}"),
        }
    }

    /// Reads until the condition holds, or the session has ended.
    pub fn read_until(&mut self, received: &mut Received, is_so: impl Fn(&Received) -> bool) {
        while received.end.is_none() && !is_so(received) {
            match self.next() {
                Some(RemoteFrame::Started) => received.has_started = true,
                Some(RemoteFrame::Output(data)) => received.output.extend(data),
                Some(RemoteFrame::Errors(data)) => received.errors.extend(data),
                Some(RemoteFrame::Ended(end)) => received.end = Some(end),
                Some(RemoteFrame::InputTaken(bytes)) => {
                    self.window.fetch_add(bytes as usize, Ordering::SeqCst);
                }
                Some(RemoteFrame::OutputEnd) => {}
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    pub fn read_all(&mut self) -> Received {
        let mut received = Received::default();
        self.read_until(&mut received, |_| false);
        received
    }

    /// Reads the line of a program that prints its process id.
    pub fn process(&mut self) -> ProcessId {
        let mut received = Received::default();
        self.read_until(&mut received, |received| received.output.contains(&b'\n'));
        let text = received.text();
        let pid = text
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok());
        ProcessId::of(pid.expect("a process id")).expect("it runs")
    }
}

#[tonic::async_trait]
impl RemoteSessions for RemoteStub {
    type ClientStream = Pieces;
    type AttachStream = Pieces;

    async fn client(&self, _: Request<Streaming<RemotePiece>>) -> Result<Response<Pieces>, Status> {
        Err(Status::unimplemented("tests are the client"))
    }

    async fn attach(
        &self,
        request: Request<Streaming<RemotePiece>>,
    ) -> Result<Response<Pieces>, Status> {
        let mut pieces = request.into_inner();
        let first = pieces.message().await?.and_then(|first| first.piece);
        let Some(Piece::Attach(attach)) = first else {
            return Err(Status::invalid_argument("the first piece is Attach"));
        };
        let waiting = {
            let mut waiting = self.waiting.lock().expect("not poisoned");
            waiting.remove(&attach.session_id)
        };
        let waiting = waiting.ok_or_else(|| Status::permission_denied("none waits"))?;
        let (sender, outbound) = mpsc::channel(2);
        let attached = Attached {
            attach,
            pieces,
            sender,
        };
        let _ = waiting.send(attached);
        Ok(Response::new(ReceiverStream::new(outbound)))
    }
}
