// Windows on images (NHWC): patches for convolutions as matrix products and their transpose,
// depthwise convolution.

// Layout of the host's ten ints: image, kernel, stride, padding and output, each as height and
// width.
struct window {
    int image[2], kernel[2], stride[2], padding[2], output[2];
};

// Patches of `count` channels from `first` on, out of `all` channels of type `T`. There is one row
// per output position, in the order of the weight.
template <typename T>
static __device__ void gather_patches(const T* x, T* patches, window w, int all, int first, int count, i64 total) {
    i64 i = global_index();
    if (i >= total) return;
    int c = (int)(i % count);
    i64 rest = i / count;
    int kx = (int)(rest % w.kernel[1]);
    rest /= w.kernel[1];
    int ky = (int)(rest % w.kernel[0]);
    rest /= w.kernel[0];
    int ox = (int)(rest % w.output[1]);
    rest /= w.output[1];
    int oy = (int)(rest % w.output[0]);
    i64 example = rest / w.output[0];
    int row = oy * w.stride[0] + ky - w.padding[0], column = ox * w.stride[1] + kx - w.padding[1];
    T value = {};
    if (row >= 0 && row < w.image[0] && column >= 0 && column < w.image[1])
        value = x[((example * w.image[0] + row) * w.image[1] + column) * all + first + c];
    patches[i] = value;
}

extern "C" __global__ void gather(const val* x, val* patches, window w, int all, int first, int count, i64 total) {
    gather_patches<val>(x, patches, w, all, first, count, total);
}

// Channels are counted in units of 16 bytes.
extern "C" __global__ void gather_wide(const wide* x, wide* patches, window w, int all, int first, int count, i64 total) {
    gather_patches<wide>(x, patches, w, all, first, count, total);
}

// Transpose of gather: each element of the image sums its occurrences in the patches, so that no
// two threads write to one address.
extern "C" __global__ void scatter(const val* patches, val* x, window w, int all, int first, int count, i64 total) {
    i64 i = global_index();
    if (i >= total) return;
    int c = (int)(i % count);
    i64 rest = i / count;
    int column = (int)(rest % w.image[1]);
    rest /= w.image[1];
    int row = (int)(rest % w.image[0]);
    i64 example = rest / w.image[0];
    float sum = 0.0f;
    for (int ky = 0; ky < w.kernel[0]; ky++) {
        int y = row + w.padding[0] - ky;
        if (y < 0 || y % w.stride[0] || y / w.stride[0] >= w.output[0]) continue;
        for (int kx = 0; kx < w.kernel[1]; kx++) {
            int at = column + w.padding[1] - kx;
            if (at < 0 || at % w.stride[1] || at / w.stride[1] >= w.output[1]) continue;
            i64 position = (example * w.output[0] + y / w.stride[0]) * w.output[1] + at / w.stride[1];
            sum += get(patches[((position * w.kernel[0] + ky) * w.kernel[1] + kx) * count + c]);
        }
    }
    x[((example * w.image[0] + row) * w.image[1] + column) * all + first + c] = as_val(sum);
}

// Transposes a weight of `rows` × `columns`, (taps × input channels) × output channels, so that the
// elements of each output channel are adjacent. A block moves 32 × 32 elements through shared
// memory, so that whole cache lines are read and written.
extern "C" __global__ void weight_by_output(const val* weight, val* by_output, int rows, int columns) {
    __shared__ val tile[32][33];
    int across = (columns + 31) / 32;
    int row = (int)(blockIdx.x / across) * 32, column = (int)(blockIdx.x % across) * 32;
    int lane = threadIdx.x % 32;
    for (int line = threadIdx.x / 32; line < 32; line += blockDim.x / 32)
        if (row + line < rows && column + lane < columns) tile[line][lane] = weight[(i64)(row + line) * columns + column + lane];
    __syncthreads();
    for (int line = threadIdx.x / 32; line < 32; line += blockDim.x / 32)
        if (column + line < columns && row + lane < rows) by_output[(i64)(column + line) * rows + row + lane] = tile[lane][line];
}

// Transposes the gradient back, which is written or added.
extern "C" __global__ void d_weight_by_output(const val* by_output, float* d_weight, int rows, int columns, int add) {
    __shared__ float tile[32][33];
    int across = (columns + 31) / 32;
    int row = (int)(blockIdx.x / across) * 32, column = (int)(blockIdx.x % across) * 32;
    int lane = threadIdx.x % 32;
    for (int line = threadIdx.x / 32; line < 32; line += blockDim.x / 32)
        if (column + line < columns && row + lane < rows) tile[lane][line] = get(by_output[(i64)(column + line) * rows + row + lane]);
    __syncthreads();
    for (int line = threadIdx.x / 32; line < 32; line += blockDim.x / 32)
        if (row + line < rows && column + lane < columns) {
            float* at = d_weight + (i64)(row + line) * columns + column + lane;
            *at = add ? *at + tile[line][lane] : tile[line][lane];
        }
}

