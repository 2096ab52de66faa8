// Sums over rows, per column: gradients of biases and tables, and sums of normalisation.
//
// There are two kernels: blocks sum one chunk of rows each into `partial` (chunks × columns), then
// the chunks are combined. A block has 8 threads of 8 adjacent columns each and 32 rows of threads,
// or 32 threads of one column each and 8 rows. All orders of addition depend on shapes alone.

// Columns and rows of a thread: the first of `N` columns, and every `ROWS`th row from `row` on.
template <int N>
struct place {
    enum { GROUPS = N == 1 ? 32 : 8, ROWS = 256 / GROUPS, COLUMNS = GROUPS * N };
    int chunk, column;
    i64 row, begin, end;
    bool is_in;
    // Column of the block whose sum the thread writes.
    int left;
    bool leaves;
};

template <int N>
static __device__ __forceinline__ place<N> own_place(i64 rows, int columns, int rows_per_chunk) {
    typedef place<N> here;
    int tiles = (columns + here::COLUMNS - 1) / here::COLUMNS, thread = (int)threadIdx.x;
    int tile = (int)blockIdx.x % tiles * here::COLUMNS;
    here at;
    at.chunk = (int)blockIdx.x / tiles;
    at.column = tile + thread % here::GROUPS * N;
    at.is_in = at.column < columns;
    at.begin = (i64)at.chunk * rows_per_chunk;
    at.end = at.begin + rows_per_chunk < rows ? at.begin + rows_per_chunk : rows;
    at.row = at.begin + thread / here::GROUPS;
    at.left = tile + thread;
    at.leaves = thread < here::COLUMNS && at.left < columns;
    return at;
}

// Sums over the rows of a block; thread t returns the sum of the block's column t.
template <int N>
static __device__ float sum_rows(const pack<N>& x) {
    typedef place<N> here;
    __shared__ float sums[256 * N], parts[256];
    int thread = (int)threadIdx.x, column = thread % here::COLUMNS;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) sums[thread * N + k] = x.at[k];
    __syncthreads();
    float part = 0.0f, sum = 0.0f;
    for (int row = thread / here::COLUMNS; row < here::ROWS; row += 256 / here::COLUMNS) part += sums[row * here::COLUMNS + column];
    parts[thread] = part;
    __syncthreads();
    for (int row = 0; row < 256 / here::COLUMNS; row++) sum += parts[row * here::COLUMNS + column];
    return sum;
}

// Loads values that are common to all rows, from any alignment.
template <int N>
static __device__ __forceinline__ pack<N> constants(const float* x) {
    if (N > 1 && is_aligned(x)) return load<N>(x);
    pack<N> numbers;
#pragma unroll
    for (int k = 0; k < N; k++) numbers.at[k] = x[k];
    return numbers;
}

template <int N>
static __device__ __forceinline__ void sum_columns_by(const val* x, i64 stride, i64 rows, int columns, int rows_per_chunk, float* partial) {
    place<N> at = own_place<N>(rows, columns, rows_per_chunk);
    pack<N> sum = {};
    if (at.is_in) {
#pragma unroll 4
        for (i64 row = at.row; row < at.end; row += place<N>::ROWS) {
            pack<N> more = load<N>(x + row * stride + at.column);
#pragma unroll
            for (int k = 0; k < N; k++) sum.at[k] += more.at[k];
        }
    }
    float all = sum_rows<N>(sum);
    if (at.leaves) partial[(i64)at.chunk * columns + at.left] = all;
}

extern "C" __global__ void sum_columns(const val* x, i64 stride, i64 rows, int columns, int rows_per_chunk, float* partial, int is_wide) {
    if (is_wide) sum_columns_by<PACK>(x, stride, rows, columns, rows_per_chunk, partial);
    else sum_columns_by<1>(x, stride, rows, columns, rows_per_chunk, partial);
}

