//! Rows and tables that a test holds, as another transaction would, who waits for them, and connections that are lost meanwhile.

use crate::TestDb;
use sqlx::AssertSqlSafe;

/// What is held, until this is dropped or the server is gone.
#[derive(Debug)]
pub struct Held(muster_store::pool::Transaction);

impl Held {
    /// Gives it back, at once.
    ///
    /// # Panics
    /// When the server is gone.
    pub async fn give_back(self) {
        self.0.rollback().await.expect("the server is there");
    }
}

impl TestDb {
    /// Runs statements as the owner, in one transaction.
    ///
    /// # Panics
    /// When one of them is refused.
    pub async fn execute(&self, statements: &str) {
        let pool = muster_store::pool::owner(&self.owner_url, 1).expect("the owner's address");
        let mut tx = muster_store::pool::begin(&pool).await.expect("begin");
        let statements = AssertSqlSafe(statements.to_owned());
        let done = sqlx::raw_sql(statements).execute(&mut *tx).await;
        done.expect("run the statements");
        tx.commit().await.expect("commit");
    }

    /// Holds a whole table: nobody reads or writes it.
    ///
    /// # Panics
    /// When there is no such table, or somebody else holds it for long.
    pub async fn hold_table(&self, table: &str) -> Held {
        self.hold(format!("lock table {table} in access exclusive mode"))
            .await
    }

    /// Holds the rows of a table of which `which` is so, a condition in SQL: who would change or lock them waits.
    ///
    /// # Panics
    /// When the condition is none, or there is no such row.
    pub async fn hold_rows(&self, table: &str, which: &str) -> Held {
        let statement = format!("select 1 from {table} where {which} for update");
        self.hold(statement).await
    }

    /// Connections of the program that wait for somebody's lock at the moment.
    ///
    /// # Panics
    /// When the server is gone.
    pub async fn waiting(&self, program: &str) -> i64 {
        self.of_waiting(program, "count(*)").await
    }

    /// Ends the connections of the program that wait for somebody's lock, as a proxy or a restart of the server would; how many these were.
    ///
    /// # Panics
    /// When the server is gone.
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

    async fn hold(&self, statement: String) -> Held {
        let mut tx = self.as_owner().await;
        let done = sqlx::query(AssertSqlSafe(statement.clone()))
            .execute(&mut *tx)
            .await
            .expect("a statement");
        assert!(
            statement.starts_with("lock") || done.rows_affected() > 0,
            "there is nothing to hold: {statement}"
        );
        Held(tx)
    }
}
