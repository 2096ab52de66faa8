// Elementwise kernels: casts, activations, sums of two values, dropout, moves of rows and columns.
// Also the wide loads and stores of all kernels: eight elements per thread, which are 16 bytes of
// bf16 or 32 bytes of f32.

enum { PACK = 8 };

template <int N>
struct pack { float at[N]; };

#ifdef BF16
static __device__ __forceinline__ float get(float x) { return x; }
static __device__ __forceinline__ void put(val* y, float x) { *y = as_val(x); }
#endif
static __device__ __forceinline__ void put(float* y, float x) { *y = x; }

// Loads and stores of 16 bytes at a time.
static __device__ __forceinline__ pack<PACK> load_wide(const float* x) {
    const wide words[2] = {((const wide*)x)[0], ((const wide*)x)[1]};
    pack<PACK> numbers;
#pragma unroll
    for (int k = 0; k < PACK; k++) numbers.at[k] = __uint_as_float(words[k / 4].word[k % 4]);
    return numbers;
}

static __device__ __forceinline__ void store_wide(float* y, const pack<PACK>& numbers) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        wide words;
#pragma unroll
        for (int k = 0; k < 4; k++) words.word[k] = __float_as_uint(numbers.at[4 * half + k]);
        ((wide*)y)[half] = words;
    }
}

#ifdef BF16
static __device__ __forceinline__ pack<PACK> load_wide(const val* x) {
    const wide words = *(const wide*)x;
    pack<PACK> numbers;
#pragma unroll
    for (int k = 0; k < PACK / 2; k++) {
        numbers.at[2 * k] = __uint_as_float(words.word[k] << 16);
        numbers.at[2 * k + 1] = __uint_as_float(words.word[k] & 0xffff0000u);
    }
    return numbers;
}

static __device__ __forceinline__ void store_wide(val* y, const pack<PACK>& numbers) {
    wide words;
#pragma unroll
    for (int k = 0; k < PACK / 2; k++)
        words.word[k] = (unsigned)as_val(numbers.at[2 * k]).bits | (unsigned)as_val(numbers.at[2 * k + 1]).bits << 16;
    *(wide*)y = words;
}
#endif

// Loads eight elements from an address aligned to 16 bytes, or one element.
template <int N, typename T>
static __device__ __forceinline__ pack<N> load(const T* x) {
    if constexpr (N == PACK) {
        return load_wide(x);
    } else {
        pack<N> numbers;
        for (int k = 0; k < N; k++) numbers.at[k] = get(x[k]);
        return numbers;
    }
}

template <int N, typename T>
static __device__ __forceinline__ void store(T* y, const pack<N>& numbers) {
    if constexpr (N == PACK) {
        store_wide(y, numbers);
    } else {
        for (int k = 0; k < N; k++) put(y + k, numbers.at[k]);
    }
}

static __device__ __forceinline__ bool is_aligned(const void* at) { return (u64)at % 16 == 0; }

// Part of `count` elements that a thread processes: eight, or the rest.
struct portion { i64 first; int count; bool is_wide; };

// Returns portion `index`. `arrays` are the arrays that are accessed there; some may be null.
template <typename... T>
static __device__ __forceinline__ portion portion_at(i64 index, i64 count, T*... arrays) {
    portion own;
    own.first = index * PACK;
    i64 left = count - own.first;
    own.count = left < 0 ? 0 : left < PACK ? (int)left : (int)PACK;
    own.is_wide = own.count == PACK && (is_aligned(arrays) && ...);
    return own;
}

template <typename... T>
static __device__ __forceinline__ portion own_portion(i64 count, T*... arrays) {
    return portion_at(global_index(), count, arrays...);
}

// Loads a portion; elements past the end are 0.
template <typename T>
static __device__ __forceinline__ pack<PACK> take(const T* x, const portion& own) {
    if (own.is_wide) return load_wide(x + own.first);
    pack<PACK> numbers;
#pragma unroll
    for (int k = 0; k < PACK; k++) numbers.at[k] = k < own.count ? get(x[own.first + k]) : 0.0f;
    return numbers;
}

template <typename T>
static __device__ __forceinline__ void leave(T* y, const portion& own, const pack<PACK>& numbers) {
    if (own.is_wide) return store_wide(y + own.first, numbers);
#pragma unroll
    for (int k = 0; k < PACK; k++)
        if (k < own.count) put(y + own.first + k, numbers.at[k]);
}

extern "C" __global__ void cast_in(const float* x, val* y, i64 count) {
    portion own = own_portion(count, x, y);
    leave(y, own, take(x, own));
}

extern "C" __global__ void copy_numbers(const float* x, float* y, i64 count) {
    portion own = own_portion(count, x, y);
    leave(y, own, take(x, own));
}

