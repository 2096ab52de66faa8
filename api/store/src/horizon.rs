//! Events that no reader sees yet. Readers see an event after all older transactions of the
//! Postgres server have ended, including those of other databases ([`crate::event`]). So a
//! transaction that stays open delays all streams.

use crate::error::StoreError;
use crate::event::EventCursor;
use sqlx::PgConnection;
use std::fmt;

/// The oldest open transaction, as far as Postgres shows it to every role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HorizonHolder {
    pub database: String,
    pub user: String,
    pub kind: HolderKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HolderKind {
    Session { pid: i32, application: String },
    Prepared { gid: String },
}

impl fmt::Display for HorizonHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            HolderKind::Session { pid, application } => {
                write!(f, "session {pid} of application {application:?}")?;
            }
            HolderKind::Prepared { gid } => write!(f, "prepared transaction {gid:?}")?,
        }
        write!(
            f,
            " of user {:?} in database {:?}",
            self.user, self.database
        )
    }
}

/// Returns the oldest event that no reader sees yet; `None` if readers see all events.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn first_unseen(conn: &mut PgConnection) -> Result<Option<EventCursor>, StoreError> {
    let row = sqlx::query!(
        r#"select xid::text as "xid!", seq from event
           where event.xid >= pg_snapshot_xmin(pg_current_snapshot()) order by event.xid, seq limit 1"#
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| EventCursor::read(&row.xid, row.seq)))
}

/// Returns the oldest open transaction over all databases of the server; `None` if there is no
/// other writer.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn holder(conn: &mut PgConnection) -> Result<Option<HorizonHolder>, StoreError> {
    let row = sqlx::query!(
        r#"select pid, gid, coalesce(database, '') as "database!", coalesce(owner, '') as "owner!",
                  coalesce(application, '') as "application!"
           from (
               select age(backend_xid) as held, pid, null::text as gid, datname::text as database, usename::text as owner,
                      application_name as application
               from pg_stat_activity where backend_xid is not null and pid <> pg_backend_pid()
               union all
               select age(transaction), null, gid, database::text, owner::text, null from pg_prepared_xacts
           ) open
           order by held desc limit 1"#
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.and_then(|row| {
        let kind = match (row.pid, row.gid) {
            (Some(pid), _) => HolderKind::Session {
                pid,
                application: row.application,
            },
            (None, Some(gid)) => HolderKind::Prepared { gid },
            (None, None) => return None,
        };
        Some(HorizonHolder {
            database: row.database,
            user: row.owner,
            kind,
        })
    }))
}
