// Batch and layer normalisation.

// Evaluation: mean and 1 / deviation of the running statistics.
extern "C" __global__ void running_statistics(const float* mean, const float* variance, int channels, float* statistics) {
    int channel = (int)global_index();
    if (channel >= channels) return;
    statistics[channel] = mean[channel];
    statistics[channels + channel] = 1.0f / sqrtf(fmaxf(variance[channel], 0.0f) + 1e-5f);
}

// A single operation, so that the backward pass computes exactly the same number.
static __device__ __forceinline__ float normalise(float x, float mean, float factor, float shift) { return fmaf(x - mean, factor, shift); }

// Whether a number is positive after conversion to a value: the smallest f32 become 0 in bf16.
static __device__ __forceinline__ bool is_positive(float x) {
#ifdef BF16
    return x > __uint_as_float(0x8000u);
#else
    return x > 0.0f;
#endif
}

// Constants of a thread's channels.
template <int N>
struct channel_constants { pack<N> mean, factor, shift; };

template <int N>
static __device__ __forceinline__ channel_constants<N> of_channels(const float* statistics, const float* scale, const float* shift, int channels, int first) {
    channel_constants<N> of;
    of.mean = constants<N>(statistics + first);
    of.factor = constants<N>(statistics + channels + first);
    pack<N> more = constants<N>(scale + first);
#pragma unroll
    for (int k = 0; k < N; k++) of.factor.at[k] *= more.at[k];
    of.shift = constants<N>(shift + first);
    return of;
}

// Number of rows that a thread processes at once. Rows wait unconverted, because bf16 takes half
// the registers of f32.
enum { BATCH = 4 };

template <int N>
struct unread { wide words[sizeof(val) / 2]; };

template <>
struct unread<1> { val number; };

template <int N>
static __device__ __forceinline__ pack<N> opened(const unread<N>& numbers) { return load<N>((const val*)&numbers); }

template <int N>
static __device__ __forceinline__ void batch_norm_by(const val* x, val* y, const float* statistics, const float* scale, const float* shift, i64 rows, int channels, int rows_per_block, int relu) {
    place<N> at = own_place<N>(rows, channels, rows_per_block);
    if (!at.is_in) return;
    channel_constants<N> of = of_channels<N>(statistics, scale, shift, channels, at.column);
    for (i64 first = at.row; first < at.end; first += BATCH * place<N>::ROWS) {
        unread<N> waiting[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            i64 row = first + j * place<N>::ROWS;
            if (row < at.end) waiting[j] = *(const unread<N>*)(x + row * channels + at.column);
        }
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            i64 row = first + j * place<N>::ROWS;
            if (row >= at.end) break;
            pack<N> numbers = opened<N>(waiting[j]);
#pragma unroll
            for (int k = 0; k < N; k++) {
                float value = normalise(numbers.at[k], of.mean.at[k], of.factor.at[k], of.shift.at[k]);
                numbers.at[k] = relu ? rectify(value) : value;
            }
            store<N>(y + row * channels + at.column, numbers);
        }
    }
}

extern "C" __global__ void batch_norm(const val* x, val* y, const float* statistics, const float* scale, const float* shift, i64 rows, int channels, int rows_per_block, int relu, int is_wide) {
    if (is_wide) batch_norm_by<PACK>(x, y, statistics, scale, shift, rows, channels, rows_per_block, relu);
    else batch_norm_by<1>(x, y, statistics, scale, shift, rows, channels, rows_per_block, relu);
}

// Sums of each chunk: of the gradient, and, after those of all channels, of its product with the
// normalised input. The mask of the ReLU is recomputed from the input.
template <int N>
static __device__ __forceinline__ void batch_norm_sums_by(const val* x, const val* d_y, const float* statistics, const float* scale, const float* shift, i64 rows, int channels, int rows_per_chunk, int relu, float* partial) {
    place<N> at = own_place<N>(rows, channels, rows_per_chunk);
    pack<N> d_shift = {}, d_scale = {};
    if (at.is_in) {
        channel_constants<N> of = of_channels<N>(statistics, scale, shift, channels, at.column);
#pragma unroll 4
        for (i64 row = at.row; row < at.end; row += place<N>::ROWS) {
            pack<N> numbers = load<N>(x + row * channels + at.column), d = load<N>(d_y + row * channels + at.column);
#pragma unroll
            for (int k = 0; k < N; k++) {
                float value = normalise(numbers.at[k], of.mean.at[k], of.factor.at[k], of.shift.at[k]);
                float more = !relu || is_positive(value) ? d.at[k] : 0.0f;
                d_shift.at[k] += more;
                d_scale.at[k] += more * (numbers.at[k] - of.mean.at[k]);
            }
        }
    }
    float along = sum_rows<N>(d_shift), across = sum_rows<N>(d_scale);
    if (at.leaves) {
        partial += 2 * (i64)at.chunk * channels;
        partial[at.left] = along;
        partial[channels + at.left] = across * statistics[channels + at.left];
    }
}