// Depthwise convolution. `weight` is taps × channels; `bias` is null for a layer without bias.
extern "C" __global__ void depthwise(const val* x, const val* weight, const float* bias, val* y, window w, int channels, i64 total, int relu) {
    i64 i = global_index();
    if (i >= total) return;
    int c = (int)(i % channels);
    i64 rest = i / channels;
    int ox = (int)(rest % w.output[1]);
    rest /= w.output[1];
    int oy = (int)(rest % w.output[0]);
    i64 example = rest / w.output[0];
    float sum = 0.0f;
    for (int ky = 0; ky < w.kernel[0]; ky++)
        for (int kx = 0; kx < w.kernel[1]; kx++) {
            int row = oy * w.stride[0] + ky - w.padding[0], column = ox * w.stride[1] + kx - w.padding[1];
            if (row < 0 || row >= w.image[0] || column < 0 || column >= w.image[1]) continue;
            sum += get(weight[(ky * w.kernel[1] + kx) * channels + c]) *
                   get(x[((example * w.image[0] + row) * w.image[1] + column) * channels + c]);
        }
    if (bias) sum += bias[c];
    y[i] = as_val(relu ? rectify(sum) : sum);
}

extern "C" __global__ void d_depthwise_input(const val* d_y, const val* weight, val* d_x, window w, int channels, i64 total) {
    i64 i = global_index();
    if (i >= total) return;
    int c = (int)(i % channels);
    i64 rest = i / channels;
    int column = (int)(rest % w.image[1]);
    rest /= w.image[1];
    int row = (int)(rest % w.image[0]);
    i64 example = rest / w.image[0];
    float sum = 0.0f;
    for (int ky = 0; ky < w.kernel[0]; ky++) {
        int y = row + w.padding[0] - ky;
        if (y < 0 || y % w.stride[0] || y / w.stride[0] >= w.output[0]) continue;
        for (int kx = 0; kx < w.kernel[1]; kx++) {
            int at = column + w.padding[1] - kx;
            if (at < 0 || at % w.stride[1] || at / w.stride[1] >= w.output[1]) continue;
            i64 position = (example * w.output[0] + y / w.stride[0]) * w.output[1] + at / w.stride[1];
            sum += get(weight[(ky * w.kernel[1] + kx) * channels + c]) * get(d_y[position * channels + c]);
        }
    }
    d_x[i] = as_val(sum);
}

// One thread per chunk of rows of output positions (over all examples), tap and channel.
extern "C" __global__ void d_depthwise_weight(const val* x, const val* d_y, window w, int channels, i64 rows, int rows_per_chunk, float* partial, i64 total) {
    i64 i = global_index();
    if (i >= total) return;
    int c = (int)(i % channels);
    i64 rest = i / channels;
    int kx = (int)(rest % w.kernel[1]);
    rest /= w.kernel[1];
    int ky = (int)(rest % w.kernel[0]);
    i64 begin = rest / w.kernel[0] * rows_per_chunk;
    i64 end = begin + rows_per_chunk < rows ? begin + rows_per_chunk : rows;
    float sum = 0.0f;
    for (i64 line = begin; line < end; line++) {
        int row = (int)(line % w.output[0]) * w.stride[0] + ky - w.padding[0];
        if (row < 0 || row >= w.image[0]) continue;
        const val* image = x + (line / w.output[0] * w.image[0] + row) * w.image[1] * channels + c;
        const val* d = d_y + line * w.output[1] * channels + c;
        for (int ox = 0; ox < w.output[1]; ox++) {
            int column = ox * w.stride[1] + kx - w.padding[1];
            if (column < 0 || column >= w.image[1]) continue;
            sum += get(d[(i64)ox * channels]) * get(image[(i64)column * channels]);
        }
    }
    partial[i] = sum;
}

// Bias, ReLU and 2×2 max pooling of the raw output of a convolution. `winners` receives the index
// of the largest of the four values, or 4 where ReLU cut it off.
extern "C" __global__ void relu_pool(const val* raw, const float* bias, val* y, unsigned char* winners, int height, int width, int channels, i64 total) {
    i64 i = global_index();
    if (i >= total) return;
    int c = (int)(i % channels);
    i64 rest = i / channels;
    int ox = (int)(rest % (width / 2));
    rest /= width / 2;
    int oy = (int)(rest % (height / 2));
    const val* at = raw + ((rest / (height / 2) * height + 2 * oy) * width + 2 * ox) * channels + c;
    float best = get(at[0]);
    int winner = 0;
    for (int tap = 1; tap < 4; tap++) {
        float value = get(at[((i64)(tap / 2) * width + tap % 2) * channels]);
        if (value > best) {
            best = value;
            winner = tap;
        }
    }
    float value = best + bias[c];
    y[i] = as_val(rectify(value));
    winners[i] = (unsigned char)(value > 0.0f ? winner : 4);
}

extern "C" __global__ void d_relu_pool(const val* d_y, const unsigned char* winners, val* d_raw, int height, int width, int channels, i64 total) {
    i64 i = global_index();
    if (i >= total) return;
    int c = (int)(i % channels);
    i64 rest = i / channels;
    int column = (int)(rest % width);
    rest /= width;
    int row = (int)(rest % height);
    float d = 0.0f;
    if (row / 2 < height / 2 && column / 2 < width / 2) {
        i64 out = ((rest / height * (height / 2) + row / 2) * (width / 2) + column / 2) * channels + c;
        if (winners[out] == row % 2 * 2 + column % 2) d = get(d_y[out]);
    }
    d_raw[i] = as_val(d);
}
