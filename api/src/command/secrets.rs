//! Keys of users' secrets: makes a new one, and encrypts all secrets with the first one.

use crate::clock;
use crate::config::ApiFlags;
use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use muster_model::id::TenantId;
use muster_secret::{Keyring, Owner, Sealed, SecretKeys, new_key};
use muster_store::pool::{self, StorePool};
use muster_store::secret::{self, SecretRow};
use muster_store::{tenant, tenant_scope};

#[derive(Debug, Args)]
pub struct Secrets {
    #[command(subcommand)]
    command: SecretsCommand,
}

#[derive(Debug, Subcommand)]
enum SecretsCommand {
    /// Print a line with a new random key for the key file
    NewKey {
        /// Id of the key: 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-' [default: today]
        #[arg(long)]
        id: Option<String>,
    },
    /// Encrypt all secrets with the first key, so that the other keys can be removed
    Reencrypt,
}

impl Secrets {
    /// Runs the command.
    ///
    /// # Errors
    /// If the keys or the database are not available, or if a secret does not decrypt.
    pub async fn run(self, flags: ApiFlags) -> anyhow::Result<()> {
        match self.command {
            SecretsCommand::NewKey { id } => {
                let id = id.unwrap_or_else(|| clock::now().date().to_string());
                let line = new_key(&id)?;
                Keyring::parse(&line).context("--id")?;
                println!("{}", line.as_str());
                Ok(())
            }
            SecretsCommand::Reencrypt => {
                let settings = flags.settings()?;
                let keys = SecretKeys::new(settings.secret_keys);
                let keys = keys.get().await.context("read the keys")?;
                let pool = pool::api(&settings.database_url, 1).context("database_url")?;
                reencrypt_all(&pool, &keys).await
            }
        }
    }
}

async fn reencrypt_all(pool: &StorePool, keys: &Keyring) -> anyhow::Result<()> {
    let mut tx = pool::begin(pool).await.context("reach the database")?;
    tenant_scope::admin(&mut tx).await?;
    let tenants = tenant::list(&mut tx).await?;
    drop(tx);
    let mut done = 0;
    let mut damaged = Vec::new();
    for tenant in tenants {
        let (changed, left) = reencrypt(pool, keys, tenant.id).await?;
        done += changed;
        damaged.extend(
            left.into_iter()
                .map(|name| format!("{name} of {}", tenant.name)),
        );
    }
    eprintln!(
        "{done} secrets are now encrypted with the key {}",
        keys.first_id()
    );
    ensure!(
        damaged.is_empty(),
        "these secrets do not decrypt with any key, and are left as they are: {}",
        damaged.join(", ")
    );
    Ok(())
}

/// Returns the number of changed secrets of a tenant, and the names of those that do not decrypt.
async fn reencrypt(
    pool: &StorePool,
    keys: &Keyring,
    tenant: TenantId,
) -> anyhow::Result<(u64, Vec<String>)> {
    let (mut done, mut damaged, mut after) = (0, Vec::new(), String::new());
    loop {
        let mut tx = pool::begin_for(pool, tenant).await?;
        let rows = secret::of_other_keys(&mut tx, keys.first_id(), &after).await?;
        let Some(last) = rows.last() else {
            return Ok((done, damaged));
        };
        after.clone_from(&last.name);
        for row in rows {
            let name = row.name.clone();
            match sealed_again(keys, tenant, row)? {
                Some(row) => {
                    secret::reencrypt(&mut tx, &row).await?;
                    done += 1;
                }
                None => damaged.push(name),
            }
        }
        tx.commit().await?;
    }
}

/// Returns the row under the first key; `None` if it does not decrypt.
fn sealed_again(
    keys: &Keyring,
    tenant: TenantId,
    row: SecretRow,
) -> anyhow::Result<Option<SecretRow>> {
    let SecretRow {
        name,
        version,
        key_id,
        nonce,
        ciphertext,
    } = row;
    let owner = Owner {
        tenant,
        name: &name,
        version,
    };
    let sealed = Sealed {
        key_id,
        nonce,
        ciphertext,
    };
    let Ok(value) = sealed.open(keys, owner) else {
        return Ok(None);
    };
    let sealed = Sealed::seal(keys, owner, &value)?;
    Ok(Some(SecretRow {
        version,
        key_id: sealed.key_id,
        nonce: sealed.nonce,
        ciphertext: sealed.ciphertext,
        name,
    }))
}
