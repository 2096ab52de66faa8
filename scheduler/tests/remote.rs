//! Remote sessions: only the API server that stored a session and the node of its task meet.

use crate::support::{Greeting, Node, OWN, Shell, Store, TOKEN};
use muster_model::actor::Actor;
use muster_model::assignment::Observed;
use muster_model::event::Event;
use muster_model::id::{JobId, NodeId, RemoteSessionId, TaskId};
use muster_model::remote::{RemoteAction, RemoteEnd, RemoteFrame};
use muster_proto::session as proto;
use muster_proto::session::remote_piece::Piece;
use muster_proto::session::remote_sessions_client::RemoteSessionsClient;
use muster_proto::session::to_node::Message as To;
use muster_scheduler::clock;
use muster_scheduler::session::hash;
use muster_store::event::{self, EventFilter};
use muster_store::remote_session::{self, OpenedSession};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

const KEY: &str = "key of the session";

struct Stream {
    sender: mpsc::Sender<proto::RemotePiece>,
    pieces: Streaming<proto::RemotePiece>,
}

impl Stream {
    async fn send(&self, frame: Vec<u8>) {
        let piece = Some(Piece::Frame(frame));
        let _ = self.sender.send(proto::RemotePiece { piece }).await;
    }

    async fn next(&mut self) -> Option<RemoteFrame> {
        let next = tokio::time::timeout(Duration::from_secs(20), self.pieces.message()).await;
        let piece = next.expect("in time").ok()??;
        match piece.piece {
            Some(Piece::Frame(frame)) => Some(RemoteFrame::decode(&frame).expect("a frame")),
            other => panic!("not a frame: {other:?}"),
        }
    }
}

/// A running task and its node.
struct Cluster {
    store: Store,
    shell: Shell,
    node: Node,
    job: JobId,
    task: TaskId,
    node_id: NodeId,
}

impl Cluster {
    async fn new() -> Self {
        let store = Store::new().await;
        let shell = Shell::leading(&store, 30_000).await;
        let mut node = Node::greet(shell.address, &OWN).await.expect("welcome");
        let document = serde_json::json!({
            "version": "muster/v1", "name": "job", "command": { "argv": ["true"] },
        });
        let job = store.submit_document(document).await;
        let tasks = node.assignment(|tasks| tasks.len() == 1).await;
        node.report_all(&tasks, &Observed::Running).await;
        node.acknowledged().await;
        Self {
            task: tasks[0].launch.task_id,
            node_id: node.welcome.node_id.parse().expect("an id"),
            store,
            shell,
            node,
            job,
        }
    }

    async fn open(&self) -> RemoteSessionId {
        let now = clock::now();
        let session = OpenedSession {
            id: clock::id().into(),
            tenant: self.store.tenant(),
            job: self.job,
            task: self.task,
            node: self.node_id,
            rank: 0,
            action: RemoteAction::Exec {
                command: vec!["true".to_owned()],
                terminal: None,
            },
            by: Actor {
                user: "ada".to_owned(),
                as_administrator: false,
            },
            key: hash(KEY),
            opened_at: now,
            expires_at: now + Duration::from_secs(60),
        };
        let mut tx = self.store.as_member().await;
        let opened = remote_session::open(&mut tx, &session).await;
        opened.expect("within the limits");
        tx.commit().await.expect("committed");
        session.id
    }

    async fn order(&mut self) -> proto::OpenRemote {
        loop {
            if let To::OpenRemote(order) = self.node.next().await.expect("the session lives") {
                return order;
            }
        }
    }

    /// Ends in the history of the job.
    async fn ends(&self) -> Vec<RemoteEnd> {
        let mut tx = self.store.as_member().await;
        let filter = EventFilter {
            job_id: Some(self.job),
            node_id: None,
        };
        let page = event::page(&mut tx, filter, None, 200).await;
        let ends = page
            .expect("read")
            .rows
            .into_iter()
            .filter_map(|row| match row.event {
                Event::RemoteSessionEnded { end, .. } => Some(end),
                _ => None,
            });
        ends.collect()
    }

