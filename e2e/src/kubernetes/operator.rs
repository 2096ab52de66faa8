//! The operator as a separate process, with settings like those of the chart's pod.

use super::{print_log, stop};
use crate::cluster::{free_port, program};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// `muster-operator run`. Killed on drop.
#[derive(Debug)]
pub struct Operator {
    child: Option<Child>,
    command: Vec<String>,
    kubeconfig: PathBuf,
    log: PathBuf,
}

impl Operator {
    /// Starts an operator that uses the API server of `kubeconfig`, and Muster with an
    /// administrator's token.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(kubeconfig: PathBuf, log: PathBuf, muster: &str, token: &str) -> Self {
        Self::start_with(kubeconfig, log, muster, token, &[])
    }

    /// As [`Self::start`], with further flags. It follows nodes, as in the chart.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_with(
        kubeconfig: PathBuf,
        log: PathBuf,
        muster: &str,
        token: &str,
        further: &[&str],
    ) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        let arguments = [
            "run", "--server", muster, "--token", token, "--listen", &listen, "--nodes", "true",
        ];
        let arguments = arguments.iter().chain(further);
        let mut operator = Self {
            child: None,
            command: arguments.map(|word| (*word).to_owned()).collect(),
            kubeconfig,
            log,
        };
        operator.start_again();
        operator
    }

    /// Kills it with SIGKILL at any moment.
    pub fn kill(&mut self) {
        stop(&mut self.child);
    }

    /// Kills it and starts it again.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self) {
        self.kill();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .expect("a log");
        let child = Command::new(program("muster-operator"))
            .args(&self.command)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("MUSTER_LOG", "info")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the same log"))
            .stderr(log)
            .spawn()
            .expect("muster-operator starts");
        self.child = Some(child);
    }

    pub fn print_log(&self) {
        print_log(&self.log);
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
    }
}
