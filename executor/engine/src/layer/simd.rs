//! Compiles a loop twice, for the baseline instruction set and for AVX2, and picks by what the processor has.
//!
//! The compiler never contracts a multiplication and an addition by itself, so both give the same bits. Explicit intrinsics were
//! rejected: these loops are short and the compiler vectorises them well once it may use wide registers.

/// Wraps function items so that their bodies exist in both versions. Only for loops over slices, where the check, one load and
/// one branch, vanishes.
macro_rules! vectorised {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn portable($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    portable($($arg),*)
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

pub(crate) use vectorised;
