//! The typed client of Muster's REST interface, for the command line, the operator and tests of the
//! whole system.
//!
//! It knows the wire format and nothing else. Requests and responses are the types of
//! `muster_model::view`.

mod calls;
mod code;
mod download;
mod error;
mod query;
mod remote;
mod request;
mod schedule;
mod secret;
mod stream;
mod studies;
mod template;

pub use calls::{LogPage, LogPart};
pub use download::Download;
pub use error::ClientError;
pub use muster_model::view::Problem;
pub use query::{EventQuery, JobQuery, RecentQuery, TokenQuery};
pub use remote::{ALIVE, RemoteError, RemoteReceiver, RemoteSender};
pub use request::{Client, RequestOutcome};
pub use stream::{Messages, StreamItem};
