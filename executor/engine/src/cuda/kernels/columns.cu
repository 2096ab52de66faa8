// Sums over rows, per column: gradients of biases and tables, and what normalisation needs.
//
// In two kernels: blocks of 32 columns by 8 rows sum a chunk of rows each into `partial` (chunks × columns), then a thread per column
// adds the chunks up in order. So the order depends on shapes alone.

// A thread's column and rows: starts at chunk · rows_per_chunk + its row, in steps of 8.
struct place { int column, row, chunk; i64 begin, end; };

static __device__ __forceinline__ place column_place(i64 rows, int columns, int rows_per_chunk) {
    int tiles = (columns + 31) / 32;
    place at;
    at.chunk = blockIdx.x / tiles;
    at.column = (blockIdx.x % tiles) * 32 + threadIdx.x % 32;
    at.row = threadIdx.x / 32;
    at.begin = (i64)at.chunk * rows_per_chunk;
    at.end = at.begin + rows_per_chunk < rows ? at.begin + rows_per_chunk : rows;
    return at;
}

// Over the 8 rows of a block; the sum comes out in the first.
static __device__ float sum_rows(float x) {
    __shared__ float sums[256];
    __syncthreads();
    sums[threadIdx.x] = x;
    __syncthreads();
    float sum = 0.0f;
    for (int row = 0; row < 8; row++) sum += sums[row * 32 + threadIdx.x % 32];
    return sum;
}

extern "C" __global__ void sum_columns(const val* x, i64 stride, i64 rows, int columns, int rows_per_chunk, float* partial) {
    place at = column_place(rows, columns, rows_per_chunk);
    float sum = 0.0f;
    if (at.column < columns)
        for (i64 row = at.begin + at.row; row < at.end; row += 8) sum += get(x[row * stride + at.column]);
    sum = sum_rows(sum);
    if (at.row == 0 && at.column < columns) partial[(i64)at.chunk * columns + at.column] = sum;
}

extern "C" __global__ void finish_columns(const float* partial, int chunks, i64 columns, float* sum, int add) {
    i64 column = global_index();
    if (column >= columns) return;
    float total = 0.0f;
    for (int chunk = 0; chunk < chunks; chunk++) total += partial[chunk * columns + column];
    sum[column] = add ? sum[column] + total : total;
}

// Mean and sum of squares around it of each chunk's columns. Numbers are taken from the chunk's first row, so that the squares lose
// nothing by cancellation.
extern "C" __global__ void column_moments(const val* x, i64 rows, int columns, int rows_per_chunk, float* means, float* spreads) {
    place at = column_place(rows, columns, rows_per_chunk);
    bool is_in = at.column < columns;
    float from = is_in ? get(x[at.begin * columns + at.column]) : 0.0f, sum = 0.0f, squares = 0.0f;
    if (is_in)
        for (i64 row = at.begin + at.row; row < at.end; row += 8) {
            float delta = get(x[row * columns + at.column]) - from;
            sum += delta;
            squares += delta * delta;
        }
    sum = sum_rows(sum);
    squares = sum_rows(squares);
    if (at.row == 0 && is_in) {
        float count = (float)(at.end - at.begin);
        float spread = squares - sum * (sum / count);
        means[(i64)at.chunk * columns + at.column] = from + sum / count;
        spreads[(i64)at.chunk * columns + at.column] = spread < 0.0f ? 0.0f : spread;
    }
}

// Puts chunks together (Chan, Golub and LeVeque, 1979). Leaves mean, 1 / deviation and biased variance, a row of each.
extern "C" __global__ void finish_moments(const float* means, const float* spreads, int chunks, int rows_per_chunk, i64 rows, int columns, float* statistics) {
    int column = (int)global_index();
    if (column >= columns) return;
    float mean = 0.0f, spread = 0.0f, seen = 0.0f;
    for (int chunk = 0; chunk < chunks; chunk++) {
        i64 left = rows - (i64)chunk * rows_per_chunk;
        float more = (float)(left < rows_per_chunk ? left : rows_per_chunk);
        float share = more / (seen + more);
        float delta = means[(i64)chunk * columns + column] - mean;
        mean += delta * share;
        spread += spreads[(i64)chunk * columns + column] + delta * delta * (seen * share);
        seen += more;
    }
    float variance = spread / seen;
    statistics[column] = mean;
    statistics[columns + column] = 1.0f / sqrtf(variance + 1e-5f);
    statistics[2 * columns + column] = variance;
}
