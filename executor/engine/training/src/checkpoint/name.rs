//! Names of checkpoints and trained models, the same in a folder and in a bucket.

use std::fmt;

/// Checkpoint or trained model with the revision that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckpointName {
    Step { step: u64, revision: u64 },
    Final { revision: u64 },
}

impl CheckpointName {
    /// Parses a name; `None` if it is not a name of this kind.
    pub fn parse(name: &str) -> Option<Self> {
        let (kind, revision) = name.rsplit_once("-r")?;
        let revision = revision.parse().ok()?;
        if kind == "final" {
            return Some(Self::Final { revision });
        }
        let step = kind.strip_prefix("step-")?.parse().ok()?;
        Some(Self::Step { step, revision })
    }

    /// Revision of the writer.
    pub fn revision(self) -> u64 {
        match self {
            Self::Step { revision, .. } | Self::Final { revision } => revision,
        }
    }
}

impl fmt::Display for CheckpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { step, revision } => write!(f, "step-{step:010}-r{revision}"),
            Self::Final { revision } => write!(f, "final-r{revision}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CheckpointName;

    #[test]
    fn names_survive_formatting_and_parsing() {
        for (name, text) in [
            (
                CheckpointName::Step {
                    step: 12,
                    revision: 3,
                },
                "step-0000000012-r3",
            ),
            (CheckpointName::Final { revision: 12 }, "final-r12"),
        ] {
            assert_eq!(name.to_string(), text);
            assert_eq!(CheckpointName::parse(text), Some(name));
        }
        for other in [
            "index.json",
            "uploads",
            "other-r3",
            "step-0000000012",
            "step-x-r3",
            "final-rx",
        ] {
            assert_eq!(CheckpointName::parse(other), None, "{other}");
        }
    }
}
