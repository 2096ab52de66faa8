//! Rules of the published simulators of Pollux (OSDI 2021) and Sia (SOSP 2023), for comparisons
//! under the same conditions. Decisions happen every minute. Restarts have fixed costs. Step times
//! and efficiency come from measured profiles.
//!
//! [`Profiles`] contains the true behaviour of applications. A policy receives a dense problem
//! built from measurements so far ([`Sight`]), unless its authors gave it an oracle.

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
