// Max and average pooling of images (NHWC).

// Positions in the padding never win; ties go to the first in reading order, and a NaN wins. `winners` takes the tap.
extern "C" __global__ void max_pool(const val* x, val* y, unsigned char* winners, window w, int channels, i64 total) {
    i64 i = global_index();
    if (i >= total) return;
    int c = (int)(i % channels);
    i64 rest = i / channels;
    int ox = (int)(rest % w.output[1]);
    rest /= w.output[1];
    int oy = (int)(rest % w.output[0]);
    i64 example = rest / w.output[0];
    float best = minus_infinity();
    int winner = -1;
    for (int ky = 0; ky < w.kernel[0]; ky++)
        for (int kx = 0; kx < w.kernel[1]; kx++) {
            int row = oy * w.stride[0] + ky - w.padding[0], column = ox * w.stride[1] + kx - w.padding[1];
            if (row < 0 || row >= w.image[0] || column < 0 || column >= w.image[1]) continue;
            float value = get(x[((example * w.image[0] + row) * w.image[1] + column) * channels + c]);
            if (winner < 0 || value > best || value != value) {
                best = value;
                winner = ky * w.kernel[1] + kx;
            }
        }
    y[i] = as_val(best);
    winners[i] = (unsigned char)winner;
}

extern "C" __global__ void d_max_pool(const val* d_y, const unsigned char* winners, val* d_x, window w, int channels, i64 total) {
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
            i64 out = ((example * w.output[0] + y / w.stride[0]) * w.output[1] + at / w.stride[1]) * channels + c;
            if (winners[out] == ky * w.kernel[1] + kx) sum += get(d_y[out]);
        }
    }
    d_x[i] = as_val(sum);
}

// How many positions of window `index` lie on the image, along one side.
static __device__ __forceinline__ int covered(window w, int side, int index) {
    int begin = index * w.stride[side] - w.padding[side], end = begin + w.kernel[side];
    return (end < w.image[side] ? end : w.image[side]) - (begin > 0 ? begin : 0);
}

extern "C" __global__ void average_pool(const val* x, val* y, window w, int channels, i64 total) {
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
            sum += get(x[((example * w.image[0] + row) * w.image[1] + column) * channels + c]);
        }
    y[i] = as_val(sum / (covered(w, 0, oy) * covered(w, 1, ox)));
}

extern "C" __global__ void d_average_pool(const val* d_y, val* d_x, window w, int channels, i64 total) {
    i64 i = global_index();
    if (i >= total) return;
    int c = (int)(i % channels);
    i64 rest = i / channels;
    int column = (int)(rest % w.image[1]);
    rest /= w.image[1];
    int row = (int)(rest % w.image[0]);
    i64 example = rest / w.image[0];
    float sum = 0.0f;
    // First and last window that hold the position, so that a global pool costs one step and not the whole image.
    int from[2], to[2], place[2] = {row, column};
    for (int side = 0; side < 2; side++) {
        int reach = place[side] + w.padding[side];
        from[side] = reach < w.kernel[side] ? 0 : (reach - w.kernel[side]) / w.stride[side] + 1;
        to[side] = reach / w.stride[side] < w.output[side] - 1 ? reach / w.stride[side] : w.output[side] - 1;
    }
    for (int oy = from[0]; oy <= to[0]; oy++)
        for (int ox = from[1]; ox <= to[1]; ox++) {
            i64 out = ((example * w.output[0] + oy) * w.output[1] + ox) * channels + c;
            sum += get(d_y[out]) / (covered(w, 0, oy) * covered(w, 1, ox));
        }
    d_x[i] = as_val(sum);
}
