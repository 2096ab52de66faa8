// Common code of all kernels: the type of values, its loads and stores, sums over a warp and a
// block.
//
// Values between operations are `val`: f32, or bf16 if BF16 is defined. Stored parameters, their
// gradients and statistics are f32. All arithmetic is f32. Kernels use no atomics: sums have one
// order, so the same input gives the same bits.
//
// The machine's C++ compiler also compiles this source, for tests that run it thread by thread
// (emulator.hpp). Use only constructs that both compilers support, or provide a variant for each.
// Blocks have a whole number of warps, and grids have one dimension.

typedef long long i64;
typedef unsigned long long u64;

#ifdef BF16
struct val { unsigned short bits; };
static __device__ __forceinline__ float get(val x) { return __uint_as_float((unsigned)x.bits << 16); }
// Rounds to nearest, ties to even; a NaN stays a NaN.
static __device__ __forceinline__ val as_val(float x) {
    val y;
#ifdef __CUDACC__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    unsigned bits = __float_as_uint(x);
    y.bits = (unsigned short)(x != x ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
    return y;
}

// Packs two values into a word, the first in the lower half, as in memory.
static __device__ __forceinline__ unsigned as_pair(float first, float second) {
#ifdef __CUDACC__
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
#else
    return (unsigned)as_val(first).bits | (unsigned)as_val(second).bits << 16;
#endif
}
static __device__ __forceinline__ float first_of(unsigned pair) { return __uint_as_float(pair << 16); }
static __device__ __forceinline__ float second_of(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

#ifdef __CUDACC__
// A warp's 16 × 8 `sum` += 16 × 16 `left` · 16 × 8 right on tensor cores. Each thread has its part
// in PTX's layout of mma.m16n8k16.
static __device__ __forceinline__ void multiply_tiles(float* sum, const unsigned* left, unsigned right0, unsigned right1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
#endif
#else
typedef float val;
static __device__ __forceinline__ float get(val x) { return x; }
static __device__ __forceinline__ val as_val(float x) { return x; }
#endif

// Sixteen bytes of values, moved at once if the number of channels allows it.
struct alignas(16) wide { unsigned int word[4]; };

static __device__ __forceinline__ i64 global_index() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

// The comparison propagates a NaN, so that divergence shows in the loss; fmaxf would hide it.
static __device__ __forceinline__ float rectify(float x) { return x < 0.0f ? 0.0f : x; }

static __device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }

static __device__ __forceinline__ float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

static __device__ __forceinline__ float warp_max(float x) {
    for (int offset = 16; offset > 0; offset /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, x, offset);
        x = other > x ? other : x;
    }
    return x;
}

// Sum over a block, returned to all of its threads.
static __device__ float block_sum(float x) {
    __shared__ float sums[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0) sums[warp] = x;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < warps; i++) sum += sums[i];
    return sum;
}

// Largest value of a block, returned to all of its threads; a NaN is ignored.
static __device__ float block_max(float x) {
    __shared__ float most[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_max(x);
    __syncthreads();
    if (lane == 0) most[warp] = x;
    __syncthreads();
    float max = most[0];
    for (int i = 1; i < warps; i++) max = most[i] > max ? most[i] : max;
    return max;
}
