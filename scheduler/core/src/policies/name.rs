//! Names of the policies, as used by configuration files, simulations and the command line.

use super::SchedulingPolicy;
use super::drf::Drf;
use super::fifo::Fifo;
use super::gandiva::Gandiva;
use super::gavel::Gavel;
use super::gittins::TiresiasGittins;
use super::muster::Muster;
use super::optimus::Optimus;
use super::pollux::Pollux;
use super::sia::Sia;
use super::slaq::Slaq;
use super::srtf::Srtf;
use super::tetris::Tetris;
use super::themis::Themis;
use super::tiresias::Tiresias;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Name of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    Muster,
    Fifo,
    Tiresias,
    Srtf,
    Drf,
    Tetris,
    TiresiasGittins,
    Slaq,
    Themis,
    Gandiva,
    Optimus,
    GavelMaxMin,
    GavelMaxSum,
    Sia,
    Pollux,
}

/// Error: no policy has the given name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no policy is named \"{given}\": there are {}", names())]
pub struct UnknownPolicy {
    pub given: String,
}

impl PolicyName {
    /// All policies.
    pub const ALL: &[Self] = &[
        Self::Muster,
        Self::Fifo,
        Self::Tiresias,
        Self::Srtf,
        Self::Drf,
        Self::Tetris,
        Self::TiresiasGittins,
        Self::Slaq,
        Self::Themis,
        Self::Gandiva,
        Self::Optimus,
        Self::GavelMaxMin,
        Self::GavelMaxSum,
        Self::Sia,
        Self::Pollux,
    ];

    /// Returns the name as users write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Muster => "muster",
            Self::Fifo => "fifo",
            Self::Tiresias => "tiresias",
            Self::Srtf => "srtf",
            Self::Drf => "drf",
            Self::Tetris => "tetris",
            Self::TiresiasGittins => "tiresias-gittins",
            Self::Slaq => "slaq",
            Self::Themis => "themis",
            Self::Gandiva => "gandiva",
            Self::Optimus => "optimus",
            Self::GavelMaxMin => "gavel-max-min",
            Self::GavelMaxSum => "gavel-max-sum",
            Self::Sia => "sia",
            Self::Pollux => "pollux",
        }
    }

    /// Returns the policy of this name.
    #[must_use]
    pub fn policy(self) -> Box<dyn SchedulingPolicy> {
        match self {
            Self::Muster => Box::new(Muster::STANDARD),
            Self::Fifo => Box::new(Fifo),
            Self::Tiresias => Box::new(Tiresias),
            Self::Srtf => Box::new(Srtf),
            Self::Drf => Box::new(Drf),
            Self::Tetris => Box::new(Tetris),
            Self::TiresiasGittins => Box::new(TiresiasGittins),
            Self::Slaq => Box::new(Slaq),
            Self::Themis => Box::new(Themis),
            Self::Gandiva => Box::new(Gandiva),
            Self::Optimus => Box::new(Optimus),
            Self::GavelMaxMin => Box::new(Gavel::max_min()),
            Self::GavelMaxSum => Box::new(Gavel::max_sum()),
            Self::Sia => Box::new(Sia),
            Self::Pollux => Box::new(Pollux),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(given: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.iter().copied();
        all.find(|name| name.as_str() == given)
            .ok_or_else(|| UnknownPolicy {
                given: given.to_owned(),
            })
    }
}

fn names() -> String {
    let names: Vec<&str> = PolicyName::ALL.iter().map(|name| name.as_str()).collect();
    names.join(", ")
}
