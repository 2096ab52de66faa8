//! Removal of the files of a deleted job from the checkpoint store: checkpoints and models,
//! `<checkpoint root>/<tenant>/<job>`, and artifacts, `<checkpoint root>/artifacts/<tenant>/<job>`.

use crate::gc;
use crate::opener::FolderHandle;
use muster_model::artifact::{ARTIFACTS_FOLDER, artifact_folder};
use muster_model::error_chain::chain;
use muster_model::id::{JobId, TenantId};
use muster_model::place::{BucketAddress, Place};
use muster_objects::{ObjectBucket, ObjectsError};
use muster_proto::session::{Erase, Erased};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;

/// Maximum number of objects per request.
const OBJECTS: usize = 1_000;

/// Reason why files remain.
#[derive(Debug, thiserror::Error)]
pub enum ErasureError {
    #[error("{field} is {value:?}; expected a UUID")]
    Id { field: &'static str, value: String },
    #[error("cannot open the checkpoint root {}", path.display())]
    Root {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot remove {}", path.display())]
    Remove {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot remove objects of the bucket")]
    Objects(#[from] ObjectsError),
    #[error("the removal was interrupted")]
    Interrupted,
}

/// The erasure orders of a session, executed one at a time. The scheduler repeats those that remain
/// when the session ends.
#[derive(Debug, Default)]
pub struct NodeErasureQueue {
    waiting: VecDeque<(Place, Erase)>,
    under_way: Option<JoinHandle<Erased>>,
}

impl NodeErasureQueue {
    /// Adds an order.
    pub fn begin(&mut self, place: &Place, order: Erase) {
        self.waiting.push_back((place.clone(), order));
        self.start();
    }

    /// Returns the result of the next order; pending while there is none. Cancel safe.
    pub async fn next(&mut self) -> Erased {
        loop {
            let Some(under_way) = &mut self.under_way else {
                return std::future::pending().await;
            };
            let erased = under_way.await;
            self.under_way = None;
            self.start();
            if let Ok(erased) = erased {
                return erased;
            }
        }
    }

    fn start(&mut self) {
        if self.under_way.is_none() {
            let next = self.waiting.pop_front();
            self.under_way = next.map(|(place, order)| tokio::spawn(carry_out(place, order)));
        }
    }
}

/// Executes an order and returns its result.
async fn carry_out(place: Place, order: Erase) -> Erased {
    let erased = erase(place, &order).await;
    if let Err(error) = &erased {
        let error = chain(error);
        tracing::warn!(job.id = order.job_id, %error, "files of a deleted job are left");
    }
    Erased {
        job_id: order.job_id,
        error: erased.err().map_or_else(String::new, |error| chain(&error)),
    }
}

async fn erase(place: Place, order: &Erase) -> Result<(), ErasureError> {
    let tenant: TenantId = id("tenant_id", &order.tenant_id)?;
    let job: JobId = id("job_id", &order.job_id)?;
    match place {
        Place::Folder(root) => {
            let removing = tokio::task::spawn_blocking(move || in_folder(&root, tenant, job));
            removing.await.map_err(|_| ErasureError::Interrupted)?
        }
        Place::Bucket(address) => in_bucket(&address, tenant, job).await,
    }
}

fn id<T: std::str::FromStr>(field: &'static str, value: &str) -> Result<T, ErasureError> {
    value.parse().map_err(|_| ErasureError::Id {
        field,
        value: value.chars().take(64).collect(),
    })
}

/// Removes the job's folders. Those above them are opened without following links: a task with
/// write access could have replaced one by a link to another tenant's folder.
fn in_folder(root: &Path, tenant: TenantId, job: JobId) -> Result<(), ErasureError> {
    let opened = FolderHandle::at(root).map_err(|source| ErasureError::Root {
        path: root.to_owned(),
        source,
    })?;
    let (tenant, job) = (tenant.to_string(), job.to_string());
    let artifacts = [ARTIFACTS_FOLDER, tenant.as_str()];
    for above in [&artifacts[1..], &artifacts[..]] {
        match remove_below(&opened, above, &job) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                let path = root.join(above.join("/")).join(&job);
                return Err(ErasureError::Remove { path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

fn remove_below(root: &FolderHandle, above: &[&str], job: &str) -> io::Result<()> {
    let (first, rest) = above.split_first().expect("a tenant is above a job");
    let mut folder = root.inner(OsStr::new(first))?;
    for part in rest {
        folder = folder.inner(OsStr::new(part))?;
    }
    gc::remove_within(&folder, OsStr::new(job))
}

async fn in_bucket(
    address: &BucketAddress,
    tenant: TenantId,
    job: JobId,
) -> Result<(), ErasureError> {
    let bucket = ObjectBucket::open(address)?;
    for of_job in [format!("{tenant}/{job}"), artifact_folder(tenant, job)] {
        let names = bucket.list(&of_job).await?.into_iter();
        let names: Vec<String> = names.map(|name| format!("{of_job}/{name}")).collect();
        for some in names.chunks(OBJECTS) {
            bucket.delete(some).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const TENANT: &str = "00000000-0000-0000-0000-000000000001";
    const JOB: &str = "00000000-0000-0000-0000-000000000002";
    const OTHER: &str = "00000000-0000-0000-0000-000000000003";

    async fn erased(root: &Path, tenant: &str, job: &str) -> String {
        let order = Erase {
            tenant_id: tenant.to_owned(),
            job_id: job.to_owned(),
        };
        let erased = carry_out(Place::Folder(root.to_owned()), order).await;
        assert_eq!(erased.job_id, job);
        erased.error
    }

    fn checkpoint(root: &Path, tenant: &str, job: &str) -> PathBuf {
        let folder = root.join(tenant).join(job);
        fs::create_dir_all(folder.join("step-0000000001-r1")).expect("made");
        fs::write(folder.join("step-0000000001-r1/model.safetensors"), "x").expect("written");
        folder
    }

    #[tokio::test]
    async fn only_the_folder_of_the_job_is_removed() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        let (job, other) = (
            checkpoint(root, TENANT, JOB),
            checkpoint(root, TENANT, OTHER),
        );
        symlink(&other, job.join("link")).expect("linked");
        let artifacts = root.join("artifacts").join(TENANT);
        for id in [JOB, OTHER] {
            fs::create_dir_all(artifacts.join(id)).expect("made");
            fs::write(artifacts.join(id).join("object"), "x").expect("written");
        }
        assert_eq!(erased(root, TENANT, JOB).await, "");
        assert!(!job.exists() && !artifacts.join(JOB).exists());
        assert!(artifacts.join(OTHER).join("object").exists());
        assert!(other.join("step-0000000001-r1/model.safetensors").exists());
        assert_eq!(erased(root, TENANT, JOB).await, "", "it is gone already");
        assert_eq!(
            erased(root, OTHER, JOB).await,
            "",
            "nor is there such a tenant"
        );
    }

    #[tokio::test]
    async fn a_link_in_place_of_a_tenants_folder_is_not_followed() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        let victim = checkpoint(root, OTHER, JOB);
        symlink(root.join(OTHER), root.join(TENANT)).expect("linked");
        assert_ne!(erased(root, TENANT, JOB).await, "");
        assert!(victim.exists());
        // A link in place of the job's folder is removed itself.
        fs::remove_file(root.join(TENANT)).expect("removed");
        fs::create_dir(root.join(TENANT)).expect("made");
        symlink(&victim, root.join(TENANT).join(JOB)).expect("linked");
        assert_eq!(erased(root, TENANT, JOB).await, "");
        assert!(victim.exists() && root.join(TENANT).join(JOB).symlink_metadata().is_err());
    }

    #[tokio::test]
    async fn invalid_id_and_missing_root_are_errors() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        let job = checkpoint(root, TENANT, JOB);
        for wrong in ["", "..", ".", "/", "../"] {
            assert!(
                erased(root, TENANT, wrong)
                    .await
                    .contains("expected a UUID")
            );
            assert!(erased(root, wrong, JOB).await.contains("expected a UUID"));
        }
        assert!(job.exists());
        let missing = erased(&root.join("missing"), TENANT, JOB).await;
        assert!(missing.contains("checkpoint root"), "{missing}");
    }
}
