//! End of training, as far as a shard knows it.

/// Events after which waiting workers or shards are not served any more.
#[derive(Debug, Default)]
pub struct Ending {
    /// The coordinator has ended training.
    pub finished: bool,
    /// Set when the coordinator has gone; `true` if it left without a goodbye.
    pub chief_lost: Option<bool>,
    /// Another shard left in the middle of a move, or this one was replaced.
    pub broken: bool,
    /// The coordinator lost its connection here and promoted the replica in another process.
    pub superseded: bool,
}

impl Ending {
    /// Whether no worker continues.
    pub fn is_over(&self) -> bool {
        self.finished || self.chief_lost.is_some()
    }
}
