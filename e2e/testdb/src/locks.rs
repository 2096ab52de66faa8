//! Locks on rows and tables, as another transaction would hold them, their waiters, and loss of
//! connections.

use crate::TestDb;
use sqlx::AssertSqlSafe;

/// Lock that is held until this is dropped or the server is gone.
#[derive(Debug)]
pub struct DatabaseLock(muster_store::pool::Transaction);

impl DatabaseLock {
    /// Releases the lock at once.
    ///
    /// # Panics
    /// If the server is gone.
    pub async fn give_back(self) {
        self.0.rollback().await.expect("the server is there");
    }
}

impl TestDb {
    /// Runs statements as the owner, in one transaction.
    ///
    /// # Panics
    /// If one of them is refused.
    pub async fn execute(&self, statements: &str) {
        let pool = muster_store::pool::owner(&self.owner_url, 1).expect("the owner's address");
        let mut tx = muster_store::pool::begin(&pool).await.expect("begin");
        let statements = AssertSqlSafe(statements.to_owned());
        let done = sqlx::raw_sql(statements).execute(&mut *tx).await;
        done.expect("run the statements");
        tx.commit().await.expect("commit");
    }

    /// Locks a whole table against reads and writes.
    ///
    /// # Panics
    /// If the table does not exist, or another transaction holds it for long.
    pub async fn hold_table(&self, table: &str) -> DatabaseLock {
        self.hold(format!("lock table {table} in access exclusive mode"))
            .await
    }

    /// Locks the rows of a table for which `which`, a condition in SQL, is true.
    ///
    /// # Panics
    /// If the condition is invalid, or there is no such row.
    pub async fn hold_rows(&self, table: &str, which: &str) -> DatabaseLock {
        let statement = format!("select 1 from {table} where {which} for update");
        self.hold(statement).await
    }

    /// Number of connections of the program that wait for a lock.
    ///
    /// # Panics
    /// If the server is gone.
    pub async fn waiting(&self, program: &str) -> i64 {
        self.of_waiting(program, "count(*)").await
    }

    /// Ends the connections of the program that wait for a lock, as a proxy or a restart of the
    /// server would. Returns their number.
    ///
    /// # Panics
    /// If the server is gone.
    pub async fn disconnect_waiting(&self, program: &str) -> i64 {
        self.of_waiting(program, "count(pg_terminate_backend(pid))")
            .await
    }

    async fn of_waiting(&self, program: &str, what: &str) -> i64 {
        let statement = format!(
            "select {what} from pg_stat_activity
             where datname = current_database() and application_name = $1 and wait_event_type = 'Lock'"
        );
        let answer = sqlx::query_scalar(AssertSqlSafe(statement)).bind(program);
        let mut tx = self.as_owner().await;
        answer
            .fetch_one(&mut *tx)
            .await
            .expect("the server is there")
    }

    async fn as_owner(&self) -> muster_store::pool::Transaction {
        let owner = muster_store::pool::owner(&self.owner_url, 1).expect("an address");
        let begun = muster_store::pool::begin(&owner).await;
        begun.expect("a transaction")
    }

    async fn hold(&self, statement: String) -> DatabaseLock {
        let mut tx = self.as_owner().await;
        let done = sqlx::query(AssertSqlSafe(statement.clone()))
            .execute(&mut *tx)
            .await
            .expect("a statement");
        assert!(
            statement.starts_with("lock") || done.rows_affected() > 0,
            "there is nothing to hold: {statement}"
        );
        DatabaseLock(tx)
    }
}
