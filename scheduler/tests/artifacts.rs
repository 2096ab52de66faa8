//! Artifacts are recorded only for the node that runs the task.

use crate::support::{AssignedNode, node_task, own_task};
use muster_proto::session as proto;
use muster_proto::session::admit_artifact_answer::Verdict;
use muster_proto::session::node_sessions_client::NodeSessionsClient;
use tonic::Code;
use tonic::transport::Channel;

const OBJECT: &str = "01900000-0000-7000-8000-000000000001";

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
        task: own_task(task),
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
    let assigned = AssignedNode::new().await;
    let (job, task) = (assigned.job, assigned.task.clone());
    let mut client = assigned.client.clone();
    let answer = admitted(&mut client, &task, "").await;
    assert_eq!(answer.job_id, job.to_string());
    assert!(matches!(answer.verdict, Some(Verdict::MostBytes(most)) if most > 1 << 30));
    let keep = kept(own_task(&task), "plots/a.png");
    let answer = client.keep_artifact(keep).await.expect("kept").into_inner();
    assert_eq!((answer.replaced.as_str(), answer.refused), ("", None));
    let answer = admitted(&mut client, &task, &"a".repeat(64)).await;
    assert_eq!(answer.verdict, Some(Verdict::Present(true)));
    let list = proto::ListArtifactsRequest {
        task: own_task(&task),
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
        (node_task("other", &task), "a", Code::PermissionDenied),
        (own_task(OBJECT), "a", Code::PermissionDenied),
        (own_task(&task), "../a", Code::InvalidArgument),
        (None, "a", Code::InvalidArgument),
    ] {
        let refused = client.keep_artifact(kept(task, path)).await;
        assert_eq!(refused.expect_err("refused").code(), code, "{path}");
    }
    let remove = proto::RemoveArtifactRequest {
        task: own_task(&task),
        path: "plots/a.png".to_owned(),
    };
    let removed = client
        .remove_artifact(remove)
        .await
        .expect("ours")
        .into_inner();
    assert_eq!(removed.removed, OBJECT);
}
