//! Asking for memory before it is needed: for places that are jumped to, for what comes after a pass over the cache, and for loops that
//! compute so much a number that few of them fit into the processor's window. Short loops over runs are best left to the processor.

/// Floats of a cache line.
pub(crate) const LINE: usize = 16;

/// Asks for the cache line of `values[index]`, which need not be one of them: there is nothing to fetch then.
#[inline(always)]
pub(crate) fn prefetch(values: *const f32, index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has SSE, and asking for an address that is not mapped does nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(values.wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, index);
}
