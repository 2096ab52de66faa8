// Tokens, recurrent cells and attention.

// Tokens are whole numbers stored as f32; the host has checked them.
extern "C" __global__ void embed(const float* tokens, const float* table, val* y, i64 count, int width) {
    i64 i = global_index();
    if (i < count) y[i] = as_val(table[(i64)tokens[i / width] * width + i % width]);
}

// One block per row of the table. It scans all tokens, 1,024 at a time, and adds the gradients of
// its own token in order.
extern "C" __global__ void d_embed(const float* tokens, i64 count, const val* d_y, float* d_table, int width, int add) {
    __shared__ int found[1024], of_warp[8];
    float row = (float)blockIdx.x;
    float* sum = d_table + (i64)blockIdx.x * width;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (!add)
        for (int i = threadIdx.x; i < width; i += 256) sum[i] = 0.0f;
    for (i64 first = 0; first < count; first += 1024) {
        // A warp scans 128 consecutive tokens, so that the found ones stay in order.
        bool is_mine[4];
        unsigned here[4];
        int mine = 0;
        for (int part = 0; part < 4; part++) {
            i64 at = first + warp * 128 + part * 32 + lane;
            is_mine[part] = at < count && tokens[at] == row;
            here[part] = __ballot_sync(0xffffffffu, is_mine[part]);
            mine += __popc(here[part]);
        }
        if (lane == 0) of_warp[warp] = mine;
        __syncthreads();
        int all = 0, before = 0;
        for (int other = 0; other < 8; other++) {
            before += other < warp ? of_warp[other] : 0;
            all += of_warp[other];
        }
        for (int part = 0; part < 4; part++) {
            int place = before + __popc(here[part] & ((1u << lane) - 1));
            if (is_mine[part]) found[place] = warp * 128 + part * 32 + lane;
            before += __popc(here[part]);
        }
        __syncthreads();
        if (all > 0)
            for (int i = threadIdx.x; i < width; i += 256) {
                float more = 0.0f;
                for (int f = 0; f < all; f++) more += get(d_y[(first + found[f]) * width + i]);
                sum[i] += more;
            }
        __syncthreads();
    }
}

// Computes position t of all examples, with one thread per example and unit. The gates i, f, g, o
// (sums without bias) are replaced by their values.
extern "C" __global__ void lstm_step(val* gates, float* cells, const float* bias, val* output, i64 t, i64 positions, int hidden, i64 count) {
    i64 index = global_index();
    if (index >= count) return;
    int k = (int)(index % hidden);
    i64 row = index / hidden * positions + t;
    val* gate = gates + row * 4 * hidden + k;
    float i = sigmoid(get(gate[0]) + bias[k]);
    float f = sigmoid(get(gate[hidden]) + bias[hidden + k]);
    float g = tanhf(get(gate[2 * hidden]) + bias[2 * hidden + k]);
    float o = sigmoid(get(gate[3 * hidden]) + bias[3 * hidden + k]);
    float before = t > 0 ? cells[(row - 1) * hidden + k] : 0.0f;
    float cell = f * before + i * g;
    cells[row * hidden + k] = cell;
    output[row * hidden + k] = as_val(o * tanhf(cell));
    gate[0] = as_val(i);
    gate[hidden] = as_val(f);
    gate[2 * hidden] = as_val(g);
    gate[3 * hidden] = as_val(o);
}

// Replaces the gates by the gradients with respect to their sums. `d_h` is the part from the next
// position.
extern "C" __global__ void d_lstm_step(val* gates, const float* cells, const val* d_output, const float* d_h, float* d_c, i64 t, i64 positions, int hidden, i64 count) {
    i64 index = global_index();
    if (index >= count) return;
    int k = (int)(index % hidden);
    i64 row = index / hidden * positions + t;
    val* gate = gates + row * 4 * hidden + k;
    float i = get(gate[0]), f = get(gate[hidden]), g = get(gate[2 * hidden]), o = get(gate[3 * hidden]);
    bool is_last = t + 1 == positions;
    float before = t > 0 ? cells[(row - 1) * hidden + k] : 0.0f;
    float d_out = get(d_output[row * hidden + k]) + (is_last ? 0.0f : d_h[index]);
    float squashed = tanhf(cells[row * hidden + k]);
    float d = (is_last ? 0.0f : d_c[index]) + d_out * o * (1.0f - squashed * squashed);
    d_c[index] = d * f;
    gate[0] = as_val(d * g * (i * (1.0f - i)));
    gate[hidden] = as_val(d * before * (f * (1.0f - f)));
    gate[2 * hidden] = as_val(d * i * (1.0f - g * g));
    gate[3 * hidden] = as_val(d_out * squashed * (o * (1.0f - o)));
}

