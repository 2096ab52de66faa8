// Fused attention of bf16 values, which never writes scores to memory. Tiles of 64 queries are
// combined with tiles of 64 keys, and the backward pass recomputes the softmax from one number per
// query (FlashAttention-2, Dao, 2023). Heads have width 32 or 64.
//
// A block has four warps. A warp keeps sixteen rows of its block's tile in registers, in the layout
// of the tensor cores. It reads the tiles of the other side from shared memory. Logarithms are to
// base 2, because the GPU computes exp2f directly. Rows have the layout of the adjacent layers: per
// position queries, keys and values, each head after head.

enum { TILE = 64, WARPS = 4 };

// Tiles in words of two values, which are adjacent in a row or in a column. The padding spreads the
// words that a warp reads at once over 32 banks.
template <int HEAD> struct by_rows { unsigned word[TILE][HEAD / 2 + 4]; };
template <int HEAD> struct by_columns { unsigned word[TILE / 2][HEAD + 8]; };

// Position of a block's tile and of a thread's rows in it: `row` and `row` + 8. Of each 16 columns
// the thread has 2 · `lane`, + 1, + 8 and + 9.
struct seat { int tile, tiles, group, warp, row, lane; i64 example; int head; };

static __device__ __forceinline__ seat take_seat(int positions, int heads, bool is_last_first) {
    seat s;
    s.tiles = (positions + TILE - 1) / TILE;
    int pairs = gridDim.x / s.tiles;
    s.tile = blockIdx.x / pairs;
    // Tiles with the most work start first.
    if (is_last_first) s.tile = s.tiles - 1 - s.tile;
    s.example = blockIdx.x % pairs / heads;
    s.head = blockIdx.x % pairs % heads;
    s.warp = threadIdx.x / 32;
    s.group = threadIdx.x % 32 / 4;
    s.lane = threadIdx.x % 4;
    s.row = s.tile * TILE + s.warp * 16 + s.group;
    return s;
}

static __device__ __forceinline__ wide row_part(const val* row, bool is_in) {
    wide part = {};
    return is_in ? *(const wide*)row : part;
}

// Loads `rows` of a tile from `from` on and fills the rest with zeros. Either layout may be
// omitted.
template <int HEAD>
static __device__ __forceinline__ void bring(const val* from, i64 stride, i64 rows, by_rows<HEAD>* along, by_columns<HEAD>* across) {
    const int parts = HEAD / 8;
#pragma unroll
    for (int i = threadIdx.x; i < TILE / 2 * parts; i += 32 * WARPS) {
        int pair = i / parts, part = i % parts;
        const val* at = from + 2 * pair * stride + 8 * part;
        wide even = row_part(at, 2 * pair < rows), odd = row_part(at + stride, 2 * pair + 1 < rows);
        if (along) {
            *(wide*)&along->word[2 * pair][4 * part] = even;
            *(wide*)&along->word[2 * pair + 1][4 * part] = odd;
        }
        if (across) {
            wide both[2];
#pragma unroll
            for (int w = 0; w < 4; w++) {
                both[w / 2].word[w % 2 * 2] = (even.word[w] & 0xffffu) | (odd.word[w] << 16);
                both[w / 2].word[w % 2 * 2 + 1] = (even.word[w] >> 16) | (odd.word[w] & 0xffff0000u);
            }
            *(wide*)&across->word[pair][8 * part] = both[0];
            *(wide*)&across->word[pair][8 * part + 4] = both[1];
        }
    }
}

// Loads a warp's sixteen rows as the left side of products; `x` is the head of the tile's first
// row.
template <int HEAD>
static __device__ __forceinline__ void hold(const val* x, i64 stride, const seat& s, int positions, unsigned (*rows)[4]) {
#pragma unroll
    for (int step = 0; step < HEAD / 16; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = s.row + i % 2 * 8, column = step * 16 + i / 2 * 8 + 2 * s.lane;
            rows[step][i] = row < positions ? *(const unsigned*)(x + row * stride + column) : 0u;
        }
}

