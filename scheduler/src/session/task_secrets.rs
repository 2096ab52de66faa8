//! Values of secrets for a task that starts. They are decrypted here and never logged.

use super::{Sessions, decode, decode_status, join};
use muster_model::error_chain::chain;
use muster_model::id::{TaskId, TenantId};
use muster_proto::session as proto;
use muster_proto::session::task_secret::Result as Found;
use muster_secret::{KeyError, Owner, Sealed, SecretValue};
use muster_store::StoreError;
use muster_store::secret::{self, AskingNode, SecretRow, TaskSecrets};
use tonic::Status;

impl Sessions {
    /// Returns the values for the node that runs the task.
    pub(super) async fn secrets_of_task(
        &self,
        request: &proto::TaskSecretsRequest,
    ) -> Result<proto::TaskSecretsAnswer, Status> {
        let task = decode::task_id("task_id", &request.task_id).map_err(decode_status)?;
        let found = self.stored(request, task).await.map_err(not_read)?;
        let Some(TaskSecrets {
            tenant,
            names,
            mut rows,
        }) = found
        else {
            tracing::warn!(
                node.name = request.node_name,
                task.id = %task,
                "secrets of a task are refused: it is not of this node, or it is ending"
            );
            return Err(Status::permission_denied(format!(
                "task {task} is not a task of this node, or it is ending"
            )));
        };
        let mut secrets = Vec::with_capacity(names.len());
        for name in names {
            let row = rows.iter().position(|row| row.name == name);
            let result = match row.map(|at| rows.swap_remove(at)) {
                None => Found::Problem(format!(
                    "it does not exist any more; `muster secrets set {name}` stores it"
                )),
                Some(row) => match self.opened(tenant, row).await? {
                    Ok(value) => Found::Value(value.expose().to_owned()),
                    Err(problem) => {
                        tracing::error!(tenant.id = %tenant, secret = name, problem, "a secret does not decrypt");
                        Found::Problem(problem)
                    }
                },
            };
            secrets.push(proto::TaskSecret {
                name,
                result: Some(result),
            });
        }
        Ok(proto::TaskSecretsAnswer { secrets })
    }

    async fn stored(
        &self,
        request: &proto::TaskSecretsRequest,
        task: TaskId,
    ) -> Result<Option<TaskSecrets>, StoreError> {
        let node = AskingNode {
            name: &request.node_name,
            credential: &join::hash(&request.credential),
        };
        let mut tx = muster_store::pool::begin(&self.pool).await?;
        secret::of_task(&mut tx, node, (task, request.revision)).await
    }

    /// Returns the value, or why the row has none. Without keys a later attempt may succeed.
    async fn opened(
        &self,
        tenant: TenantId,
        row: SecretRow,
    ) -> Result<Result<SecretValue, String>, Status> {
        let keys = match self.secret_keys.with(&row.key_id).await {
            Ok(keys) => keys,
            Err(error @ KeyError::NotConfigured) => {
                return Ok(Err(format!("the scheduler has no key: {error}")));
            }
            Err(error) => {
                let error = chain(&error);
                tracing::error!(error, "the keys of secrets are not available");
                let detail =
                    "the scheduler cannot read the keys for secrets; its log has the reason";
                return Err(Status::unavailable(detail));
            }
        };
        let owner = Owner {
            tenant,
            name: &row.name,
            version: row.version,
        };
        let sealed = Sealed {
            key_id: row.key_id,
            nonce: row.nonce,
            ciphertext: row.ciphertext,
        };
        let opened = sealed.open(&keys, owner);
        Ok(opened.map_err(|error| error.to_string()))
    }
}

fn not_read(error: StoreError) -> Status {
    tracing::warn!(
        error = chain(&error),
        "the secrets of a task could not be read"
    );
    Status::unavailable("the store is not reachable now; try again")
}
