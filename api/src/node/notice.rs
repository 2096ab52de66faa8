//! `PUT /nodes/{name}/notice`.

use super::wire;
use crate::auth::Admin;
use crate::body::Document;
use crate::clock;
use crate::problem::{Kind, Refusal};
use crate::query::Params;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_model::node::{Closed, Labelled, Notice};
use muster_model::spec::FieldError;
use muster_model::view::NodeView;
use muster_store::{StoreError, node};

const BY_MAX: usize = 63;
/// Maximum number of GPUs in use elsewhere; more than any node has.
const TAKEN_MAX: u32 = 65_535;

/// A notice as it is sent. Here alone unknown fields are refused: what is stored is also read by daemons of another release.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SaidOfNode)]
pub struct Said {
    closed: Closed,
    /// Why it is closed, or whose GPUs some of them are, in words: at most 500 characters.
    #[serde(default)]
    why: String,
    /// Where it stands; counts before what its executor says of that.
    #[serde(default)]
    rack: Option<String>,
    /// What its labels say of its GPUs; counts where its executor has not looked at them.
    #[serde(default)]
    gpus: Option<SaidOfGpus>,
    /// So many of its GPUs somebody outside of Muster has; jobs get the others.
    #[serde(default)]
    #[schema(maximum = 65_535)]
    taken: u32,
    /// Who says so: an operator leaves alone what another has said, or an administrator, who says nothing here.
    #[serde(default)]
    by: Option<String>,
}

/// All of one kind.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaidOfGpus {
    /// Such as `NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`: 1 to 253 characters.
    model: String,
    /// Of one of them; 0 is not known.
    memory_bytes: u64,
}

impl From<Said> for Notice {
    fn from(
        Said {
            closed,
            why,
            rack,
            gpus,
            taken,
            by,
        }: Said,
    ) -> Self {
        Self {
            closed,
            why,
            rack,
            gpus: gpus.map(|gpus| Labelled {
                model: gpus.model,
                memory_bytes: gpus.memory_bytes,
            }),
            taken,
            by,
        }
    }
}

/// Say what the cluster that a machine belongs to says of it
///
/// All of it, in place of what was said before; Muster's operator does so for Kubernetes. An administrator's drain and this stand beside
/// each other: the node takes work where neither closes it. For administrators.
#[utoipa::path(
    put, path = "/nodes/{name}/notice", operation_id = "noticeNode", tag = "nodes",
    params(("name" = String, Path, description = "Name of the node")),
    request_body = Said,
    responses((status = 202, description = "Stated; the next round obeys", body = NodeView)),
)]
#[tracing::instrument(name = "api.node.notice", skip_all, fields(node.name = name))]
pub async fn notice(
    State(app): State<App>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
    document: Document<Said>,
) -> Result<(StatusCode, Json<NodeView>), Refusal> {
    let notice = Notice::from(document.value);
    check(&notice)?;
    let mut tx = wire::begin(&app, &caller).await?;
    let row = node::set_notice(&mut tx, &name, &notice, clock::now()).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("node {name}")))?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok((StatusCode::ACCEPTED, Json(wire::node(row))))
}

fn check(notice: &Notice) -> Result<(), Refusal> {
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

fn invalid(field: &str, characters: usize, expected: &str) -> Refusal {
    let error = FieldError {
        field: field.to_owned(),
        value: format!("{characters} characters"),
        expected: expected.to_owned(),
    };
    refused(error)
}

fn refused(error: FieldError) -> Refusal {
    Refusal::with_errors(Kind::InvalidBody, error.to_string(), vec![error])
}
