// One number at a time: casts, activations, sums of two values, dropout, what brings rows and columns elsewhere.

extern "C" __global__ void cast_in(const float* x, val* y, i64 count) {
    i64 i = global_index();
    if (i < count) y[i] = as_val(x[i]);
}

extern "C" __global__ void copy_numbers(const float* x, float* y, i64 count) {
    i64 i = global_index();
    if (i < count) y[i] = x[i];
}

// In place, after a product that has not done it itself. Without a bias `bias` is null.
extern "C" __global__ void bias_relu(val* x, const val* bias, i64 count, int columns, i64 stride, int relu) {
    i64 i = global_index();
    if (i >= count) return;
    int column = (int)(i % columns);
    val* at = x + i / columns * stride + column;
    float sum = get(*at) + (bias ? get(bias[column]) : 0.0f);
    *at = as_val(relu ? rectify(sum) : sum);
}

extern "C" __global__ void sum_two(const val* a, const val* b, val* y, i64 count, int relu) {
    i64 i = global_index();
    if (i >= count) return;
    float sum = get(a[i]) + get(b[i]);
    y[i] = as_val(relu ? rectify(sum) : sum);
}

extern "C" __global__ void add_to(val* sum, const val* part, i64 count) {
    i64 i = global_index();
    if (i < count) sum[i] = as_val(get(sum[i]) + get(part[i]));
}

// Back through a ReLU, in place.
extern "C" __global__ void mask(val* d, const val* y, i64 count) {
    i64 i = global_index();
    if (i < count && !(get(y[i]) > 0.0f)) d[i] = as_val(0.0f);
}

// The same row of `len` numbers is added to each.
extern "C" __global__ void add_row(const val* x, const float* row, val* y, i64 count, i64 len) {
    i64 i = global_index();
    if (i < count) y[i] = as_val(get(x[i]) + row[i % len]);
}

enum { RELU, LEAKY, GELU, GELU_TANH, SIGMOID, TANH, SILU };

static __device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static __device__ __forceinline__ float normal(float x) { return 0.5f + 0.5f * erff(x * 0.70710678f); }

static __device__ __forceinline__ float bent(float x) { return tanhf(0.7978846f * (x + 0.044715f * x * x * x)); }

static __device__ float activation(int function, float slope, float x) {
    switch (function) {
        case RELU: return rectify(x);
        case LEAKY: return x < 0.0f ? slope * x : x;
        case GELU: return x * normal(x);
        case GELU_TANH: return 0.5f * x * (1.0f + bent(x));
        case SIGMOID: return sigmoid(x);
        case TANH: return tanhf(x);
        default: return x * sigmoid(x);
    }
}

static __device__ float d_activation(int function, float slope, float x) {
    switch (function) {
        case RELU: return x > 0.0f ? 1.0f : 0.0f;
        case LEAKY: return x > 0.0f ? 1.0f : slope;
        case GELU: return normal(x) + x * (0.5f * 0.7978846f * expf(-0.5f * x * x));
        case GELU_TANH: {
            float t = bent(x), incline = 1.0f - t * t;
            // Where the slope of tanh is 0 its argument's may be infinite.
            float bend = incline == 0.0f ? 0.0f : 0.5f * x * incline * 0.7978846f * (1.0f + 3.0f * 0.044715f * x * x);
            return 0.5f * (1.0f + t) + bend;
        }
        case SIGMOID: { float s = sigmoid(x); return s * (1.0f - s); }
        case TANH: { float t = tanhf(x); return 1.0f - t * t; }
        default: { float s = sigmoid(x); return s * (1.0f + x * (1.0f - s)); }
    }
}

extern "C" __global__ void activate(const val* x, val* y, i64 count, int function, float slope) {
    i64 i = global_index();
    if (i < count) y[i] = as_val(activation(function, slope, get(x[i])));
}

extern "C" __global__ void d_activate(const val* x, const val* d_y, val* d_x, i64 count, int function, float slope) {
    i64 i = global_index();
    if (i < count) d_x[i] = as_val(get(d_y[i]) * d_activation(function, slope, get(x[i])));
}

// `columns` columns of rows of one stride to rows of another.
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

// The draws of the CPU's dropout. `draw` holds the step's key and the first example's place in the batch of all workers.
extern "C" __global__ void dropout(const val* x, val* y, i64 count, i64 numbers, const u64* draw, u64 operation, u64 limit, float factor) {
    i64 i = global_index();
    if (i >= count) return;
    u64 example = mix(mix(draw[0] ^ mix(operation)) ^ (draw[1] + (u64)(i / numbers)));
    unsigned hash = (unsigned)(i % numbers) + (unsigned)example;
    hash = (hash ^ (hash >> 16)) * 0x7feb352du;
    hash = (hash ^ (hash >> 15) ^ (unsigned)(example >> 32)) * 0x846ca68bu;
    hash ^= hash >> 16;
    y[i] = as_val((u64)hash >= limit ? get(x[i]) * factor : 0.0f);
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