// `sum` += `rows` · transposed tile: scores of a warp's rows and the rows of the tile.
template <int HEAD>
static __device__ __forceinline__ void meet(float (*sum)[4], const unsigned (*rows)[4], const by_rows<HEAD>& tile, const seat& s) {
#pragma unroll
    for (int n = 0; n < TILE / 8; n++)
#pragma unroll
        for (int step = 0; step < HEAD / 16; step++) {
            const unsigned* word = &tile.word[8 * n + s.group][8 * step + s.lane];
            multiply_tiles(sum[n], rows[step], word[0], word[4]);
        }
}

// `sum` += `shares` · tile. Shares have the layout of sums: a warp's rows by the tile's rows.
template <int HEAD>
static __device__ __forceinline__ void gather_shares(float (*sum)[4], const float (*shares)[4], const by_columns<HEAD>& tile, const seat& s) {
#pragma unroll
    for (int step = 0; step < TILE / 16; step++) {
        unsigned left[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float* pair = &shares[2 * step + i / 2][i % 2 * 2];
            left[i] = as_pair(pair[0], pair[1]);
        }
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++)
            multiply_tiles(sum[n], left, tile.word[8 * step + s.lane][8 * n + s.group], tile.word[8 * step + 4 + s.lane][8 * n + s.group]);
    }
}

// Writes a warp's rows to `x`, each multiplied by its own `factor`.
template <int HEAD>
static __device__ __forceinline__ void leave(val* x, i64 stride, const seat& s, int positions, const float (*rows)[4], const float* factor) {
#pragma unroll
    for (int n = 0; n < HEAD / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = s.row + 8 * half;
            unsigned pair = as_pair(rows[n][2 * half] * factor[half], rows[n][2 * half + 1] * factor[half]);
            if (row < positions) *(unsigned*)(x + row * stride + 8 * n + 2 * s.lane) = pair;
        }
}

// Sum over the four threads that share a row.
static __device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

static __device__ __forceinline__ float row_max(float x) {
    for (int offset = 1; offset < 4; offset *= 2) {
        float other = __shfl_xor_sync(0xffffffffu, x, offset);
        x = other > x ? other : x;
    }
    return x;
}

// Forward pass. `logs` receives the logarithm of the sum of exponentials of each query, by example,
// head and position. `scale` includes log2(e).
template <int HEAD>
static __device__ __forceinline__ void attend(const val* qkv, val* output, float* logs, int positions, int heads, float scale) {
    __shared__ by_rows<HEAD> keys;
    __shared__ by_columns<HEAD> values;
    seat s = take_seat(positions, heads, true);
    i64 width = (i64)heads * HEAD, stride = 3 * width;
    const val* q = qkv + s.example * positions * stride + s.head * HEAD;
    unsigned queries[HEAD / 16][4];
    hold<HEAD>(q, stride, s, positions, queries);
    float sum[HEAD / 8][4] = {}, most[2] = {minus_infinity(), minus_infinity()}, total[2] = {};
    for (int at = 0; at <= s.tile; at++) {
        const val* first = q + width + at * TILE * stride;
        __syncthreads();
        bring<HEAD>(first, stride, positions - at * TILE, &keys, nullptr);
        bring<HEAD>(first + width, stride, positions - at * TILE, nullptr, &values);
        __syncthreads();
        float score[TILE / 8][4] = {};
        meet<HEAD>(score, queries, keys, s);
        float now[2] = {most[0], most[1]};
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool is_later = at == s.tile && at * TILE + 8 * n + 2 * s.lane + i % 2 > s.row + i / 2 * 8;
                score[n][i] = is_later ? minus_infinity() : score[n][i] * scale;
                now[i / 2] = score[n][i] > now[i / 2] ? score[n][i] : now[i / 2];
            }
        float keep[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            now[half] = row_max(now[half]);
            keep[half] = exp2f(most[half] - now[half]);
            most[half] = now[half];
            total[half] *= keep[half];
        }
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                score[n][i] = exp2f(score[n][i] - most[i / 2]);
                total[i / 2] += score[n][i];
            }
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[n][i] *= keep[i / 2];
        gather_shares<HEAD>(sum, score, values, s);
    }
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float all = row_sum(total[half]);
        inverse[half] = 1.0f / all;
        int row = s.row + 8 * half;
        if (s.lane == 0 && row < positions) logs[(s.example * heads + s.head) * positions + row] = most[half] + log2f(all);
    }
    leave<HEAD>(output + s.example * positions * width + s.head * HEAD, width, s, positions, sum, inverse);
}

