// Max and average pooling of images (NHWC). A block processes one line of an image, which saves
// most divisions. A thread processes eight channels of a position, or one.

// Position of a thread's first channel.
struct spot {
    i64 example;
    int row, column, channel;
    bool is_in;
};

template <int N>
static __device__ __forceinline__ spot own_spot(int rows, int columns, int channels) {
    int groups = channels / N, blocks = (columns * groups + (int)blockDim.x - 1) / (int)blockDim.x;
    int line = (int)blockIdx.x / blocks, item = (int)blockIdx.x % blocks * (int)blockDim.x + (int)threadIdx.x;
    spot own;
    own.example = line / rows;
    own.row = line % rows;
    own.column = item / groups;
    own.channel = item % groups * N;
    own.is_in = own.column < columns;
    return own;
}

// Index of a row and column in images with this number of rows and columns.
static __device__ __forceinline__ i64 place_of(const spot& own, int rows, int columns, int row, int column, int channels) {
    return ((own.example * rows + row) * columns + column) * channels + own.channel;
}

struct alignas(8) eight { unsigned word[2]; };

// Winning positions of windows, one byte each.
template <int N>
struct taps { int at[N]; };

template <int N>
static __device__ __forceinline__ taps<N> load_taps(const unsigned char* winners) {
    taps<N> all;
    if constexpr (N == PACK) {
        eight bytes = *(const eight*)winners;
#pragma unroll
        for (int k = 0; k < N; k++) all.at[k] = bytes.word[k / 4] >> k % 4 * 8 & 0xffu;
    } else {
        all.at[0] = winners[0];
    }
    return all;
}

template <int N>
static __device__ __forceinline__ void store_taps(unsigned char* winners, const taps<N>& all) {
    if constexpr (N == PACK) {
        eight bytes = {};
#pragma unroll
        for (int k = 0; k < N; k++) bytes.word[k / 4] |= ((unsigned)all.at[k] & 0xffu) << k % 4 * 8;
        *(eight*)winners = bytes;
    } else {
        winners[0] = (unsigned char)all.at[0];
    }
}

// Positions in the padding never win. A tie selects the first position in reading order, and a NaN
// wins. `winners` receives the tap.
template <int N>
static __device__ __forceinline__ void max_pool_by(const val* x, val* y, unsigned char* winners, const window& w, int channels) {
    spot own = own_spot<N>(w.output[0], w.output[1], channels);
    if (!own.is_in) return;
    pack<N> best;
    taps<N> winner;
#pragma unroll
    for (int k = 0; k < N; k++) {
        best.at[k] = minus_infinity();
        winner.at[k] = -1;
    }
    for (int ky = 0; ky < w.kernel[0]; ky++) {
        int row = own.row * w.stride[0] + ky - w.padding[0];
        if (row < 0 || row >= w.image[0]) continue;
#pragma unroll 3
        for (int kx = 0; kx < w.kernel[1]; kx++) {
            int column = own.column * w.stride[1] + kx - w.padding[1];
            if (column < 0 || column >= w.image[1]) continue;
            pack<N> values = load<N>(x + place_of(own, w.image[0], w.image[1], row, column, channels));
#pragma unroll
            for (int k = 0; k < N; k++) {
                float value = values.at[k];
                if (winner.at[k] < 0 || value > best.at[k] || value != value) {
                    best.at[k] = value;
                    winner.at[k] = ky * w.kernel[1] + kx;
                }
            }
        }
    }
    i64 to = place_of(own, w.output[0], w.output[1], own.row, own.column, channels);
    store<N>(y + to, best);
    store_taps<N>(winners + to, winner);
}

extern "C" __global__ void max_pool(const val* x, val* y, unsigned char* winners, window w, int channels, int is_wide) {
    if (is_wide) max_pool_by<PACK>(x, y, winners, w, channels);
    else max_pool_by<1>(x, y, winners, w, channels);
}

// First and last window that contain a position, along one side. With this range a global pool
// costs one step instead of a scan of the image.
struct range { int first, last; };

static __device__ __forceinline__ range windows_of(const window& w, int side, int place) {
    int reach = place + w.padding[side], last = reach / w.stride[side];
    range of;
    of.first = reach < w.kernel[side] ? 0 : (reach - w.kernel[side]) / w.stride[side] + 1;
    of.last = last < w.output[side] - 1 ? last : w.output[side] - 1;
    return of;
}

