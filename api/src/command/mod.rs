//! What the program does besides serving.

pub mod bootstrap;
pub mod check_token;
pub mod migrate;
pub mod serve;