// Applies bias and ReLU in place after a product without them. `bias` is null for a layer without
// bias.
extern "C" __global__ void bias_relu(val* x, const val* bias, i64 count, int columns, i64 stride, int relu) {
    i64 i = global_index();
    if (i >= count) return;
    int column = (int)(i % columns);
    val* at = x + i / columns * stride + column;
    float sum = get(*at) + (bias ? get(bias[column]) : 0.0f);
    *at = as_val(relu ? rectify(sum) : sum);
}

extern "C" __global__ void sum_two(const val* a, const val* b, val* y, i64 count, int relu) {
    portion own = own_portion(count, a, b, y);
    pack<PACK> sum = take(a, own), more = take(b, own);
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        sum.at[k] += more.at[k];
        if (relu) sum.at[k] = rectify(sum.at[k]);
    }
    leave(y, own, sum);
}

extern "C" __global__ void add_to(val* sum, const val* part, i64 count) {
    portion own = own_portion(count, sum, part);
    pack<PACK> numbers = take(sum, own), more = take(part, own);
#pragma unroll
    for (int k = 0; k < PACK; k++) numbers.at[k] += more.at[k];
    leave(sum, own, numbers);
}

// Backward pass of a ReLU with output `y`.
static __device__ __forceinline__ pack<PACK> masked(pack<PACK> d, const pack<PACK>& y) {
#pragma unroll
    for (int k = 0; k < PACK; k++) d.at[k] = y.at[k] > 0.0f ? d.at[k] : 0.0f;
    return d;
}

// Backward pass of a ReLU, in place.
extern "C" __global__ void mask(val* d, const val* y, i64 count) {
    portion own = own_portion(count, d, y);
    leave(d, own, masked(take(d, own), take(y, own)));
}

// Backward pass of a sum of two inputs with an optional ReLU. `y` is null without ReLU; `d_a` or
// `d_b` is null if its gradient is not needed.
extern "C" __global__ void d_sum_two(const val* d, const val* y, val* d_a, val* d_b, i64 count) {
    portion own = own_portion(count, d, y, d_a, d_b);
    pack<PACK> numbers = take(d, own);
    if (y) numbers = masked(numbers, take(y, own));
    if (d_a) leave(d_a, own, numbers);
    if (d_b) leave(d_b, own, numbers);
}

// Adds the same row of `len` elements to each row.
extern "C" __global__ void add_row(const val* x, const float* row, val* y, i64 count, i64 len) {
    portion own = own_portion(count, x, y);
    if (own.count == 0) return;
    pack<PACK> numbers = take(x, own);
    i64 place = own.first % len;
    if (len % PACK == 0 && is_aligned(row)) {
        pack<PACK> more = load_wide(row + place);
#pragma unroll
        for (int k = 0; k < PACK; k++) numbers.at[k] += more.at[k];
    } else {
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            numbers.at[k] += row[place];
            place = place + 1 < len ? place + 1 : 0;
        }
    }
    leave(y, own, numbers);
}

enum { RELU, LEAKY, GELU, GELU_TANH, SIGMOID, TANH, SILU };

static __device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static __device__ __forceinline__ float normal(float x) { return 0.5f + 0.5f * erff(x * 0.70710678f); }

// (1 + tanh z) / 2 in the approximation of GELU equals sigmoid(2 z).
static __device__ __forceinline__ float bent(float x) { return sigmoid(1.5957691f * (x + 0.044715f * x * x * x)); }

template <int FUNCTION>
static __device__ __forceinline__ float activation(float slope, float x) {
    switch (FUNCTION) {
        case RELU: return rectify(x);
        case LEAKY: return x < 0.0f ? slope * x : x;
        case GELU: return x * normal(x);
        case GELU_TANH: return x * bent(x);
        case SIGMOID: return sigmoid(x);
        case TANH: return tanhf(x);
        default: return x * sigmoid(x);
    }
}

template <int FUNCTION>
static __device__ __forceinline__ float d_activation(float slope, float x) {
    switch (FUNCTION) {
        case RELU: return x > 0.0f ? 1.0f : 0.0f;
        case LEAKY: return x > 0.0f ? 1.0f : slope;
        case GELU: return normal(x) + x * (0.5f * 0.7978846f * expf(-0.5f * x * x));
        case GELU_TANH: {
            float s = bent(x), incline = s * (1.0f - s);
            // Where the slope of the sigmoid is 0, the slope of its argument may be infinite.
            float bend = incline == 0.0f ? 0.0f : x * incline * 1.5957691f * (1.0f + 3.0f * 0.044715f * x * x);
            return s + bend;
        }
        case SIGMOID: { float s = sigmoid(x); return s * (1.0f - s); }
        case TANH: { float t = tanhf(x); return 1.0f - t * t; }
        default: { float s = sigmoid(x); return s * (1.0f + x * (1.0f - s)); }
    }
}

