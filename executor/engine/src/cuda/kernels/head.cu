// What all kernels share: the type of values, reading and writing it, sums over a warp and a block.
//
// Values between operations are `val`: f32, or bf16 when BF16 is defined. Parameters as stored, their gradients and statistics are
// f32. All arithmetic is f32. Nothing here uses atomics: sums have one order, so the same input gives the same bits.
//
// The source is also compiled by the machine's own C++ compiler, where tests run it thread by thread (emulator.hpp): keep to what
// both understand. Blocks have a whole number of warps, and grids one dimension.

typedef long long i64;
typedef unsigned long long u64;

#ifdef BF16
struct val { unsigned short bits; };
static __device__ __forceinline__ float get(val x) { return __uint_as_float((unsigned)x.bits << 16); }
// To the nearest, ties to even; a NaN stays one.
static __device__ __forceinline__ val as_val(float x) {
    unsigned bits = __float_as_uint(x);
    val y;
    if (x != x) {
        y.bits = (unsigned short)((bits >> 16) | 0x40u);
    } else {
        y.bits = (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
    return y;
}
#else
typedef float val;
static __device__ __forceinline__ float get(val x) { return x; }
static __device__ __forceinline__ val as_val(float x) { return x; }
#endif

// Sixteen bytes of values, moved at once where channels allow it.
struct alignas(16) wide { unsigned int word[4]; };

static __device__ __forceinline__ i64 global_index() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

// A NaN passes, so that a diverged network shows in the loss; fmaxf would hide it.
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

// The sum over a block, for all of its threads.
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

// The largest of a block's numbers, for all of its threads; a NaN counts as none.
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
