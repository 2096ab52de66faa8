//! `muster tenants pods`: what the pods of a tenant's tasks may use.

use super::CliSession;
use super::tenant_lookup::find;
use crate::output::fields;
use clap::Args;
use muster_model::tenant::TenantPodsChange;
use muster_model::view::{TenantChange, TenantView};

/// Show or set what the pods of a tenant may use; a given list replaces the previous one, `none`
/// empties it.
#[derive(Debug, Args)]
pub struct TenantPodsArgs {
    name: String,
    /// Kubernetes service account of its tasks, with its token; `none`: the common account of all
    /// tasks.
    #[arg(long, value_name = "NAME|none")]
    service_account: Option<String>,
    /// Image that its jobs may name, or beginning of images (`registry.example.com/vision/*`,
    /// `registry.example.com/vision/trainer-*`); may be repeated; `none`: any image.
    #[arg(long = "image", value_name = "IMAGE|none")]
    images: Vec<String>,
    /// PersistentVolumeClaim that its jobs may mount; may be repeated.
    #[arg(long = "claim", value_name = "NAME|none")]
    claims: Vec<String>,
    /// Secret that its jobs may mount, read variables from and use to pull images; may be repeated.
    #[arg(long = "secret", value_name = "NAME|none")]
    secrets: Vec<String>,
    /// ConfigMap that its jobs may mount; may be repeated.
    #[arg(long = "config-map", value_name = "NAME|none")]
    config_maps: Vec<String>,
}

impl TenantPodsArgs {
    /// Shows the settings, after changing the given ones.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let given = self.given();
        let tenant = if given.is_nothing() {
            find(session, &self.name).await?
        } else {
            let change = TenantChange {
                pods: Some(given),
                ..TenantChange::default()
            };
            session.client.change_tenant(&self.name, &change).await?
        };
        session.output.print(&tenant, shown)
    }

    /// Contains only the given lists, because another administrator may change the others at the
    /// same time.
    fn given(&self) -> TenantPodsChange {
        let account = self.service_account.clone();
        TenantPodsChange {
            service_account: account.map(|name| Some(name).filter(|name| name != "none")),
            images: list(&self.images),
            claims: list(&self.claims),
            secrets: list(&self.secrets),
            config_maps: list(&self.config_maps),
        }
    }
}

fn list(given: &[String]) -> Option<Vec<String>> {
    let named = given.iter().filter(|name| *name != "none");
    (!given.is_empty()).then(|| named.cloned().collect())
}

fn shown(tenant: &TenantView) -> String {
    let pods = &tenant.pods;
    let account = pods.service_account.clone();
    fields(&[
        ("tenant", tenant.name.clone()),
        (
            "service account",
            account.unwrap_or_else(|| "that of all tasks".to_owned()),
        ),
        ("images", names_or(&pods.images, "any")),
        ("claims", names_or(&pods.claims, "none")),
        ("secrets", names_or(&pods.secrets, "none")),
        ("config maps", names_or(&pods.config_maps, "none")),
    ])
}

fn names_or(names: &[String], none: &str) -> String {
    match names {
        [] => none.to_owned(),
        names => names.join(", "),
    }
}
