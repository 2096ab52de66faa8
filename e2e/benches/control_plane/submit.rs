//! Submissions through the API server, compared with bare commits.

use crate::client::KeepAliveClient;
use crate::table::RatioRow;
use anyhow::ensure;
use muster_api::config::{ApiSettings, ClientLimits};
use muster_api::{auth, command};
use muster_model::id::{TenantId, TokenId, UserId};
use muster_model::tenant::{Access, Tenant};
use muster_store::token::NewTokenRecord;
use muster_store::user::User;
use muster_store::{pool, tenant, tenant_scope, token, user};
use muster_testdb::TestDb;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::str::FromStr as _;
use std::time::{Duration, Instant};
use time::OffsetDateTime;
use tokio::net::TcpStream;
use uuid::Uuid;

const CLIENTS: usize = 32;
/// Default of the API server.
const POOL: u32 = 16;
const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_millis(1_500);
const TOKEN: &str = "bench-token";

pub async fn measure(db: &TestDb) -> anyhow::Result<Vec<RatioRow>> {
    allow(db).await?;
    let address = serve(db).await?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients
            .push(KeepAliveClient::connect(address, TOKEN, "/api/v1/jobs", crate::DOCUMENT).await?);
    }
    let mut owner = PgConnection::connect(&db.owner_url).await?;
    sqlx::query("create table bare (id uuid primary key)")
        .execute(&mut owner)
        .await?;
    let options = PgConnectOptions::from_str(&db.owner_url)?;
    let mut bare = Vec::new();
    let mut few_bare = Vec::new();
    for number in 0..CLIENTS {
        bare.push(options.connect().await?);
        if number < POOL as usize {
            few_bare.push(options.connect().await?);
        }
    }

    // Fills caches, plans statements and opens the API server's connections.
    let mut submitted = together(&mut clients, TURN / 2).await?.0;
    together(&mut bare, TURN / 2).await?;
    let (mut ours, mut few, mut many) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        few.push(together(&mut few_bare, TURN).await?.1);
        let (count, rate) = together(&mut clients, TURN).await?;
        submitted += count;
        ours.push(rate);
        many.push(together(&mut bare, TURN).await?.1);
    }
    let kept: i64 = sqlx::query_scalar("select count(*) from job")
        .fetch_one(&mut owner)
        .await?;
    ensure!(
        kept == i64::try_from(submitted)?,
        "{submitted} submissions were acknowledged, {kept} are there"
    );
    Ok(vec![
        row("submit, against 16 connections", few, &ours, POOL as usize),
        row("submit, against 32 connections", many, &ours, CLIENTS),
    ])
}

fn row(what: &'static str, limit: Vec<f64>, ours: &[f64], connections: usize) -> RatioRow {
    RatioRow {
        what,
        unit: "1/s",
        how: format!(
            "POST /api/v1/jobs of {CLIENTS} keep-alive clients, {POOL} connections to Postgres, each answered after its commit; limit: \
             {connections} connections, each committing one row of one UUID after the other; {ROUNDS} rounds"
        ),
        ours: ours.to_vec(),
        limit,
    }
}

/// Operation that is repeated on its own connection.
trait RepeatedOperation: Send + 'static {
    fn once(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;
}

impl RepeatedOperation for KeepAliveClient {
    fn once(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send {
        self.post()
    }
}

impl RepeatedOperation for PgConnection {
    async fn once(&mut self) -> anyhow::Result<()> {
        sqlx::query("insert into bare (id) values ($1)")
            .bind(Uuid::now_v7())
            .execute(self)
            .await?;
        Ok(())
    }
}

/// Runs all operations repeatedly at the same time for the duration `turn`. Returns their number
/// and their rate per second.
async fn together<T: RepeatedOperation>(
    all: &mut Vec<T>,
    turn: Duration,
) -> anyhow::Result<(u64, f64)> {
    let began = Instant::now();
    let tasks: Vec<_> = all
        .drain(..)
        .map(|mut one| {
            tokio::spawn(async move {
                let mut count = 0;
                while began.elapsed() < turn {
                    one.once().await?;
                    count += 1;
                }
                anyhow::Ok((one, count))
            })
        })
        .collect();
    let mut sum: u64 = 0;
    for task in tasks {
        let (one, count) = task.await??;
        all.push(one);
        sum += count;
    }
    Ok((sum, sum as f64 / began.elapsed().as_secs_f64()))
}

/// Creates a tenant, a user and a token.
async fn allow(db: &TestDb) -> anyhow::Result<()> {
    let (tenant_id, user_id): (TenantId, UserId) = (Uuid::now_v7().into(), Uuid::now_v7().into());
    let now = OffsetDateTime::now_utc();
    let owner = pool::owner(&db.owner_url, 1)?;
    let mut tx = pool::begin(&owner).await?;
    tenant_scope::admin(&mut tx).await?;
    tenant::create(
        &mut tx,
        &Tenant {
            id: tenant_id,
            name: "bench".to_owned(),
            gpu_quota: None,
            weight: muster_model::tenant::EQUAL_WEIGHT,
            pods: muster_model::tenant::TenantPods::default(),
            preemption: muster_model::tenant::TenantPreemption::default(),
            shares_families: false,
            interactive: false,
        },
        now,
    )
    .await?;
    tenant_scope::tenant(&mut tx, tenant_id).await?;
    user::create(
        &mut tx,
        &User {
            id: user_id,
            tenant_id,
            name: "bench".to_owned(),
        },
        now,
    )
    .await?;
    let token = NewTokenRecord {
        id: TokenId(Uuid::now_v7()),
        tenant_id,
        user_id,
        name: "bench".to_owned(),
        access: Access::Member,
        hash: auth::hash(TOKEN),
        expires_at: None,
    };
    token::create(&mut tx, &token, now).await?;
    tx.commit().await?;
    Ok(())
}

/// Starts the API server as its daemon does, on a port that was free before.
async fn serve(db: &TestDb) -> anyhow::Result<SocketAddr> {
    let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let settings = ApiSettings {
        listen,
        database_url: db.api_url.clone(),
        database_connections: POOL,
        checkpoint_root: None,
        web_root: None,
        secret_keys: Default::default(),
        scheduler: None,
        limits: ClientLimits {
            requests_per_s: 1_000_000,
            requests_burst: 1_000_000,
            ..ClientLimits::default()
        },
    };
    let server = tokio::spawn(command::serve::serve(settings));
    while TcpStream::connect(listen).await.is_err() {
        ensure!(!server.is_finished(), "the api ended: {:?}", server.await?);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(listen)
}