template <int N>
static __device__ __forceinline__ void d_max_pool_by(const val* d_y, const unsigned char* winners, val* d_x, const window& w, int channels) {
    spot own = own_spot<N>(w.image[0], w.image[1], channels);
    if (!own.is_in) return;
    range rows = windows_of(w, 0, own.row), columns = windows_of(w, 1, own.column);
    pack<N> sum = {};
    for (int oy = rows.last; oy >= rows.first; oy--)
        for (int ox = columns.last; ox >= columns.first; ox--) {
            int tap = (own.row + w.padding[0] - oy * w.stride[0]) * w.kernel[1] + own.column + w.padding[1] - ox * w.stride[1];
            i64 from = place_of(own, w.output[0], w.output[1], oy, ox, channels);
            taps<N> winner = load_taps<N>(winners + from);
            pack<N> d = load<N>(d_y + from);
#pragma unroll
            for (int k = 0; k < N; k++)
                if (winner.at[k] == tap) sum.at[k] += d.at[k];
        }
    store<N>(d_x + place_of(own, w.image[0], w.image[1], own.row, own.column, channels), sum);
}

extern "C" __global__ void d_max_pool(const val* d_y, const unsigned char* winners, val* d_x, window w, int channels, int is_wide) {
    if (is_wide) d_max_pool_by<PACK>(d_y, winners, d_x, w, channels);
    else d_max_pool_by<1>(d_y, winners, d_x, w, channels);
}

// Number of positions of window `index` that are on the image, along one side.
static __device__ __forceinline__ int covered(const window& w, int side, int index) {
    int begin = index * w.stride[side] - w.padding[side], end = begin + w.kernel[side];
    return (end < w.image[side] ? end : w.image[side]) - (begin > 0 ? begin : 0);
}

template <int N>
static __device__ __forceinline__ void average_pool_by(const val* x, val* y, const window& w, int channels) {
    spot own = own_spot<N>(w.output[0], w.output[1], channels);
    if (!own.is_in) return;
    pack<N> sum = {};
    for (int ky = 0; ky < w.kernel[0]; ky++) {
        int row = own.row * w.stride[0] + ky - w.padding[0];
        if (row < 0 || row >= w.image[0]) continue;
#pragma unroll 4
        for (int kx = 0; kx < w.kernel[1]; kx++) {
            int column = own.column * w.stride[1] + kx - w.padding[1];
            if (column < 0 || column >= w.image[1]) continue;
            pack<N> values = load<N>(x + place_of(own, w.image[0], w.image[1], row, column, channels));
#pragma unroll
            for (int k = 0; k < N; k++) sum.at[k] += values.at[k];
        }
    }
    float count = (float)(covered(w, 0, own.row) * covered(w, 1, own.column));
#pragma unroll
    for (int k = 0; k < N; k++) sum.at[k] /= count;
    store<N>(y + place_of(own, w.output[0], w.output[1], own.row, own.column, channels), sum);
}

extern "C" __global__ void average_pool(const val* x, val* y, window w, int channels, int is_wide) {
    if (is_wide) average_pool_by<PACK>(x, y, w, channels);
    else average_pool_by<1>(x, y, w, channels);
}

template <int N>
static __device__ __forceinline__ void d_average_pool_by(const val* d_y, val* d_x, const window& w, int channels) {
    spot own = own_spot<N>(w.image[0], w.image[1], channels);
    if (!own.is_in) return;
    range rows = windows_of(w, 0, own.row), columns = windows_of(w, 1, own.column);
    pack<N> sum = {};
    for (int oy = rows.first; oy <= rows.last; oy++)
        for (int ox = columns.first; ox <= columns.last; ox++) {
            float count = (float)(covered(w, 0, oy) * covered(w, 1, ox));
            pack<N> d = load<N>(d_y + place_of(own, w.output[0], w.output[1], oy, ox, channels));
#pragma unroll
            for (int k = 0; k < N; k++) sum.at[k] += d.at[k] / count;
        }
    store<N>(d_x + place_of(own, w.image[0], w.image[1], own.row, own.column, channels), sum);
}

extern "C" __global__ void d_average_pool(const val* d_y, val* d_x, window w, int channels, int is_wide) {
    if (is_wide) d_average_pool_by<PACK>(d_y, d_x, w, channels);
    else d_average_pool_by<1>(d_y, d_x, w, channels);
}
