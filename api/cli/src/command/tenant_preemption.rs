//! `muster tenants preemption`: caps on what a tenant's jobs may demand in `preemption`.

use super::CliSession;
use super::tenant_lookup::find;
use crate::output::fields;
use clap::Args;
use muster_model::spec::AllowedPreemption;
use muster_model::tenant::TenantPreemptionChange;
use muster_model::view::{TenantChange, TenantView};

/// Show or set caps on the `preemption` part of a tenant's job documents; `none` removes a cap.
#[derive(Debug, Args)]
pub struct TenantPreemptionArgs {
    name: String,
    /// Strictest `preemption.allowed` that its jobs may state.
    #[arg(long, value_name = "suspend|restart|none", value_parser = allowed)]
    allowed: Option<AllowedCap>,
    /// Largest `preemption.min_runtime`, in seconds.
    #[arg(long, value_name = "SECONDS|none", value_parser = seconds)]
    min_runtime: Option<SecondsCap>,
    /// Largest `preemption.grace_s`, in seconds.
    #[arg(long, value_name = "SECONDS|none", value_parser = seconds)]
    grace: Option<SecondsCap>,
    /// Largest `preemption.checkpoint_on_request.timeout_s`, in seconds.
    #[arg(long, value_name = "SECONDS|none", value_parser = seconds)]
    timeout: Option<SecondsCap>,
}

/// A cap, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AllowedCap(Option<AllowedPreemption>);

/// A cap, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SecondsCap(Option<u32>);

fn allowed(text: &str) -> Result<AllowedCap, String> {
    match text {
        "none" => Ok(AllowedCap(None)),
        "suspend" => Ok(AllowedCap(Some(AllowedPreemption::Suspend))),
        "restart" => Ok(AllowedCap(Some(AllowedPreemption::Restart))),
        _ => Err("expected suspend, restart or none".to_owned()),
    }
}

fn seconds(text: &str) -> Result<SecondsCap, String> {
    match text {
        "none" => Ok(SecondsCap(None)),
        _ => match text.parse() {
            Ok(seconds) => Ok(SecondsCap(Some(seconds))),
            Err(_) => Err("expected a number of seconds, or none".to_owned()),
        },
    }
}

impl TenantPreemptionArgs {
    /// Shows the caps, after changing the given ones.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let given = TenantPreemptionChange {
            allowed: self.allowed.map(|cap| cap.0),
            min_runtime: self.min_runtime.map(|cap| cap.0),
            grace_s: self.grace.map(|cap| cap.0),
            timeout_s: self.timeout.map(|cap| cap.0),
        };
        let tenant = if given.is_nothing() {
            find(session, &self.name).await?
        } else {
            let change = TenantChange {
                preemption: Some(given),
                ..TenantChange::default()
            };
            session.client.change_tenant(&self.name, &change).await?
        };
        session.output.print(&tenant, shown)
    }
}

fn shown(tenant: &TenantView) -> String {
    let caps = tenant.preemption;
    let seconds = |cap: Option<u32>| cap.map_or("none".to_owned(), |cap| format!("{cap} s"));
    let allowed = caps.allowed.map_or("none", AllowedPreemption::as_str);
    fields(&[
        ("tenant", tenant.name.clone()),
        ("allowed", allowed.to_owned()),
        ("min_runtime", seconds(caps.min_runtime)),
        ("grace_s", seconds(caps.grace_s)),
        ("timeout_s", seconds(caps.timeout_s)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cap_is_a_value_or_none() {
        assert_eq!(seconds("600"), Ok(SecondsCap(Some(600))));
        assert_eq!(seconds("none"), Ok(SecondsCap(None)));
        assert!(seconds("10m").is_err());
        let expected = AllowedCap(Some(AllowedPreemption::Suspend));
        assert_eq!(allowed("suspend"), Ok(expected));
        assert!(allowed("never").is_err(), "it is no cap");
    }
}