extern "C" __global__ void batch_norm_sums(const val* x, const val* d_y, const float* statistics, const float* scale, const float* shift, i64 rows, int channels, int rows_per_chunk, int relu, float* partial, int is_wide) {
    if (is_wide) batch_norm_sums_by<PACK>(x, d_y, statistics, scale, shift, rows, channels, rows_per_chunk, relu, partial);
    else batch_norm_sums_by<1>(x, d_y, statistics, scale, shift, rows, channels, rows_per_chunk, relu, partial);
}

// d_x = scale / deviation · (d_y − mean of d_y − normalised x · mean of (d_y · normalised x)). This
// equals a channel's factor · (d_y + incline · (x − mean) + offset). `sums` are d_shift and
// d_scale.
template <int N>
static __device__ __forceinline__ void d_batch_norm_by(const val* x, const val* d_y, val* d_x, const float* statistics, const float* scale, const float* shift, const float* sums, i64 rows, int channels, int rows_per_block, float share, int relu) {
    enum { AT_ONCE = BATCH / 2 };
    place<N> at = own_place<N>(rows, channels, rows_per_block);
    if (!at.is_in) return;
    channel_constants<N> of = of_channels<N>(statistics, scale, shift, channels, at.column);
    pack<N> inverse = constants<N>(statistics + channels + at.column);
    pack<N> offset = constants<N>(sums + at.column), incline = constants<N>(sums + channels + at.column);
#pragma unroll
    for (int k = 0; k < N; k++) {
        offset.at[k] *= -share;
        incline.at[k] *= -share * inverse.at[k];
    }
    for (i64 first = at.row; first < at.end; first += AT_ONCE * place<N>::ROWS) {
        unread<N> waiting[AT_ONCE], more[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            i64 row = first + j * place<N>::ROWS;
            if (row >= at.end) break;
            waiting[j] = *(const unread<N>*)(x + row * channels + at.column);
            more[j] = *(const unread<N>*)(d_y + row * channels + at.column);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            i64 row = first + j * place<N>::ROWS;
            if (row >= at.end) break;
            pack<N> numbers = opened<N>(waiting[j]), d = opened<N>(more[j]);
#pragma unroll
            for (int k = 0; k < N; k++) {
                float value = normalise(numbers.at[k], of.mean.at[k], of.factor.at[k], of.shift.at[k]);
                float through = !relu || is_positive(value) ? d.at[k] : 0.0f;
                d.at[k] = of.factor.at[k] * (through + (incline.at[k] * (numbers.at[k] - of.mean.at[k]) + offset.at[k]));
            }
            store<N>(d_x + row * channels + at.column, d);
        }
    }
}

extern "C" __global__ void d_batch_norm(const val* x, const val* d_y, val* d_x, const float* statistics, const float* scale, const float* shift, const float* sums, i64 rows, int channels, int rows_per_block, float share, int relu, int is_wide) {
    if (is_wide) d_batch_norm_by<PACK>(x, d_y, d_x, statistics, scale, shift, sums, rows, channels, rows_per_block, share, relu);
    else d_batch_norm_by<1>(x, d_y, d_x, statistics, scale, shift, sums, rows, channels, rows_per_block, share, relu);
}

// Gradients of the four parameter blocks. The gradients of running statistics are the change of one
// step, times the number of examples.
extern "C" __global__ void batch_norm_grads(const float* statistics, const float* d_shift, const float* d_scale, const float* running_mean, const float* running_variance, int channels, float examples, float unbiased, float* grad_scale, float* grad_shift, float* grad_mean, float* grad_variance, int add) {
    int c = (int)global_index();
    if (c >= channels) return;
    float mean = examples * 0.1f * (running_mean[c] - statistics[c]);
    float variance = examples * 0.1f * (running_variance[c] - unbiased * statistics[2 * channels + c]);
    grad_scale[c] = add ? grad_scale[c] + d_scale[c] : d_scale[c];
    grad_shift[c] = add ? grad_shift[c] + d_shift[c] : d_shift[c];
    grad_mean[c] = add ? grad_mean[c] + mean : mean;
    grad_variance[c] = add ? grad_variance[c] + variance : variance;
}

