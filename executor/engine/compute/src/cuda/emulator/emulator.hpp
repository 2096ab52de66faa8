// Runs the kernels' source on the CPU, one thread after another. A thread that waits for its block
// or warp yields to the next. Threads of a block that wait at different barriers are reported,
// because a GPU would hang.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csetjmp>
#include <utility>
#include <vector>
#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static

struct place3 { unsigned x, y, z; };
static place3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {
enum state { RUNNING, AT_BLOCK, AT_WARP, DONE };

struct fiber {
    ucontext_t start;
    jmp_buf at;
    bool is_started;
    state waits;
    uint32_t slot;
    uint32_t tile[6];
    std::vector<char> stack;
};

static std::vector<fiber> fibers;
static jmp_buf scheduler;
static unsigned current;
static bool is_cooperative;
static const char* kernel;
static void (*body)(void**);
static void** arguments;

static void fail(const char* why) {
    fprintf(stderr, "kernel %s: %s\n", kernel, why);
    abort();
}

static void yield(state why) {
    if (!is_cooperative) fail("waits for others, but is not said to");
    fibers[current].waits = why;
    if (_setjmp(fibers[current].at) == 0) _longjmp(scheduler, 1);
}

static void entry() {
    body(arguments);
    fibers[current].waits = DONE;
    _longjmp(scheduler, 1);
}

static void resume(unsigned index) {
    current = index;
    threadIdx.x = index;
    fiber& f = fibers[index];
    if (_setjmp(scheduler) != 0) return;
    if (f.is_started) _longjmp(f.at, 1);
    f.is_started = true;
    setcontext(&f.start);
}

// Resumes the threads that wait for `why`, once all live threads of their group do.
static bool release(unsigned from, unsigned to, state why) {
    bool is_any = false;
    bool has_left = false;
    for (unsigned i = from; i < to; i++) {
        has_left = has_left || fibers[i].waits == DONE;
        if (fibers[i].waits == DONE) continue;
        if (fibers[i].waits != why) return false;
        is_any = true;
    }
    // The masks of these kernels name all lanes.
    if (is_any && has_left && why == AT_WARP) fail("waits for a lane that has left");
    for (unsigned i = from; i < to; i++)
        if (fibers[i].waits == why) fibers[i].waits = RUNNING;
    return is_any;
}

static void run_block(unsigned threads) {
    for (unsigned i = 0; i < threads; i++) {
        fiber& f = fibers[i];
        getcontext(&f.start);
        f.start.uc_stack.ss_sp = f.stack.data();
        f.start.uc_stack.ss_size = f.stack.size();
        f.start.uc_link = nullptr;
        makecontext(&f.start, entry, 0);
        f.is_started = false;
        f.waits = RUNNING;
    }
    for (;;) {
        bool has_run = false, is_done = true;
        for (unsigned i = 0; i < threads; i++)
            if (fibers[i].waits == RUNNING) {
                resume(i);
                has_run = true;
            }
        for (unsigned i = 0; i < threads; i++) is_done = is_done && fibers[i].waits == DONE;
        if (is_done) return;
        bool goes_on = release(0, threads, AT_BLOCK);
        for (unsigned warp = 0; warp < threads; warp += 32) goes_on |= release(warp, warp + 32, AT_WARP);
        if (!goes_on && !has_run) fail("threads wait for each other in different places");
    }
}

template <class... T, size_t... I>
static void call(void (*function)(T...), void** from, std::index_sequence<I...>) {
    function(*(std::remove_const_t<T>*)from[I]...);
}

template <class... T>
static void call(void (*function)(T...), void** from) {
    call(function, from, std::index_sequence_for<T...>());
}

static void launch(const char* name, void (*function)(void**), unsigned blocks, unsigned threads, void** from, bool cooperative, bool backwards) {
    kernel = name;
    body = function;
    arguments = from;
    is_cooperative = cooperative;
    gridDim = {blocks, 1, 1};
    blockDim = {threads, 1, 1};
    if (threads % 32 || threads > 1024) fail("a block has whole warps, 32 at most");
    while (fibers.size() < threads) {
        fibers.emplace_back();
        fibers.back().stack.resize(32768);
    }
    for (unsigned i = 0; i < blocks; i++) {
        // No block may depend on another block having run before.
        blockIdx = {backwards ? blocks - 1 - i : i, 0, 0};
        if (cooperative) {
            run_block(threads);
            continue;
        }
        for (unsigned t = 0; t < threads; t++) {
            threadIdx = {backwards ? threads - 1 - t : t, 0, 0};
            function(from);
        }
    }
}
}  // namespace emulator

static inline void __syncthreads() { emulator::yield(emulator::AT_BLOCK); }

static inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static inline float __shfl_xor_sync(unsigned, float x, int mask) {
    using namespace emulator;
    unsigned own = current;
    fibers[own].slot = __float_as_uint(x);
    yield(AT_WARP);
    float other = __uint_as_float(fibers[own ^ (unsigned)mask].slot);
    yield(AT_WARP);
    return other;
}

static inline unsigned __ballot_sync(unsigned, bool is_so) {
    using namespace emulator;
    unsigned own = current, all = 0;
    fibers[own].slot = is_so;
    yield(AT_WARP);
    for (unsigned lane = 0; lane < 32; lane++) all |= (fibers[own / 32 * 32 + lane].slot & 1u) << lane;
    yield(AT_WARP);
    return all;
}

// Definition of mma.m16n8k16 with bf16 in PTX: each thread holds two columns of rows `group` and
// `group` + 8.
static inline void multiply_tiles(float* sum, const unsigned* left, unsigned right0, unsigned right1) {
    using namespace emulator;
    unsigned own = current, warp = own / 32 * 32, group = own % 32 / 4, column = own % 4 * 2;
    const unsigned all[6] = {left[0], left[1], left[2], left[3], right0, right1};
    memcpy(fibers[own].tile, all, sizeof all);
    yield(AT_WARP);
    auto half = [](unsigned word, unsigned k) { return __uint_as_float(k % 2 ? word & 0xffff0000u : word << 16); };
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 16; k++) {
            unsigned lane = k % 8 / 2;
            unsigned of_left = fibers[warp + group * 4 + lane].tile[k / 8 * 2 + i / 2];
            unsigned of_right = fibers[warp + (column + i % 2) * 4 + lane].tile[4 + k / 8];
            sum[i] += half(of_left, k) * half(of_right, k);
        }
    yield(AT_WARP);
}

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
