//! Shape of a cluster as text: `16x4`, or `aws:6x4,dgx-ext:2x8,rtx:3x8` with several GPU kinds.

use super::{Cluster, NodeGroup};
use std::str::FromStr;

/// Maximum number of GPUs. It is larger than any real cluster, and counts stay far below the limit
/// of `u32`.
const MOST_GPUS: u64 = 10_000_000;

/// The text is not the shape of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClusterShapeError {
    #[error(
        "expected nodes x GPUs of each, such as 16x4, or of several kinds aws:6x4,dgx-ext:2x8,rtx:3x8"
    )]
    NoShape,
    #[error("a cluster of several groups names each group's kind, such as aws:6x4")]
    NoKind,
    #[error("it has {gpus} GPUs; expected at most {MOST_GPUS}")]
    TooLarge { gpus: u64 },
}

impl FromStr for Cluster {
    type Err = ClusterShapeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let groups: Option<Vec<NodeGroup>> = text.split(',').map(group).collect();
        let groups = groups.ok_or(ClusterShapeError::NoShape)?;
        if groups.len() > 1 && groups.iter().any(|group| group.kind.is_none()) {
            return Err(ClusterShapeError::NoKind);
        }
        let gpus = groups
            .iter()
            .map(|group| u64::from(group.nodes) * u64::from(group.gpus))
            .sum();
        if gpus > MOST_GPUS {
            return Err(ClusterShapeError::TooLarge { gpus });
        }
        Ok(Self { groups })
    }
}

fn group(text: &str) -> Option<NodeGroup> {
    let (kind, shape) = match text.rsplit_once(':') {
        Some((kind, shape)) if !kind.is_empty() => (Some(kind.to_owned()), shape),
        Some(_) => return None,
        None => (None, text),
    };
    let (nodes, gpus) = shape.split_once('x')?;
    let count = |text: &str| text.parse::<u32>().ok().filter(|count| *count > 0);
    Some(NodeGroup {
        kind,
        nodes: count(nodes)?,
        gpus: count(gpus)?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Cluster, ClusterShapeError};

    fn parse(text: &str) -> Result<Cluster, ClusterShapeError> {
        text.parse()
    }

    #[test]
    fn cluster_is_parsed_from_its_shape() {
        let plain = parse("16x4").expect("one kind");
        assert_eq!((plain.gpus(), plain.groups.len()), (64, 1));
        let mixed = parse("aws:6x4,dgx-ext:2x8,rtx:3x8").expect("three kinds");
        assert_eq!(mixed.gpus(), 64);
        assert_eq!(mixed.groups[1].kind.as_deref(), Some("dgx-ext"));
        for wrong in ["", "16", "16x", "0x4", "4x0", "x4", ":4x4", "4x4,"] {
            assert_eq!(parse(wrong), Err(ClusterShapeError::NoShape), "{wrong}");
        }
        for wrong in ["4x4,8x2", "a:4x4,8x2"] {
            assert_eq!(parse(wrong), Err(ClusterShapeError::NoKind), "{wrong}");
        }
        let large = parse("4000000000x4000000000");
        assert!(matches!(large, Err(ClusterShapeError::TooLarge { .. })));
    }
}