// Counterpart of lstm_step for the sums of r, z, the recurrent part of n, and the input's part of
// n. `bias` is the input's, `recurrent` the recurrent one.
extern "C" __global__ void gru_step(val* gates, const float* bias, const float* recurrent, val* output, i64 t, i64 positions, int hidden, i64 count) {
    i64 index = global_index();
    if (index >= count) return;
    int k = (int)(index % hidden);
    i64 row = index / hidden * positions + t;
    val* gate = gates + row * 4 * hidden + k;
    float r = sigmoid(get(gate[0]) + (bias[k] + recurrent[k]));
    float z = sigmoid(get(gate[hidden]) + (bias[hidden + k] + recurrent[hidden + k]));
    float m = (t > 0 ? get(gate[2 * hidden]) : 0.0f) + recurrent[2 * hidden + k];
    float n = tanhf(get(gate[3 * hidden]) + bias[2 * hidden + k] + r * m);
    float before = t > 0 ? get(output[(row - 1) * hidden + k]) : 0.0f;
    output[row * hidden + k] = as_val(n + z * (before - n));
    gate[0] = as_val(r);
    gate[hidden] = as_val(z);
    gate[2 * hidden] = as_val(m);
    gate[3 * hidden] = as_val(n);
}

// Leaves in `d_h` the gradient that reaches the previous state without passing the gates; the
// product adds the rest.
extern "C" __global__ void d_gru_step(val* gates, const val* output, const val* d_output, float* d_h, i64 t, i64 positions, int hidden, i64 count) {
    i64 index = global_index();
    if (index >= count) return;
    int k = (int)(index % hidden);
    i64 row = index / hidden * positions + t;
    val* gate = gates + row * 4 * hidden + k;
    float r = get(gate[0]), z = get(gate[hidden]), m = get(gate[2 * hidden]), n = get(gate[3 * hidden]);
    float before = t > 0 ? get(output[(row - 1) * hidden + k]) : 0.0f;
    float d = get(d_output[row * hidden + k]) + (t + 1 == positions ? 0.0f : d_h[index]);
    d_h[index] = d * z;
    float d_n = d * (1.0f - z) * (1.0f - n * n);
    gate[0] = as_val(d_n * m * (r * (1.0f - r)));
    gate[hidden] = as_val(d * (before - n) * (z * (1.0f - z)));
    gate[2 * hidden] = as_val(d_n * r);
    gate[3 * hidden] = as_val(d_n);
}

// Clears the first row of each sequence.
extern "C" __global__ void forget_first(val* rows, i64 positions, i64 width, i64 count) {
    i64 i = global_index();
    if (i < count) rows[i / width * positions * width + i % width] = as_val(0.0f);
}

// Converts positions × (parts · heads · head) per example to parts × examples × heads × positions ×
// head, or back.
extern "C" __global__ void split_heads(const val* rows, val* heads_first, i64 positions, int parts, int heads, int head, i64 examples, i64 count, int back) {
    i64 i = global_index();
    if (i >= count) return;
    int k = (int)(i % head);
    i64 rest = i / head;
    int h = (int)(rest % heads);
    rest /= heads;
    int part = (int)(rest % parts);
    rest /= parts;
    i64 t = rest % positions, example = rest / positions;
    i64 to = ((((i64)part * examples + example) * heads + h) * positions + t) * head + k;
    if (back) ((val*)rows)[i] = heads_first[to];
    else heads_first[to] = rows[i];
}

// One block per row of scores. For row r of a head computes the softmax of scale · the first r + 1
// scores; the scores of later positions become 0.
extern "C" __global__ void causal_softmax(val* scores, i64 positions, float scale) {
    val* row = scores + (i64)blockIdx.x * positions;
    i64 seen = blockIdx.x % positions + 1;
    float most = minus_infinity(), sum = 0.0f;
    for (i64 i = threadIdx.x; i < seen; i += blockDim.x) {
        float score = get(row[i]);
        most = score > most ? score : most;
    }
    most = block_max(most);
    for (i64 i = threadIdx.x; i < seen; i += blockDim.x) sum += expf((get(row[i]) - most) * scale);
    float inverse = 1.0f / block_sum(sum);
    for (i64 i = threadIdx.x; i < positions; i += blockDim.x)
        row[i] = as_val(i < seen ? expf((get(row[i]) - most) * scale) * inverse : 0.0f);
}

// Turns `d` from the gradient of the softmax into the gradient of the scores.
extern "C" __global__ void d_causal_softmax(const val* shares, val* d, i64 positions, float scale) {
    i64 first = (i64)blockIdx.x * positions, seen = blockIdx.x % positions + 1;
    float along = 0.0f;
    for (i64 i = threadIdx.x; i < seen; i += blockDim.x) along += get(shares[first + i]) * get(d[first + i]);
    along = block_sum(along);
    for (i64 i = threadIdx.x; i < positions; i += blockDim.x)
        d[first + i] = as_val(i < seen ? get(shares[first + i]) * (get(d[first + i]) - along) * scale : 0.0f);
}
