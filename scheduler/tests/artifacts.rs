//! Artifacts are recorded only for the node that runs the task.

use crate::support::{Greeting, Node, Shell, Store, TOKEN};
use muster_proto::session as proto;
use muster_proto::session::admit_artifact_answer::Verdict;
use muster_proto::session::node_sessions_client::NodeSessionsClient;
use tonic::Code;
use tonic::transport::Channel;

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

const OBJECT: &str = "01900000-0000-7000-8000-000000000001";

fn of(credential: &str, task: &str) -> Option<proto::NodeTask> {
    Some(proto::NodeTask {
        node_name: "node-1".to_owned(),
        credential: credential.to_owned(),
        task_id: task.to_owned(),
    })
}

fn kept(task: Option<proto::NodeTask>, path: &str) -> proto::KeepArtifactRequest {
    proto::KeepArtifactRequest {
        task,
        path: path.to_owned(),
        object: OBJECT.to_owned(),
        bytes: 3,
        sha256: "a".repeat(64),
    }
}

async fn admitted(
    client: &mut NodeSessionsClient<Channel>,
    task: &str,
    sha256: &str,
) -> proto::AdmitArtifactAnswer {
    let request = proto::AdmitArtifactRequest {
        task: of("own secret", task),
        path: "plots/a.png".to_owned(),
        bytes: 3,
        sha256: sha256.to_owned(),
    };
    client
        .admit_artifact(request)
        .await
        .expect("ours")
        .into_inner()
}

#[tokio::test]
async fn node_of_the_task_records_artifacts() {
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
    let answer = admitted(&mut client, &task, "").await;
    assert_eq!(answer.job_id, job.to_string());
    assert!(matches!(answer.verdict, Some(Verdict::MostBytes(most)) if most > 1 << 30));
    let keep = kept(of("own secret", &task), "plots/a.png");
    let answer = client.keep_artifact(keep).await.expect("kept").into_inner();
    assert_eq!((answer.replaced.as_str(), answer.refused), ("", None));
    let answer = admitted(&mut client, &task, &"a".repeat(64)).await;
    assert_eq!(answer.verdict, Some(Verdict::Present(true)));
    let list = proto::ListArtifactsRequest {
        task: of("own secret", &task),
        prefix: "plots/".to_owned(),
        after: String::new(),
    };
    let listed = client
        .list_artifacts(list)
        .await
        .expect("ours")
        .into_inner();
    assert_eq!(listed.artifacts.len(), 1);
    assert_eq!(listed.artifacts[0].object, OBJECT);
    for (task, path, code) in [
        (of("other", &task), "a", Code::PermissionDenied),
        (of("own secret", OBJECT), "a", Code::PermissionDenied),
        (of("own secret", &task), "../a", Code::InvalidArgument),
        (None, "a", Code::InvalidArgument),
    ] {
        let refused = client.keep_artifact(kept(task, path)).await;
        assert_eq!(refused.expect_err("refused").code(), code, "{path}");
    }
    let remove = proto::RemoveArtifactRequest {
        task: of("own secret", &task),
        path: "plots/a.png".to_owned(),
    };
    let removed = client
        .remove_artifact(remove)
        .await
        .expect("ours")
        .into_inner();
    assert_eq!(removed.removed, OBJECT);
}
