// Batch and layer normalisation.

// For evaluation: mean and 1 / deviation of the running statistics.
extern "C" __global__ void running_statistics(const float* mean, const float* variance, int channels, float* statistics) {
    int channel = (int)global_index();
    if (channel >= channels) return;
    statistics[channel] = mean[channel];
    statistics[channels + channel] = 1.0f / sqrtf(variance[channel] + 1e-5f);
}

extern "C" __global__ void batch_norm(const val* x, val* y, const float* statistics, const float* scale, const float* shift, i64 count, int channels, int relu) {
    i64 i = global_index();
    if (i >= count) return;
    int c = (int)(i % channels);
    float value = (get(x[i]) - statistics[c]) * (statistics[channels + c] * scale[c]) + shift[c];
    y[i] = as_val(relu ? rectify(value) : value);
}

// Of each chunk the sums of the gradient and of its product with the normalised input. `y` is null without ReLU.
extern "C" __global__ void batch_norm_sums(const val* x, const val* y, const val* d_y, const float* statistics, i64 rows, int channels, int rows_per_chunk, float* shifts, float* scales) {
    place at = column_place(rows, channels, rows_per_chunk);
    bool is_in = at.column < channels;
    float mean = is_in ? statistics[at.column] : 0.0f, inverse = is_in ? statistics[channels + at.column] : 0.0f;
    float d_shift = 0.0f, d_scale = 0.0f;
    if (is_in)
        for (i64 row = at.begin + at.row; row < at.end; row += 8) {
            i64 i = row * channels + at.column;
            float d = y && !(get(y[i]) > 0.0f) ? 0.0f : get(d_y[i]);
            d_shift += d;
            d_scale += d * (get(x[i]) - mean);
        }
    d_shift = sum_rows(d_shift);
    d_scale = sum_rows(d_scale);
    if (at.row == 0 && is_in) {
        shifts[(i64)at.chunk * channels + at.column] = d_shift;
        scales[(i64)at.chunk * channels + at.column] = d_scale * inverse;
    }
}

// d_x = scale / deviation · (d_y − mean of d_y − normalised x · mean of d_y · normalised x).
extern "C" __global__ void d_batch_norm(const val* x, const val* y, const val* d_y, val* d_x, const float* statistics, const float* scale, const float* d_shift, const float* d_scale, i64 count, int channels, float share) {
    i64 i = global_index();
    if (i >= count) return;
    int c = (int)(i % channels);
    float inverse = statistics[channels + c];
    float normalised = (get(x[i]) - statistics[c]) * inverse;
    float d = y && !(get(y[i]) > 0.0f) ? 0.0f : get(d_y[i]);
    d_x[i] = as_val(scale[c] * inverse * (d - share * (d_shift[c] + normalised * d_scale[c])));
}

// Gradients of the four blocks of parameters: those of running statistics are what a step moves them by, times the examples.
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

// A warp per row; `kept` takes each row's mean and 1 / deviation.
extern "C" __global__ void layer_norm(const val* x, val* y, const float* scale, const float* shift, i64 rows, int width, float* kept) {
    i64 row = global_index() / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * width;
    y += row * width;
    float sum = 0.0f, squares = 0.0f;
    for (int i = lane; i < width; i += 32) sum += get(x[i]);
    float mean = warp_sum(sum) / width;
    for (int i = lane; i < width; i += 32) squares += (get(x[i]) - mean) * (get(x[i]) - mean);
    float inverse = 1.0f / sqrtf(warp_sum(squares) / width + 1e-5f);
    for (int i = lane; i < width; i += 32) y[i] = as_val((get(x[i]) - mean) * inverse * scale[i] + shift[i]);
    if (lane == 0) {
        kept[2 * row] = mean;
        kept[2 * row + 1] = inverse;
    }
}

extern "C" __global__ void d_layer_norm(const val* x, const val* d_y, val* d_x, const float* scale, i64 rows, int width, const float* kept) {
    i64 row = global_index() / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * width;
    d_y += row * width;
    d_x += row * width;
    float mean = kept[2 * row], inverse = kept[2 * row + 1], along = 0.0f, across = 0.0f;
    for (int i = lane; i < width; i += 32) {
        float d = get(d_y[i]) * scale[i];
        along += d;
        across += d * ((get(x[i]) - mean) * inverse);
    }
    along = warp_sum(along) / width;
    across = warp_sum(across) / width;
    for (int i = lane; i < width; i += 32)
        d_x[i] = as_val(inverse * (get(d_y[i]) * scale[i] - along - (get(x[i]) - mean) * inverse * across));
}

// Of each chunk of rows the sums for scale and shift.
extern "C" __global__ void layer_norm_sums(const val* x, const val* d_y, const float* kept, i64 rows, int width, int rows_per_chunk, float* shifts, float* scales) {
    place at = column_place(rows, width, rows_per_chunk);
    bool is_in = at.column < width;
    float d_shift = 0.0f, d_scale = 0.0f;
    if (is_in)
        for (i64 row = at.begin + at.row; row < at.end; row += 8) {
            float d = get(d_y[row * width + at.column]);
            d_shift += d;
            d_scale += d * ((get(x[row * width + at.column]) - kept[2 * row]) * kept[2 * row + 1]);
        }
    d_shift = sum_rows(d_shift);
    d_scale = sum_rows(d_scale);
    if (at.row == 0 && is_in) {
        shifts[(i64)at.chunk * width + at.column] = d_shift;
        scales[(i64)at.chunk * width + at.column] = d_scale;
    }
}