// Combines the chunks. The first `split` columns are written to `sum`, the others to `rest`. Few
// chunks are added by one thread per column. Many chunks are added by one block per eight columns,
// whose threads take every 32nd chunk.
extern "C" __global__ void finish_columns(const float* partial, int chunks, i64 columns, i64 split, float* sum, float* rest, int add, int are_few) {
    __shared__ float sums[256];
    int thread = (int)threadIdx.x;
    i64 column = are_few ? global_index() : (i64)blockIdx.x * 8 + thread % 8;
    int first = are_few ? 0 : thread / 8, step = are_few ? 1 : 32;
    float total = 0.0f;
    if (column < columns) {
#pragma unroll 4
        for (int chunk = first; chunk < chunks; chunk += step) total += partial[chunk * columns + column];
    }
    if (!are_few) {
        sums[thread] = total;
        for (int half = 128; half >= 8; half /= 2) {
            __syncthreads();
            if (thread < half) sums[thread] += sums[thread + half];
        }
        total = sums[thread];
    }
    if (column >= columns || first > 0) return;
    float* to = column < split ? sum + column : rest + (column - split);
    *to = add ? *to + total : total;
}

// Mean and sum of squared deviations of the columns of each chunk. Values are taken relative to the
// chunk's first row, which avoids cancellation in the squares.
template <int N>
static __device__ __forceinline__ void column_moments_by(const val* x, i64 rows, int columns, int rows_per_chunk, float* means, float* spreads) {
    place<N> at = own_place<N>(rows, columns, rows_per_chunk);
    pack<N> sum = {}, squares = {};
    if (at.is_in) {
        pack<N> from = load<N>(x + at.begin * columns + at.column);
#pragma unroll 4
        for (i64 row = at.row; row < at.end; row += place<N>::ROWS) {
            pack<N> numbers = load<N>(x + row * columns + at.column);
#pragma unroll
            for (int k = 0; k < N; k++) {
                float delta = numbers.at[k] - from.at[k];
                sum.at[k] += delta;
                squares.at[k] += delta * delta;
            }
        }
    }
    float along = sum_rows<N>(sum), across = sum_rows<N>(squares);
    if (at.leaves) {
        float count = (float)(at.end - at.begin);
        float spread = across - along * (along / count);
        means[(i64)at.chunk * columns + at.left] = get(x[at.begin * columns + at.left]) + along / count;
        spreads[(i64)at.chunk * columns + at.left] = spread < 0.0f ? 0.0f : spread;
    }
}

extern "C" __global__ void column_moments(const val* x, i64 rows, int columns, int rows_per_chunk, float* means, float* spreads, int is_wide) {
    if (is_wide) column_moments_by<PACK>(x, rows, columns, rows_per_chunk, means, spreads);
    else column_moments_by<1>(x, rows, columns, rows_per_chunk, means, spreads);
}

struct moments { float count, mean, spread; };

// Combines two sets of values (Chan, Golub and LeVeque, 1979); either may be empty.
static __device__ __forceinline__ moments together(moments a, moments b) {
    moments sum;
    sum.count = a.count + b.count;
    float share = sum.count > 0.0f ? b.count / sum.count : 0.0f, delta = b.mean - a.mean;
    sum.mean = a.mean + delta * share;
    sum.spread = a.spread + b.spread + delta * delta * (a.count * share);
    return sum;
}

// Combines chunks, one block per eight columns: each thread takes every 32nd chunk, then threads
// are combined by a tree. Writes one row each of mean, 1 / deviation and biased variance.
extern "C" __global__ void finish_moments(const float* means, const float* spreads, int chunks, int rows_per_chunk, i64 rows, int columns, float* statistics) {
    __shared__ moments parts[256];
    int thread = (int)threadIdx.x, column = (int)blockIdx.x * 8 + thread % 8;
    moments own = {};
    if (column < columns) {
#pragma unroll 4
        for (int chunk = thread / 8; chunk < chunks; chunk += 32) {
            i64 left = rows - (i64)chunk * rows_per_chunk, at = (i64)chunk * columns + column;
            own = together(own, {(float)(left < rows_per_chunk ? left : rows_per_chunk), means[at], spreads[at]});
        }
    }
    parts[thread] = own;
    for (int half = 128; half >= 8; half /= 2) {
        __syncthreads();
        if (thread < half) parts[thread] = together(parts[thread], parts[thread + half]);
    }
    if (thread >= 8 || column >= columns) return;
    own = parts[thread];
    float variance = own.spread / own.count;
    statistics[column] = own.mean;
    statistics[columns + column] = 1.0f / sqrtf(variance + 1e-5f);
    statistics[2 * columns + column] = variance;
}
