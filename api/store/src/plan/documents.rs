//! Documents of the jobs that rounds consider. A document is read and parsed once, and again only after its owner has changed it.

use crate::error::StoreError;
use muster_model::id::JobId;
use muster_model::spec::JobSpec;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use uuid::Uuid;

/// Documents that are read by one statement, so that they are never all in memory as they are stored.
const AT_ONCE: usize = 100;

/// Changes with every change of a job's document: its owner's edits, and when it last entered the queue, as an extended trial does.
pub(super) type Version = (u64, Option<OffsetDateTime>);

/// Documents by job, without what no decision depends on: a command's arguments, variables and files, which may have 64 KiB each.
#[derive(Debug, Default)]
pub(super) struct Documents(BTreeMap<JobId, Document>);

#[derive(Debug)]
pub(super) struct Document {
    version: Version,
    pub spec: JobSpec,
    /// Of the job that it begins from.
    pub parent_steps_per_epoch: Option<u64>,
}

impl Documents {
    /// Keeps the documents of these jobs, reads what is missing, and forgets the others.
    pub async fn refresh(
        &mut self,
        conn: &mut PgConnection,
        versions: BTreeMap<JobId, Version>,
    ) -> Result<(), StoreError> {
        self.0
            .retain(|id, document| versions.get(id) == Some(&document.version));
        let missing = versions.keys().filter(|id| !self.0.contains_key(id));
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
        versions: &BTreeMap<JobId, Version>,
    ) -> Result<(), StoreError> {
        let rows = sqlx::query!(
            r#"select j.id, muster_decisive(j.spec) as "spec!: Json<JobSpec>", muster_decisive(parent.spec) as "parent?: Json<JobSpec>"
               from unnest($1::uuid[]) as given (id)
               join job j on j.id = given.id
               left join lateral (select spec from job where id = j.origin_job) parent on true"#,
            missing
        )
        .fetch_all(conn)
        .await?;
        for row in rows {
            let id = JobId::from(row.id);
            let document = Document {
                version: versions[&id],
                spec: row.spec.0,
                parent_steps_per_epoch: row.parent.map(|parent| parent.steps_per_epoch()),
            };
            self.0.insert(id, document);
        }
        Ok(())
    }

    /// # Panics
    /// When the job was not among those of the last refresh.
    pub fn get(&self, id: JobId) -> &Document {
        &self.0[&id]
    }
}