    async fn until_ended(&self, count: usize) -> Vec<RemoteEnd> {
        for _ in 0..400 {
            let ends = self.ends().await;
            if ends.len() >= count {
                return ends;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{count} ends are recorded: {:?}", self.ends().await);
    }
}

async fn stream(address: SocketAddr, first: Piece, is_client: bool) -> Result<Stream, Status> {
    let url = format!("http://{address}");
    let mut client = RemoteSessionsClient::connect(url)
        .await
        .expect("it listens");
    let (sender, messages) = mpsc::channel(4);
    let first = proto::RemotePiece { piece: Some(first) };
    sender.send(first).await.expect("open");
    let messages = ReceiverStream::new(messages);
    let pieces = if is_client {
        client.client(messages).await?
    } else {
        client.attach(messages).await?
    };
    Ok(Stream {
        sender,
        pieces: pieces.into_inner(),
    })
}

async fn claim(address: SocketAddr, id: RemoteSessionId, key: &str) -> Result<Stream, Status> {
    let claim = proto::ClaimRemote {
        session_id: id.to_string(),
        key: key.to_owned(),
    };
    stream(address, Piece::Claim(claim), true).await
}

async fn attach(
    address: SocketAddr,
    order: &proto::OpenRemote,
    (name, credential): (&str, &str),
) -> Result<Stream, Status> {
    let attach = proto::AttachRemote {
        session_id: order.session_id.clone(),
        key: order.key.clone(),
        node_name: name.to_owned(),
        credential: credential.to_owned(),
    };
    stream(address, Piece::Attach(attach), false).await
}

const PROOF: (&str, &str) = ("node-1", "own secret");

#[tokio::test]
async fn client_and_node_exchange_frames_to_the_end() {
    let mut cluster = Cluster::new().await;
    let address = cluster.shell.address;
    let id = cluster.open().await;
    let claimed = tokio::spawn(async move { claim(address, id, KEY).await });
    let order = cluster.order().await;
    assert_eq!(order.task_id, cluster.task.to_string());
    let mut node = attach(address, &order, PROOF)
        .await
        .expect("it is the node");
    let mut client = claimed.await.expect("ended").expect("claimed");
    client
        .send(RemoteFrame::Input(b"in".to_vec()).encode())
        .await;
    assert_eq!(node.next().await, Some(RemoteFrame::Input(b"in".to_vec())));
    let output = RemoteFrame::Output(vec![7; 64 << 10]);
    node.send(output.encode()).await;
    assert_eq!(client.next().await, Some(output));
    let end = RemoteEnd::Exited { code: 3 };
    node.send(RemoteFrame::Ended(end.clone()).encode()).await;
    assert_eq!(client.next().await, Some(RemoteFrame::Ended(end.clone())));
    assert_eq!(client.next().await, None);
    assert_eq!(node.next().await, None);
    assert_eq!(cluster.until_ended(1).await, [end]);
}

#[tokio::test]
async fn guessed_repeated_and_foreign_proofs_are_refused() {
    let mut cluster = Cluster::new().await;
    let address = cluster.shell.address;
    let other = Greeting {
        name: "node-2",
        identity: "folder-2",
        credential: "other secret",
        ..OWN
    };
    let _other = Node::greet(address, &other).await.expect("welcome");
    let id = cluster.open().await;
    let guessed = claim(address, id, "guess").await.map(drop);
    assert_eq!(guessed.expect_err("a guess").code(), Code::PermissionDenied);
    let unknown = claim(address, clock::id().into(), KEY).await.map(drop);
    assert_eq!(unknown.expect_err("unknown").code(), Code::PermissionDenied);

    let claimed = tokio::spawn(async move { claim(address, id, KEY).await });
    let order = cluster.order().await;
    let repeated = claim(address, id, KEY).await.map(drop);
    assert_eq!(repeated.expect_err("used").code(), Code::PermissionDenied);
    let wrong_key = proto::OpenRemote {
        key: "guess".to_owned(),
        ..order.clone()
    };
    for (order, proof) in [
        (&order, ("node-2", "other secret")),
        (&order, ("node-1", "other secret")),
        (&order, ("node-1", TOKEN)),
        (&wrong_key, PROOF),
    ] {
        let refused = attach(address, order, proof).await.map(drop);
        assert_eq!(refused.expect_err("refused").code(), Code::PermissionDenied);
    }
    let node = attach(address, &order, PROOF).await.expect("the node");
    let second = attach(address, &order, PROOF).await.map(drop);
    assert_eq!(second.expect_err("used").code(), Code::PermissionDenied);
    let client = claimed.await.expect("ended").expect("claimed");
    drop(client);
    let mut node = node;
    assert_eq!(node.next().await, None, "the client has left");
    assert_eq!(cluster.until_ended(1).await, [RemoteEnd::ClientGone]);
}

#[tokio::test]
async fn wrong_and_huge_frames_end_only_their_session() {
    let mut cluster = Cluster::new().await;
    let address = cluster.shell.address;
    let output = RemoteFrame::Output(b"x".to_vec()).encode();
    let wrong = [vec![0; 1 << 20], vec![1, 0xff, 0xff, 0xff, 0xff], output];
    for (number, frame) in wrong.into_iter().enumerate() {
        let id = cluster.open().await;
        let claimed = tokio::spawn(async move { claim(address, id, KEY).await });
        let order = cluster.order().await;
        let mut node = attach(address, &order, PROOF).await.expect("the node");
        let client = claimed.await.expect("ended").expect("claimed");
        client.send(frame).await;
        assert_eq!(node.next().await, None, "frame {number}");
        cluster.until_ended(number + 1).await;
    }
    // The node's session continues.
    cluster.node.heartbeat().await;
    cluster.node.until_acknowledged().await.expect("it lives");
}

#[tokio::test]
async fn session_ends_with_the_node_and_with_the_term() {
    let mut cluster = Cluster::new().await;
    let address = cluster.shell.address;
    let id = cluster.open().await;
    let claimed = tokio::spawn(async move { claim(address, id, KEY).await });
    let order = cluster.order().await;
    let node = attach(address, &order, PROOF).await.expect("the node");
    let mut client = claimed.await.expect("ended").expect("claimed");
    drop(node);
    let last = client.next().await;
    assert!(
        matches!(&last, Some(RemoteFrame::Ended(RemoteEnd::Failed { message })) if message.contains("node")),
        "{last:?}"
    );
    cluster.until_ended(1).await;

    // The next leader records the end of a session that was claimed.
    let id = cluster.open().await;
    let mut tx = muster_store::pool::begin(&cluster.store.pool)
        .await
        .expect("a transaction");
    let claimed = remote_session::claim(&mut tx, id, &hash(KEY), clock::now()).await;
    assert!(claimed.expect("read").is_some());
    tx.commit().await.expect("committed");
    let term = muster_scheduler::remote::end_abandoned(&cluster.store.pool);
    let ends = tokio::select! {
        ends = cluster.until_ended(2) => ends,
        () = term => unreachable!("it ends with the term"),
    };
    let changed = RemoteEnd::Failed {
        message: "the leading scheduler changed".to_owned(),
    };
    assert!(ends.contains(&changed), "{ends:?}");
}
