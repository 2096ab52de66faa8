//! Checkpoints of programs are recorded only for the node that runs rank 0.

use crate::support::{Greeting, Node, Shell, Store, TOKEN};
use muster_proto::session as proto;
use muster_proto::session::admit_checkpoint_answer::Verdict;
use muster_proto::session::node_sessions_client::NodeSessionsClient;
use tonic::Code;

const OWN: Greeting<'static> = Greeting {
    name: "node-1",
    token: TOKEN,
    gpus: 1,
    identity: "folder",
    credential: "own secret",
    generation: 0,
    takes_parts: true,
    memory_bytes: 64 << 30,
    pods: None,
};

fn of(credential: &str, task: &str) -> Option<proto::NodeTask> {
    Some(proto::NodeTask {
        node_name: "node-1".to_owned(),
        credential: credential.to_owned(),
        task_id: task.to_owned(),
    })
}

fn declared(path: &str) -> Option<proto::DeclaredCheckpoint> {
    Some(proto::DeclaredCheckpoint {
        step: 10,
        path: path.to_owned(),
        bytes: 3,
        file_count: 1,
        is_found: false,
    })
}

fn kept(task: Option<proto::NodeTask>, path: &str) -> proto::KeepCheckpointRequest {
    proto::KeepCheckpointRequest {
        task,
        declared: declared(path),
        object: String::new(),
        sha256: String::new(),
        metrics: [("val/f1".to_owned(), 0.5), ("bad\n".to_owned(), 1.0)].into(),
        age_ms: 5,
    }
}

#[tokio::test]
async fn node_of_rank_0_records_checkpoints() {
    let store = Store::new().await;
    let mut shell = Shell::start_with(&store, 30_000, |_| {}).await;
    shell.until_it_leads().await;
    let mut node = Node::greet(shell.address, &OWN).await.expect("welcome");
    let document = serde_json::json!({
        "version": "muster/v1", "name": "job", "command": { "argv": ["true"] },
    });
    let job = store.submit_document(document).await;
    let tasks = node.assignment(|tasks| tasks.len() == 1).await;
    let task = tasks[0].launch.task_id.to_string();
    let url = format!("http://{}", shell.address);
    let mut client = NodeSessionsClient::connect(url).await.expect("it listens");
    let first = proto::FirstCheckpointRequest {
        task: of("own secret", &task),
    };
    let answer = client.first_checkpoint(first.clone()).await.expect("ours");
    assert_eq!(answer.into_inner().checkpoint, None);
    let keep = kept(of("own secret", &task), "step-10.pt");
    let answer = client.keep_checkpoint(keep).await.expect("kept");
    let answer = answer.into_inner();
    assert_eq!((answer.refused, answer.replaced.len()), (None, 0));
    let rows = answer.checkpoints;
    assert_eq!((rows.len(), rows[0].is_retained), (1, true));
    let admit = proto::AdmitCheckpointRequest {
        task: of("own secret", &task),
        declared: declared("step-10.pt"),
    };
    let answer = client.admit_checkpoint(admit).await.expect("ours");
    assert_eq!(answer.into_inner().verdict, Some(Verdict::Present(true)));
    let answer = client.first_checkpoint(first).await.expect("ours");
    let found = answer.into_inner().checkpoint.expect("its own");
    assert_eq!((found.job_id, found.step), (job.to_string(), 10));
    for (task, path, code) in [
        (of("other", &task), "a", Code::PermissionDenied),
        (of("own secret", &task), "../a", Code::InvalidArgument),
        (
            of("own secret", &task),
            ".muster-rungs/5",
            Code::InvalidArgument,
        ),
        (None, "a", Code::InvalidArgument),
    ] {
        let refused = client.keep_checkpoint(kept(task, path)).await;
        assert_eq!(refused.expect_err("refused").code(), code, "{path}");
    }
}