// Gradients of queries. `alongs` receives the dot product of each query's output and its gradient,
// which the kernel of keys also reads. `factor` is the scale of the scores without log2(e).
template <int HEAD>
static __device__ __forceinline__ void d_queries(const val* qkv, const val* output, const val* d_output, const float* logs, float* alongs, val* d_qkv, int positions, int heads, float scale, float factor) {
    __shared__ by_rows<HEAD> keys, values;
    __shared__ by_columns<HEAD> keys_across;
    seat s = take_seat(positions, heads, true);
    i64 width = (i64)heads * HEAD, stride = 3 * width, rows = s.example * positions;
    const val* q = qkv + rows * stride + s.head * HEAD;
    unsigned queries[HEAD / 16][4], d_out[HEAD / 16][4], out[HEAD / 16][4];
    hold<HEAD>(q, stride, s, positions, queries);
    hold<HEAD>(d_output + rows * width + s.head * HEAD, width, s, positions, d_out);
    hold<HEAD>(output + rows * width + s.head * HEAD, width, s, positions, out);
    float log[2], along[2] = {}, factors[2] = {factor, factor};
#pragma unroll
    for (int step = 0; step < HEAD / 16; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) along[i % 2] += first_of(out[step][i]) * first_of(d_out[step][i]) + second_of(out[step][i]) * second_of(d_out[step][i]);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = s.row + 8 * half;
        i64 at = (s.example * heads + s.head) * positions + row;
        along[half] = row_sum(along[half]);
        log[half] = row < positions ? logs[at] : 0.0f;
        if (s.lane == 0 && row < positions) alongs[at] = along[half];
    }
    float sum[HEAD / 8][4] = {};
    for (int at = 0; at <= s.tile; at++) {
        const val* first = q + width + at * TILE * stride;
        __syncthreads();
        bring<HEAD>(first, stride, positions - at * TILE, &keys, &keys_across);
        bring<HEAD>(first + width, stride, positions - at * TILE, &values, nullptr);
        __syncthreads();
        float score[TILE / 8][4] = {}, d_share[TILE / 8][4] = {};
        meet<HEAD>(score, queries, keys, s);
        meet<HEAD>(d_share, d_out, values, s);
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool is_later = at == s.tile && at * TILE + 8 * n + 2 * s.lane + i % 2 > s.row + i / 2 * 8;
                float share = is_later ? 0.0f : exp2f(score[n][i] * scale - log[i / 2]);
                score[n][i] = share * (d_share[n][i] - along[i / 2]);
            }
        gather_shares<HEAD>(sum, score, keys_across, s);
    }
    leave<HEAD>(d_qkv + rows * stride + s.head * HEAD, stride, s, positions, sum, factors);
}