// One warp per row; its second and third reads hit the first-level cache. `kept` receives the mean
// and 1 / deviation of each row.
template <int N>
static __device__ __forceinline__ void layer_norm_by(const val* x, val* y, const float* scale, const float* shift, int width, float* kept) {
    int first = threadIdx.x % 32 * N;
    float sum = 0.0f, squares = 0.0f;
#pragma unroll 4
    for (int i = first; i < width; i += 32 * N) {
        pack<N> numbers = load<N>(x + i);
#pragma unroll
        for (int k = 0; k < N; k++) sum += numbers.at[k];
    }
    float mean = warp_sum(sum) / width;
#pragma unroll 4
    for (int i = first; i < width; i += 32 * N) {
        pack<N> numbers = load<N>(x + i);
#pragma unroll
        for (int k = 0; k < N; k++) squares += (numbers.at[k] - mean) * (numbers.at[k] - mean);
    }
    float inverse = 1.0f / sqrtf(warp_sum(squares) / width + 1e-5f);
    for (int i = first; i < width; i += 32 * N) {
        pack<N> numbers = load<N>(x + i), factors = constants<N>(scale + i), offsets = constants<N>(shift + i);
#pragma unroll
        for (int k = 0; k < N; k++) numbers.at[k] = (numbers.at[k] - mean) * inverse * factors.at[k] + offsets.at[k];
        store<N>(y + i, numbers);
    }
    if (threadIdx.x % 32 == 0) {
        kept[0] = mean;
        kept[1] = inverse;
    }
}

extern "C" __global__ void layer_norm(const val* x, val* y, const float* scale, const float* shift, i64 rows, int width, float* kept, int is_wide) {
    i64 row = global_index() / 32;
    if (row >= rows) return;
    if (is_wide) layer_norm_by<PACK>(x + row * width, y + row * width, scale, shift, width, kept + 2 * row);
    else layer_norm_by<1>(x + row * width, y + row * width, scale, shift, width, kept + 2 * row);
}

template <int N>
static __device__ __forceinline__ void d_layer_norm_by(const val* x, const val* d_y, val* d_x, const float* scale, int width, float mean, float inverse) {
    int first = threadIdx.x % 32 * N;
    float along = 0.0f, across = 0.0f;
#pragma unroll 2
    for (int i = first; i < width; i += 32 * N) {
        pack<N> numbers = load<N>(x + i), d = load<N>(d_y + i), factors = constants<N>(scale + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float scaled = d.at[k] * factors.at[k];
            along += scaled;
            across += scaled * ((numbers.at[k] - mean) * inverse);
        }
    }
    along = warp_sum(along) / width;
    across = warp_sum(across) / width;
    for (int i = first; i < width; i += 32 * N) {
        pack<N> numbers = load<N>(x + i), d = load<N>(d_y + i), factors = constants<N>(scale + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            d.at[k] = inverse * (d.at[k] * factors.at[k] - along - (numbers.at[k] - mean) * inverse * across);
        store<N>(d_x + i, d);
    }
}

extern "C" __global__ void d_layer_norm(const val* x, const val* d_y, val* d_x, const float* scale, i64 rows, int width, const float* kept, int is_wide) {
    i64 row = global_index() / 32, first = row * width;
    if (row >= rows) return;
    float mean = kept[2 * row], inverse = kept[2 * row + 1];
    if (is_wide) d_layer_norm_by<PACK>(x + first, d_y + first, d_x + first, scale, width, mean, inverse);
    else d_layer_norm_by<1>(x + first, d_y + first, d_x + first, scale, width, mean, inverse);
}

// Sums of each chunk of rows for the shift, followed by those for the scale.
template <int N>
static __device__ __forceinline__ void layer_norm_sums_by(const val* x, const val* d_y, const float* kept, i64 rows, int width, int rows_per_chunk, float* partial) {
    place<N> at = own_place<N>(rows, width, rows_per_chunk);
    pack<N> d_shift = {}, d_scale = {};
    if (at.is_in) {
#pragma unroll 4
        for (i64 row = at.row; row < at.end; row += place<N>::ROWS) {
            pack<N> numbers = load<N>(x + row * width + at.column), d = load<N>(d_y + row * width + at.column);
            float mean = kept[2 * row], inverse = kept[2 * row + 1];
#pragma unroll
            for (int k = 0; k < N; k++) {
                d_shift.at[k] += d.at[k];
                d_scale.at[k] += d.at[k] * ((numbers.at[k] - mean) * inverse);
            }
        }
    }
    float along = sum_rows<N>(d_shift), across = sum_rows<N>(d_scale);
    if (at.leaves) {
        partial += 2 * (i64)at.chunk * width;
        partial[at.left] = along;
        partial[width + at.left] = across;
    }
}

extern "C" __global__ void layer_norm_sums(const val* x, const val* d_y, const float* kept, i64 rows, int width, int rows_per_chunk, float* partial, int is_wide) {
    if (is_wide) layer_norm_sums_by<PACK>(x, d_y, kept, rows, width, rows_per_chunk, partial);
    else layer_norm_sums_by<1>(x, d_y, kept, rows, width, rows_per_chunk, partial);
}