template <int FUNCTION>
static __device__ __forceinline__ void activate_all(pack<PACK>& x, float slope) {
#pragma unroll
    for (int k = 0; k < PACK; k++) x.at[k] = activation<FUNCTION>(slope, x.at[k]);
}

extern "C" __global__ void activate(const val* x, val* y, i64 count, int function, float slope) {
    portion own = own_portion(count, x, y);
    pack<PACK> numbers = take(x, own);
    switch (function) {
        case RELU: activate_all<RELU>(numbers, slope); break;
        case LEAKY: activate_all<LEAKY>(numbers, slope); break;
        case GELU: activate_all<GELU>(numbers, slope); break;
        case GELU_TANH: activate_all<GELU_TANH>(numbers, slope); break;
        case SIGMOID: activate_all<SIGMOID>(numbers, slope); break;
        case TANH: activate_all<TANH>(numbers, slope); break;
        default: activate_all<SILU>(numbers, slope);
    }
    leave(y, own, numbers);
}

template <int FUNCTION>
static __device__ __forceinline__ void d_activate_all(pack<PACK>& d, const pack<PACK>& x, float slope) {
#pragma unroll
    for (int k = 0; k < PACK; k++) d.at[k] *= d_activation<FUNCTION>(slope, x.at[k]);
}

extern "C" __global__ void d_activate(const val* x, const val* d_y, val* d_x, i64 count, int function, float slope) {
    portion own = own_portion(count, x, d_y, d_x);
    pack<PACK> numbers = take(x, own), d = take(d_y, own);
    switch (function) {
        case RELU: d_activate_all<RELU>(d, numbers, slope); break;
        case LEAKY: d_activate_all<LEAKY>(d, numbers, slope); break;
        case GELU: d_activate_all<GELU>(d, numbers, slope); break;
        case GELU_TANH: d_activate_all<GELU_TANH>(d, numbers, slope); break;
        case SIGMOID: d_activate_all<SIGMOID>(d, numbers, slope); break;
        case TANH: d_activate_all<TANH>(d, numbers, slope); break;
        default: d_activate_all<SILU>(d, numbers, slope);
    }
    leave(d_x, own, d);
}

// Copies `columns` columns of rows with one stride to rows with another.
extern "C" __global__ void copy_columns(const val* from, i64 from_stride, val* to, i64 to_stride, i64 columns, i64 count) {
    i64 i = global_index();
    if (i < count) to[i / columns * to_stride + i % columns] = from[i / columns * from_stride + i % columns];
}

static __device__ u64 mix(u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// Draws the same numbers as the CPU's dropout. `draw` holds the step's key and the first example's
// place in the global batch.
extern "C" __global__ void dropout(const val* x, val* y, i64 count, i64 numbers, const u64* draw, u64 operation, u64 limit, float factor) {
    portion own = own_portion(count, x, y);
    if (own.count == 0) return;
    pack<PACK> values = take(x, own);
    u64 key = mix(draw[0] ^ mix(operation)), example = draw[1] + (u64)(own.first / numbers);
    i64 place = own.first % numbers;
    u64 drawn = mix(key ^ example);
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        unsigned hash = (unsigned)place + (unsigned)drawn;
        hash = (hash ^ (hash >> 16)) * 0x7feb352du;
        hash = (hash ^ (hash >> 15) ^ (unsigned)(drawn >> 32)) * 0x846ca68bu;
        hash ^= hash >> 16;
        values.at[k] = (u64)hash >= limit ? values.at[k] * factor : 0.0f;
        if (++place == numbers) {
            place = 0;
            drawn = mix(key ^ ++example);
        }
    }
    leave(y, own, values);
}

extern "C" __global__ void upsample(const val* x, val* y, i64 count, int width, int channels, int factor) {
    i64 i = global_index();
    if (i >= count) return;
    i64 pixel = i / channels;
    i64 row = pixel / (width * factor), column = pixel % (width * factor);
    y[i] = x[(row / factor * width + column / factor) * channels + i % channels];
}

extern "C" __global__ void d_upsample(const val* d_y, val* d_x, i64 count, int width, int channels, int factor) {
    i64 i = global_index();
    if (i >= count) return;
    i64 pixel = i / channels;
    i64 row = pixel / width, column = pixel % width;
    float sum = 0.0f;
    for (int y = 0; y < factor; y++)
        for (int x = 0; x < factor; x++)
            sum += get(d_y[((row * factor + y) * width * factor + column * factor + x) * channels + i % channels]);
    d_x[i] = as_val(sum);
}