// Gradients of keys and values. Here rows are keys and columns are queries.
template <int HEAD>
static __device__ __forceinline__ void d_keys(const val* qkv, const val* d_output, const float* logs, const float* alongs, val* d_qkv, int positions, int heads, float scale, float factor) {
    __shared__ by_rows<HEAD> queries, d_outs;
    __shared__ by_columns<HEAD> queries_across, d_outs_across;
    __shared__ float log[TILE], along[TILE];
    seat s = take_seat(positions, heads, false);
    i64 width = (i64)heads * HEAD, stride = 3 * width, rows = s.example * positions;
    const val* q = qkv + rows * stride + s.head * HEAD;
    unsigned keys[HEAD / 16][4], values[HEAD / 16][4];
    hold<HEAD>(q + width, stride, s, positions, keys);
    hold<HEAD>(q + 2 * width, stride, s, positions, values);
    float d_key[HEAD / 8][4] = {}, d_value[HEAD / 8][4] = {}, one[2] = {1.0f, 1.0f}, factors[2] = {factor, factor};
    for (int at = s.tile; at < s.tiles; at++) {
        int left = positions - at * TILE;
        __syncthreads();
        bring<HEAD>(q + at * TILE * stride, stride, left, &queries, &queries_across);
        bring<HEAD>(d_output + (rows + at * TILE) * width + s.head * HEAD, width, left, &d_outs, &d_outs_across);
        if (threadIdx.x < TILE) {
            i64 place = (s.example * heads + s.head) * positions + at * TILE + threadIdx.x;
            log[threadIdx.x] = (int)threadIdx.x < left ? logs[place] : 0.0f;
            along[threadIdx.x] = (int)threadIdx.x < left ? alongs[place] : 0.0f;
        }
        __syncthreads();
        float share[TILE / 8][4] = {}, d_score[TILE / 8][4] = {};
        meet<HEAD>(share, keys, queries, s);
        meet<HEAD>(d_score, values, d_outs, s);
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int query = 8 * n + 2 * s.lane + i % 2;
                bool is_later = at == s.tile && s.row + i / 2 * 8 > at * TILE + query;
                share[n][i] = is_later ? 0.0f : exp2f(share[n][i] * scale - log[query]);
                d_score[n][i] = share[n][i] * (d_score[n][i] - along[query]);
            }
        gather_shares<HEAD>(d_value, share, d_outs_across, s);
        gather_shares<HEAD>(d_key, d_score, queries_across, s);
    }
    val* d_k = d_qkv + rows * stride + width + s.head * HEAD;
    leave<HEAD>(d_k, stride, s, positions, d_key, factors);
    leave<HEAD>(d_k + width, stride, s, positions, d_value, one);
}

extern "C" __global__ void attend_32(const val* qkv, val* output, float* logs, int positions, int heads, float scale) {
    attend<32>(qkv, output, logs, positions, heads, scale);
}

extern "C" __global__ void attend_64(const val* qkv, val* output, float* logs, int positions, int heads, float scale) {
    attend<64>(qkv, output, logs, positions, heads, scale);
}

extern "C" __global__ void d_queries_32(const val* qkv, const val* output, const val* d_output, const float* logs, float* alongs, val* d_qkv, int positions, int heads, float scale, float factor) {
    d_queries<32>(qkv, output, d_output, logs, alongs, d_qkv, positions, heads, scale, factor);
}

extern "C" __global__ void d_queries_64(const val* qkv, const val* output, const val* d_output, const float* logs, float* alongs, val* d_qkv, int positions, int heads, float scale, float factor) {
    d_queries<64>(qkv, output, d_output, logs, alongs, d_qkv, positions, heads, scale, factor);
}

extern "C" __global__ void d_keys_32(const val* qkv, const val* d_output, const float* logs, const float* alongs, val* d_qkv, int positions, int heads, float scale, float factor) {
    d_keys<32>(qkv, d_output, logs, alongs, d_qkv, positions, heads, scale, factor);
}

extern "C" __global__ void d_keys_64(const val* qkv, const val* d_output, const float* logs, const float* alongs, val* d_qkv, int positions, int heads, float scale, float factor) {
    d_keys<64>(qkv, d_output, logs, alongs, d_qkv, positions, heads, scale, factor);
}
