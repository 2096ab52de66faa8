// Losses. Each block leaves its part of the sum and of what was right; `total` adds them in order.

// A block per row of scores. `d` is null in evaluation.
extern "C" __global__ void cross_entropy(const val* scores, const unsigned* labels, int classes, i64 stride, val* d, double* losses, double* rights) {
    i64 first = (i64)blockIdx.x * stride;
    const val* row = scores + first;
    int label = (int)labels[blockIdx.x];
    float most = minus_infinity(), sum = 0.0f, beaten = 0.0f;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) {
        float score = get(row[i]);
        most = score > most ? score : most;
    }
    most = block_max(most);
    for (int i = threadIdx.x; i < classes; i += blockDim.x) {
        float score = get(row[i]);
        sum += expf(score - most);
        // Ties go to the lower class.
        if (i < label && !(score < most)) beaten = 1.0f;
    }
    sum = block_sum(sum);
    beaten = block_sum(beaten);
    float own = get(row[label]);
    if (threadIdx.x == 0) {
        losses[blockIdx.x] = log((double)sum) - (double)(own - most);
        rights[blockIdx.x] = own == most && beaten == 0.0f && sum == sum ? 1.0 : 0.0;
    }
    if (d)
        for (int i = threadIdx.x; i < classes; i += blockDim.x)
            d[first + i] = as_val(expf(get(row[i]) - most) / sum - (i == label ? 1.0f : 0.0f));
}

// Sums of a block's numbers by a tree in one fixed order.
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

// One block.
extern "C" __global__ void total(const double* losses, const double* rights, i64 count, double* sums) {
    double loss = 0.0, right = 0.0;
    for (i64 i = threadIdx.x; i < count; i += blockDim.x) {
        loss += losses[i];
        right += rights[i];
    }
    leave_sums(loss, right, sums, sums + 1);
}
