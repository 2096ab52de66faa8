//! Documents of the jobs that rounds consider. Each version of a document is read and parsed once.

use crate::error::StoreError;
use crate::family;
use muster_model::id::JobId;
use muster_model::spec::JobSpec;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::{BTreeMap, BTreeSet};
use time::OffsetDateTime;
use uuid::Uuid;

/// Number of documents per statement. It bounds the memory for unparsed documents.
const AT_ONCE: usize = 100;

/// Version of a job's document: the number of the owner's edits, and the time at which the job last
/// entered the queue. The latter changes if a study extends its trial.
pub(super) type DocumentVersion = (u64, Option<OffsetDateTime>);

/// Documents by job. Arguments, variables and files of commands are omitted: no decision depends on
/// them, and each may have 64 KiB.
#[derive(Debug, Default)]
pub(super) struct Documents(BTreeMap<JobId, CachedJobDocument>);

#[derive(Debug)]
pub(super) struct CachedJobDocument {
    version: DocumentVersion,
    pub spec: JobSpec,
    /// Steps per epoch of the job from whose checkpoint this job begins.
    pub parent_steps_per_epoch: Option<u64>,
    /// Key of the job's family.
    pub family: Option<String>,
}

impl Documents {
    /// Drops the documents of all jobs but these.
    pub fn keep(&mut self, ids: &BTreeSet<JobId>) {
        self.0.retain(|id, _| ids.contains(id));
    }

    /// Reads the documents of these jobs that are missing or have another version.
    pub async fn refresh(
        &mut self,
        conn: &mut PgConnection,
        versions: BTreeMap<JobId, DocumentVersion>,
    ) -> Result<(), StoreError> {
        let missing = versions.iter().filter(|(id, version)| {
            let known = self.0.get(id);
            known.is_none_or(|document| document.version != **version)
        });
        let missing = missing.map(|(id, _)| id);
        let missing: Vec<Uuid> = missing.map(|id| id.0).collect();
        for missing in missing.chunks(AT_ONCE) {
            self.read(conn, missing, &versions).await?;
        }
        Ok(())
    }

    async fn read(
        &mut self,
        conn: &mut PgConnection,
        missing: &[Uuid],
        versions: &BTreeMap<JobId, DocumentVersion>,
    ) -> Result<(), StoreError> {
        let rows = sqlx::query!(
            r#"select j.id, j.family, muster_decisive(j.spec) as "spec!: Json<JobSpec>", muster_decisive(parent.spec) as "parent?: Json<JobSpec>"
               from unnest($1::uuid[]) as given (id)
               join job j on j.id = given.id
               left join lateral (select spec from job where id = j.origin_job) parent on true"#,
            missing
        )
        .fetch_all(&mut *conn)
        .await?;
        for row in rows {
            let id = JobId::from(row.id);
            let family = match row.family {
                Some(key) => Some(key),
                None => family::key_of(conn, id).await?,
            };
            let document = CachedJobDocument {
                version: versions[&id],
                spec: row.spec.0,
                parent_steps_per_epoch: row.parent.map(|parent| parent.steps_per_epoch()),
                family,
            };
            self.0.insert(id, document);
        }
        Ok(())
    }

    /// # Panics
    /// If the job was not part of the last refresh.
    pub fn get(&self, id: JobId) -> &CachedJobDocument {
        &self.0[&id]
    }
}
