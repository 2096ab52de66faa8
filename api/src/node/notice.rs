//! `PUT /nodes/{name}/notice`.

use super::wire;
use crate::auth::Admin;
use crate::body::ParsedBody;
use crate::body::parse::Invalid;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_model::compute_capability::ComputeCapability;
use muster_model::node::{Closed, Labelled, Notice};
use muster_model::spec::{FieldError, check_labels};
use muster_model::view::NodeView;
use muster_store::{StoreError, node};
use std::collections::BTreeMap;

const BY_MAX: usize = 63;
/// Maximum number of GPUs in use outside Muster; more than any node has.
const TAKEN_MAX: u32 = 65_535;

/// Notice about a node. Only here unknown fields are refused, because daemons of other releases
/// read the stored form.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
// The names are part of the interface: of its messages and of its document.
#[serde(deny_unknown_fields, rename = "Said")]
#[schema(as = SaidOfNode)]
pub struct NodeNoticeBody {
    closed: Closed,
    /// Why the node is closed, or what holds some of its GPUs; at most 500 characters.
    #[serde(default)]
    why: String,
    /// Rack of the node. It precedes the executor's setting.
    #[serde(default)]
    rack: Option<String>,
    /// Labels of the machine, to which jobs can refer in `node_selector`; at most 256. They precede
    /// the executor's labels.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// GPUs according to the machine's labels. They count if the executor has not read the GPUs
    /// itself.
    #[serde(default)]
    gpus: Option<SaidOfGpus>,
    /// Number of GPUs that pods outside Muster hold; jobs get the others.
    #[serde(default)]
    #[schema(maximum = 65_535)]
    taken: u32,
    /// Sender of the notice. Absent: an administrator. An operator replaces only notices that it
    /// sent itself.
    #[serde(default)]
    by: Option<String>,
}

impl Invalid for NodeNoticeBody {}

/// GPUs of one kind.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaidOfGpus {
    /// Product name, such as `NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`: 1 to 253 characters.
    model: String,
    /// Memory of one GPU; 0 is unknown.
    memory_bytes: u64,
    /// Compute capability of the GPUs; unknown if left out.
    #[serde(default)]
    compute_capability: Option<ComputeCapability>,
}

impl From<NodeNoticeBody> for Notice {
    fn from(
        NodeNoticeBody {
            closed,
            why,
            rack,
            labels,
            gpus,
            taken,
            by,
        }: NodeNoticeBody,
    ) -> Self {
        Self {
            closed,
            why,
            rack,
            labels,
            gpus: gpus.map(|gpus| Labelled {
                model: gpus.model,
                memory_bytes: gpus.memory_bytes,
                compute_capability: gpus.compute_capability,
            }),
            taken,
            by,
        }
    }
}

/// Report what the cluster manager says about a machine
///
/// The notice replaces the earlier one. Muster's operator sends it for Kubernetes. It is
/// independent of an administrator's drain: the node takes tasks if neither closes it. For
/// administrators.
#[utoipa::path(
    put, path = "/nodes/{name}/notice", operation_id = "noticeNode", tag = "nodes",
    params(("name" = String, Path, description = "Name of the node")),
    request_body = NodeNoticeBody,
    responses((status = 202, description = "Accepted; takes effect in the next scheduling round", body = NodeView)),
)]
#[tracing::instrument(name = "api.node.notice", skip_all, fields(node.name = name))]
pub async fn notice(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
    document: ParsedBody<NodeNoticeBody>,
) -> Result<(StatusCode, Json<NodeView>), ApiError> {
    let notice = Notice::from(document.value);
    check(&notice)?;
    let mut tx = wire::begin(&app, &caller).await?;
    let row = node::set_notice(&mut tx, &name, &notice, clock::now()).await?;
    let row = row.ok_or_else(|| ApiError::not_found(format!("node {name}")))?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok((StatusCode::ACCEPTED, Json(wire::node(row))))
}

fn check(notice: &Notice) -> Result<(), ApiError> {
    let why = notice.why.chars().count();
    if why > Notice::WHY_MAX {
        let expected = format!("at most {}", Notice::WHY_MAX);
        return Err(invalid("why", why, &expected));
    }
    if notice.taken > TAKEN_MAX {
        return Err(refused(FieldError {
            field: "taken".to_owned(),
            value: notice.taken.to_string(),
            expected: format!("at most {TAKEN_MAX}"),
        }));
    }
    check_labels("labels", &notice.labels).map_err(|errors| {
        let said = errors.iter().map(FieldError::to_string);
        let said: Vec<String> = said.collect();
        ApiError::with_errors(ProblemKind::InvalidBody, said.join("; "), errors)
    })?;
    let model = notice.gpus.as_ref().map(|gpus| gpus.model.clone());
    let names = [
        ("gpus.model", &model, Notice::MODEL_MAX),
        ("rack", &notice.rack, Notice::RACK_MAX),
        ("by", &notice.by, BY_MAX),
    ];
    for (field, name, most) in names {
        let length = name.as_ref().map(|name| name.chars().count());
        if let Some(length) = length.filter(|length| !(1..=most).contains(length)) {
            return Err(invalid(field, length, &format!("1 to {most}, or null")));
        }
    }
    Ok(())
}

fn invalid(field: &str, characters: usize, expected: &str) -> ApiError {
    let error = FieldError {
        field: field.to_owned(),
        value: format!("{characters} characters"),
        expected: expected.to_owned(),
    };
    refused(error)
}

fn refused(error: FieldError) -> ApiError {
    ApiError::with_errors(ProblemKind::InvalidBody, error.to_string(), vec![error])
}
