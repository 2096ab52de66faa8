// Losses. Each block writes its part of the sum and of the number of correct targets; `total` adds
// the parts in order.

// Cross-entropy with one block per row of `classes` scores. Rows are `stride` apart; the padding
// between two rows becomes 0 in `d`, which is null in evaluation.
//
// A row is read twice: once for the largest score and the sum of exponentials, and once for the
// gradient. Groups of eight begin at addresses aligned to 16 bytes; single threads process the
// elements before and after them.
extern "C" __global__ void cross_entropy(const val* scores, const unsigned* labels, int classes, i64 stride, val* d, double* losses, double* rights) {
    const val* row = scores + blockIdx.x * stride;
    val* to = d ? d + blockIdx.x * stride : d;
    int label = (int)labels[blockIdx.x], thread = (int)threadIdx.x, threads = (int)blockDim.x;
    int past = (int)((u64)row % 16 / sizeof(val)), head = past ? 16 / (int)sizeof(val) - past : 0;
    // If alignments differ or rows are short, every element is processed singly.
    if (classes <= threads || (d && ((u64)row ^ (u64)to) % 16) || head > classes) head = classes;
    int packs = (classes - head) / PACK, tail = head + packs * PACK;
    // Largest score of a thread and its first index, and the sum of exponentials relative to it.
    float most = minus_infinity(), sum = 0.0f;
    int place = classes;
    for (int i = thread; i < head; i += threads) {
        float score = get(row[i]);
        if (score > most) {
            sum *= expf(most - score);
            most = score;
            place = i;
        }
        sum += expf(score - (most > minus_infinity() ? most : 0.0f));
    }
#pragma unroll 2
    for (int i = thread; i < packs; i += threads) {
        pack<PACK> few = load_wide(row + head + i * PACK);
        float more = few.at[0];
#pragma unroll
        for (int k = 1; k < PACK; k++) more = few.at[k] > more || more != more ? few.at[k] : more;
        if (more > most) {
            sum *= expf(most - more);
            most = more;
            // From last to first, so that the first of equal scores is kept.
#pragma unroll
            for (int k = PACK - 1; k >= 0; k--)
                if (few.at[k] == more) place = head + i * PACK + k;
        }
        float from = most > minus_infinity() ? most : 0.0f;
#pragma unroll
        for (int k = 0; k < PACK; k++) sum += expf(few.at[k] - from);
    }
    for (int i = tail + thread; i < classes; i += threads) {
        float score = get(row[i]);
        if (score > most) {
            sum *= expf(most - score);
            most = score;
            place = i;
        }
        sum += expf(score - (most > minus_infinity() ? most : 0.0f));
    }
    float all = block_max(most);
    sum = block_sum(sum * expf(most - all));
    // A tie selects the lower class.
    float beaten = block_sum(most == all && place < label ? 1.0f : 0.0f), own = get(row[label]);
    if (thread == 0) {
        losses[blockIdx.x] = log((double)sum) - (double)(own - all);
        rights[blockIdx.x] = own == all && beaten == 0.0f && sum == sum ? 1.0 : 0.0;
    }
    if (!d) return;
    float share = 1.0f / sum;
    for (int i = thread; i < head; i += threads) to[i] = as_val(expf(get(row[i]) - all) * share - (i == label ? 1.0f : 0.0f));
    for (int i = thread; i < packs; i += threads) {
        int first = head + i * PACK;
        pack<PACK> few = load_wide(row + first);
#pragma unroll
        for (int k = 0; k < PACK; k++) few.at[k] = expf(few.at[k] - all) * share - (first + k == label ? 1.0f : 0.0f);
        store_wide(to + first, few);
    }
    for (int i = tail + thread; i < classes; i += threads) to[i] = as_val(expf(get(row[i]) - all) * share - (i == label ? 1.0f : 0.0f));
    for (i64 i = classes + thread; i < stride; i += threads) to[i] = as_val(0.0f);
}

// Sums the values of a block by a tree in a fixed order.
static __device__ void leave_sums(double loss, double right, double* losses, double* rights) {
    __shared__ double sums[2][256];
    sums[0][threadIdx.x] = loss;
    sums[1][threadIdx.x] = right;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[0][threadIdx.x] += sums[0][threadIdx.x + half];
            sums[1][threadIdx.x] += sums[1][threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        losses[blockIdx.x] = sums[0][0];
        rights[blockIdx.x] = sums[1][0];
    }
}

extern "C" __global__ void squared(const val* y, const float* targets, i64 count, double outputs, val* d, double* losses, double* rights) {
    i64 i = global_index();
    double loss = 0.0;
    if (i < count) {
        float error = get(y[i]) - targets[i];
        loss = (double)error * (double)error / outputs;
        if (d) d[i] = as_val((float)(2.0 / outputs) * error);
    }
    leave_sums(loss, 0.0, losses, rights);
}

// max(x, 0) − x t + ln(1 + e^−|x|), which neither overflows nor loses small losses.
extern "C" __global__ void binary(const val* scores, const float* targets, i64 count, double outputs, val* d, double* losses, double* rights) {
    i64 i = global_index();
    double loss = 0.0, right = 0.0;
    if (i < count) {
        float x = get(scores[i]), t = targets[i];
        loss = ((double)rectify(x) - (double)x * (double)t + log1p(exp(-fabs((double)x)))) / outputs;
        right = x == x && (x > 0.0f) == (t > 0.5f) ? 1.0 : 0.0;
        if (d) d[i] = as_val((sigmoid(x) - t) / (float)outputs);
    }
    leave_sums(loss, right, losses, rights);
}

// Runs as one block. If `adds`, the totals are added to the previous ones.
extern "C" __global__ void total(const double* losses, const double* rights, i64 count, double* sums, int adds) {
    bool is_more = adds && threadIdx.x == 0;
    double loss = is_more ? sums[0] : 0.0, right = is_more ? sums[1] : 0.0;
    for (i64 i = threadIdx.x; i < count; i += blockDim.x) {
        loss += losses[i];
        right += rights[i];
    }
    leave_sums(loss, right, sums, sums + 1);
}
