//! Software prefetch. Useful for random accesses and for the memory that follows a pass over cached
//! data. Also useful for loops with much computation per value, of which few iterations fit into
//! the processor's window. Short sequential loops are left to the hardware prefetcher.

/// Floats per cache line.
pub const LINE: usize = 16;

/// Prefetches the cache line of `values[index]`. The index may be out of range; the prefetch then
/// has no effect.
#[inline(always)]
pub fn prefetch(values: *const f32, index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has SSE, and a prefetch of an unmapped address has no
        // effect.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(values.wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, index);
}
