//! Questions about what is not, one file per verb. The api asks in the store and waits; the scheduler answers.

mod ask;
pub mod plan;
pub mod what_if;
