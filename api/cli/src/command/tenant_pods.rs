//! `muster tenants pods`: what the pods of a tenant's tasks may have.

use super::Session;
use super::tenants::find;
use crate::output::fields;
use clap::Args;
use muster_model::tenant::TenantPodsChange;
use muster_model::view::{TenantChange, TenantView};

/// A list that is given takes the place of the whole list before; `none` empties it.
#[derive(Debug, Args)]
pub struct Pods {
    name: String,
    /// The Kubernetes service account that its tasks run as, with its token; `none`: that of all tasks.
    #[arg(long, value_name = "NAME|none")]
    service_account: Option<String>,
    /// An image that its jobs may name, or what images begin with (`registry.example.com/vision/*`, `registry.example.com/vision/trainer-*`); again for more; `none`: any image.
    #[arg(long = "image", value_name = "IMAGE|none")]
    images: Vec<String>,
    /// A PersistentVolumeClaim that they may mount; again for more.
    #[arg(long = "claim", value_name = "NAME|none")]
    claims: Vec<String>,
    /// A secret that they may mount, take variables from and pull images by; again for more.
    #[arg(long = "secret", value_name = "NAME|none")]
    secrets: Vec<String>,
    /// A ConfigMap that they may mount; again for more.
    #[arg(long = "config-map", value_name = "NAME|none")]
    config_maps: Vec<String>,
}

impl Pods {
    /// Shows what holds, after it was changed if anything was given.
    ///
    /// # Errors
    /// What the server says.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
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

    /// And no more than that: another administrator may change the other lists at the same time.
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
    let all = |names: &[String], none: &str| match names {
        [] => none.to_owned(),
        names => names.join(", "),
    };
    let account = pods.service_account.clone();
    fields(&[
        ("tenant", tenant.name.clone()),
        (
            "service account",
            account.unwrap_or_else(|| "that of all tasks".to_owned()),
        ),
        ("images", all(&pods.images, "any")),
        ("claims", all(&pods.claims, "none")),
        ("secrets", all(&pods.secrets, "none")),
        ("config maps", all(&pods.config_maps, "none")),
    ])
}
