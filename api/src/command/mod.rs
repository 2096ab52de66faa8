//! Commands of the program.

pub mod bootstrap;
pub mod check_token;
pub mod migrate;
pub mod secrets;
pub mod serve;
