//! Networks that read sequences of tokens.
