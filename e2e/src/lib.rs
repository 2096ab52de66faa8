//! Whole-system stories on real processes: a cluster as `muster up` runs it, driven through REST, with parts killed on purpose.
