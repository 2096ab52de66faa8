//! The private Postgres server of `muster up`: finds its binaries, initialises its data folder and
//! describes the daemon, which listens on loopback only.
//!
//! Postgres refuses to run as root. If this process is root, the server runs as an unprivileged
//! user.

use super::data::{DataFolder, Secrets, write_private};
use super::process::DaemonCommand;
use anyhow::{Context as _, bail};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SUPERUSER: &str = "muster_owner";
const DATABASE: &str = "muster";

/// A server whose data folder is initialised.
#[derive(Debug, Clone)]
pub struct Postgres {
    bin: PathBuf,
    data: PathBuf,
    port: u16,
    /// User of the server, if this process is root.
    runs_as: Option<Account>,
}

#[derive(Debug, Clone, Copy)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Postgres {
    /// Finds the binaries and initialises a new data folder.
    ///
    /// # Errors
    /// One line that names what is missing.
    pub fn prepare(folder: &DataFolder, secrets: &Secrets, port: u16) -> anyhow::Result<Self> {
        let bin = find_binaries()?;
        let runs_as = if rustix::process::geteuid().is_root() {
            Some(unprivileged_account()?)
        } else {
            None
        };
        let postgres = Self {
            bin,
            data: folder.postgres(),
            port,
            runs_as,
        };
        if !postgres.data.join("PG_VERSION").exists() {
            postgres.initialise(folder, secrets)?;
        }
        Ok(postgres)
    }

    /// Returns the daemon that runs the server in the foreground.
    #[must_use]
    pub fn daemon(&self, log: PathBuf) -> DaemonCommand {
        let mut daemon = DaemonCommand::new("postgres", self.bin.join("postgres"), log)
            .arg("-D")
            .arg(&self.data)
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args(["-c", &format!("port={}", self.port)])
            .args(["-c", "unix_socket_directories="])
            .args(["-c", "max_connections=100"])
            // A fast shutdown: open sessions are ended, committed data stays.
            .stop_with(rustix::process::Signal::INT);
        if let Some(account) = self.runs_as {
            daemon = daemon.run_as(account.uid, account.gid);
        }
        daemon
    }

    /// Returns the URL by which migrations connect, as the owner of the schema.
    #[must_use]
    pub fn owner_url(&self, secrets: &Secrets) -> String {
        format!(
            "postgres://{SUPERUSER}:{}@127.0.0.1:{}/{DATABASE}",
            secrets.postgres_password, self.port
        )
    }

    fn initialise(&self, folder: &DataFolder, secrets: &Secrets) -> anyhow::Result<()> {
        note!("initialising a private Postgres in {}", self.data.display());
        if self.data.exists() {
            // An interrupted initialisation: without PG_VERSION the folder contains no cluster.
            std::fs::remove_dir_all(&self.data)?;
        }
        // Receives its final name when it is complete.
        let fresh = self.data.with_extension("new");
        if fresh.exists() {
            std::fs::remove_dir_all(&fresh)?;
        }
        std::fs::create_dir_all(&fresh)?;
        let password = folder.root().join("postgres-password");
        write_private(&password, &secrets.postgres_password)?;
        if let Some(account) = self.runs_as {
            for path in [&fresh, &password] {
                chown(path, Some(account.uid), Some(account.gid))?;
            }
        }
        let mut initdb = Command::new(self.bin.join("initdb"));
        initdb
            .args([
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--username",
                SUPERUSER,
            ])
            .arg(format!("--pwfile={}", password.display()))
            .arg("-D")
            .arg(&fresh)
            .current_dir("/");
        let output = self
            .run_as_account(&mut initdb)
            .stdin(Stdio::null())
            .output()
            .context("run initdb")?;
        std::fs::remove_file(&password)?;
        if !output.status.success() {
            bail!(
                "initdb failed: {}{}",
                String::from_utf8_lossy(&output.stderr).trim(),
                self.access_hint(folder.root())
            );
        }
        self.create_database(&fresh)?;
        std::fs::rename(&fresh, &self.data)?;
        Ok(())
    }

    /// Creates the database in single-user mode, before a server listens.
    fn create_database(&self, data: &Path) -> anyhow::Result<()> {
        let mut single = Command::new(self.bin.join("postgres"));
        single
            .args(["--single", "-j", "-D"])
            .arg(data)
            .arg("postgres")
            .current_dir("/");
        let mut child = self
            .run_as_account(&mut single)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("run postgres --single")?;
        use std::io::Write as _;
        child
            .stdin
            .take()
            .context("postgres --single takes statements")?
            .write_all(format!("CREATE DATABASE {DATABASE};\n").as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!(
                "creating the database failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }

    /// Lets a command run as the user of the server.
    fn run_as_account<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Some(account) = self.runs_as {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    /// Returns a hint for errors: an unprivileged user may be unable to enter the data folder.
    fn access_hint(&self, root: &Path) -> String {
        match self.runs_as {
            Some(account) => format!(
                " (Postgres runs as user {}, which must be able to enter {}; choose another folder with --data)",
                account.uid,
                root.display()
            ),
            None => String::new(),
        }
    }
}

/// Returns the folder that contains `initdb` and `postgres`. The order of the search is
/// `MUSTER_POSTGRES_BIN`, PATH, and Debian's folders with the newest version first. If all lack
/// them, Postgres is installed.
fn find_binaries() -> anyhow::Result<PathBuf> {
    let complete =
        |folder: &PathBuf| folder.join("initdb").exists() && folder.join("postgres").exists();
    if let Some(named) = std::env::var_os("MUSTER_POSTGRES_BIN").map(PathBuf::from) {
        if complete(&named) {
            return Ok(named);
        }
        bail!(
            "MUSTER_POSTGRES_BIN is {}; expected a folder with initdb and postgres",
            named.display()
        );
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(found) = std::env::split_paths(&path).find(complete) {
        return Ok(found);
    }
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                entry.path().join("bin"),
            ))
        })
        .filter(|(_, folder)| complete(folder))
        .collect();
    versions.sort();
    match versions.pop() {
        Some((_, folder)) => Ok(folder),
        None => install_binaries(),
    }
}

/// Installs Postgres by `scripts/ensure-postgres` of the checkout or of the installed release, and
/// returns the folder that the script prints.
fn install_binaries() -> anyhow::Result<PathBuf> {
    const MISSING: &str = "Postgres is missing: run `apt-get install postgresql`, or set MUSTER_POSTGRES_BIN or --database-url";
    let script = super::script::find("ensure-postgres").context(MISSING)?;
    let output = Command::new(script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("run scripts/ensure-postgres")?;
    if !output.status.success() {
        bail!("Postgres could not be installed; see above, or set --database-url");
    }
    let folder = String::from_utf8(output.stdout).context("scripts/ensure-postgres")?;
    Ok(PathBuf::from(folder.trim()))
}

/// Returns the user `postgres` if it exists, or else `nobody`.
fn unprivileged_account() -> anyhow::Result<Account> {
    let users = std::fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
    find_account(&users, "postgres").or_else(|| find_account(&users, "nobody")).context(
        "Postgres refuses to run as root, and there is no user `postgres` or `nobody` to run it as",
    )
}

/// Returns the account of this name in the text of `/etc/passwd`.
fn find_account(users: &str, name: &str) -> Option<Account> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account { uid, gid })
    })
}
