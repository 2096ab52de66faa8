//! Operations on sequences: positions × features.
