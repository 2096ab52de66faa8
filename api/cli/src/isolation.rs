//! Sentences about the isolation of process tasks on nodes, and about their images.

use muster_model::node::{ImageSupport, TaskIsolation};
use muster_model::view::NodeView;
use std::collections::BTreeMap;

/// Maximum number of nodes that a line names.
const NODES_NAMED: usize = 3;

/// Returns a line for each kind of isolation and of support of images in the cluster, with the
/// nodes that have it.
pub fn lines(nodes: &[NodeView]) -> Vec<String> {
    let mut kinds: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        let capacity = &node.capacity;
        let images = capacity.images.as_ref().map(of_images);
        let sentences = capacity.isolation.iter().map(sentence).chain(images);
        for sentence in sentences {
            kinds.entry(sentence).or_default().push(&node.name);
        }
    }
    let line = |(sentence, of_kind): (String, Vec<&str>)| {
        let named = of_kind.iter().take(NODES_NAMED);
        let named = named.copied().collect::<Vec<_>>().join(", ");
        let more = of_kind.len().saturating_sub(NODES_NAMED);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{named}{more}: {sentence}")
    };
    kinds.into_iter().map(line).collect()
}

fn of_images(images: &ImageSupport) -> String {
    match images {
        ImageSupport::Able => "tasks can run in images (pod.image)".to_owned(),
        ImageSupport::Unable { why } => format!("tasks cannot run in images: {why}"),
    }
}

fn sentence(isolation: &TaskIsolation) -> String {
    match isolation {
        TaskIsolation::TenantUsers { shared_view: None } => {
            "each tenant has a Unix user of its own; tasks see no processes and temporary files of other tenants".to_owned()
        }
        TaskIsolation::TenantUsers {
            shared_view: Some(why),
        } => format!(
            "each tenant has a Unix user of its own; tasks share /tmp and see the processes of other tenants ({why})"
        ),
        TaskIsolation::SharedUser => {
            "tasks of all tenants share one Unix user; task_user=FIRST-LAST separates them".to_owned()
        }
        TaskIsolation::ExecutorUser => {
            "tasks of all tenants run as the executor's user; an executor that is root can separate them (task_user=FIRST-LAST)".to_owned()
        }
    }
}
