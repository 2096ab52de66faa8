//! Compiles a loop three times, for the baseline instruction set, AVX2 and AVX-512, and selects by
//! the processor.
//!
//! The compiler never contracts a multiplication and an addition on its own, so all versions give
//! the same bits. Intrinsics were rejected: these loops are short, and the compiler vectorises them
//! well with wide registers.

/// Compiles the bodies of the wrapped functions in every version. Use it only for loops over
/// slices, for which the cost of the check, one load and one branch, is negligible.
#[macro_export]
macro_rules! vectorised {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn portable($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512($($arg: $ty),*) $(-> $ret)? {
                    portable($($arg),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    portable($($arg),*)
                }
                // No processor has these parts without AVX-512 Foundation.
                if std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("avx512vl")
                {
                    // SAFETY: the processor has these parts of AVX-512, as just checked.
                    return unsafe { avx512($($arg),*) };
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has AVX2, as just checked.
                    return unsafe { avx2($($arg),*) };
                }
            }
            portable($($arg),*)
        }
    )*};
}

pub use crate::vectorised;
