//! The rules of the peers' published simulators, so that our policies are compared on their own ground: Pollux' (OSDI 2021) and
//! Sia's (SOSP 2023). Ticks of a minute, restarts of fixed cost, step times and efficiency from measured profiles.
//!
//! The truth about applications lies in [`Profiles`]; a policy sees a dense problem made of what was measured so far ([`Sight`]),
//! unless it is one that its authors gave an oracle.

mod application;
mod contest;
mod entry;
mod floor;
mod profiles;
mod rules;
mod sight;
mod throughput;
mod ticks;
mod training;

pub use application::{Application, Epoch, Noise};
pub use contest::{Cluster, ContestError, Contestant, NodeGroup};
pub use floor::seconds_at_request;
pub use profiles::{ProfileError, Profiles};
pub use rules::Rules;
pub use sight::Sight;
pub use ticks::{Progress, Terms, run};
