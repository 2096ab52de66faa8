//! Checkpoints of programs are recorded only for the node that runs rank 0.

use crate::support::{AssignedNode, node_task, own_task};
use muster_proto::session as proto;
use muster_proto::session::admit_checkpoint_answer::Verdict;
use tonic::Code;

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
    let assigned = AssignedNode::new().await;
    let (job, task) = (assigned.job, assigned.task.clone());
    let mut client = assigned.client.clone();
    let first = proto::FirstCheckpointRequest {
        task: own_task(&task),
    };
    let answer = client.first_checkpoint(first.clone()).await.expect("ours");
    assert_eq!(answer.into_inner().checkpoint, None);
    let keep = kept(own_task(&task), "step-10.pt");
    let answer = client.keep_checkpoint(keep).await.expect("kept");
    let answer = answer.into_inner();
    assert_eq!((answer.refused, answer.replaced.len()), (None, 0));
    let rows = answer.checkpoints;
    assert_eq!((rows.len(), rows[0].is_retained), (1, true));
    let admit = proto::AdmitCheckpointRequest {
        task: own_task(&task),
        declared: declared("step-10.pt"),
    };
    let answer = client.admit_checkpoint(admit).await.expect("ours");
    assert_eq!(answer.into_inner().verdict, Some(Verdict::Present(true)));
    let answer = client.first_checkpoint(first).await.expect("ours");
    let found = answer.into_inner().checkpoint.expect("its own");
    assert_eq!((found.job_id, found.step), (job.to_string(), 10));
    for (task, path, code) in [
        (node_task("other", &task), "a", Code::PermissionDenied),
        (own_task(&task), "../a", Code::InvalidArgument),
        (own_task(&task), ".muster-rungs/5", Code::InvalidArgument),
        (None, "a", Code::InvalidArgument),
    ] {
        let refused = client.keep_checkpoint(kept(task, path)).await;
        assert_eq!(refused.expect_err("refused").code(), code, "{path}");
    }
}
