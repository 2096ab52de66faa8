//! Planning questions, one file per verb. The API server stores a question and waits; the scheduler
//! answers.

mod ask;
pub mod plan;
pub mod what_if;
