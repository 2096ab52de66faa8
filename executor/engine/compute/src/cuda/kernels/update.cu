// Update rules, equivalent to the CPU's. Parameters are f32, gradients are sums over examples. `f`
// holds the factors of the step, so that a recorded step can be replayed with other factors.

struct told {
    float lr, momentum, weight_decay, grad_scale, eps, rho, new_square, beta1, beta2, new1, new2, keep;
    // Factor of the gradients: grad_scale, reduced by clipping.
    float clipped;
};

// Updates running statistics, whose gradients are the change of a step and are not clipped.
extern "C" __global__ void follow(float* p, const float* g, i64 count, const told* f) {
    portion own = own_portion(count, p, g);
    pack<PACK> at = take(p, own), d = take(g, own);
#pragma unroll
    for (int k = 0; k < PACK; k++) at.at[k] -= f->grad_scale * d.at[k];
    leave(p, own, at);
}

// The other kernels also write the new parameters as values to `w`, which products of the next step
// read.

extern "C" __global__ void sgd(float* p, const float* g, val* w, i64 count, const told* f, const float* trust) {
    portion own = own_portion(count, p, g, w);
    pack<PACK> at = take(p, own), d = take(g, own);
    float lr = f->lr * (trust ? *trust : 1.0f);
#pragma unroll
    for (int k = 0; k < PACK; k++) at.at[k] -= lr * (f->clipped * d.at[k] + f->weight_decay * at.at[k]);
    leave(p, own, at);
    leave(w, own, at);
}

extern "C" __global__ void momentum(float* p, const float* g, float* v, val* w, i64 count, const told* f, int nesterov) {
    portion own = own_portion(count, p, g, v, w);
    pack<PACK> at = take(p, own), d = take(g, own), speed = take(v, own);
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        float step = f->clipped * d.at[k] + f->weight_decay * at.at[k];
        speed.at[k] = f->momentum * speed.at[k] + step;
        at.at[k] -= f->lr * (nesterov ? step + f->momentum * speed.at[k] : speed.at[k]);
    }
    leave(v, own, speed);
    leave(p, own, at);
    leave(w, own, at);
}

extern "C" __global__ void lars(float* p, const float* g, float* v, val* w, i64 count, const told* f, const float* trust) {
    portion own = own_portion(count, p, g, v, w);
    pack<PACK> at = take(p, own), d = take(g, own), speed = take(v, own);
    float lr = f->lr * (trust ? *trust : 1.0f);
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        speed.at[k] = f->momentum * speed.at[k] + lr * (f->clipped * d.at[k] + f->weight_decay * at.at[k]);
        at.at[k] -= speed.at[k];
    }
    leave(v, own, speed);
    leave(p, own, at);
    leave(w, own, at);
}

extern "C" __global__ void adagrad(float* p, const float* g, float* s, val* w, i64 count, const told* f) {
    portion own = own_portion(count, p, g, s, w);
    pack<PACK> at = take(p, own), d = take(g, own), seen = take(s, own);
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        float step = f->clipped * d.at[k] + f->weight_decay * at.at[k];
        seen.at[k] += step * step;
        at.at[k] -= f->lr * step / (sqrtf(seen.at[k]) + f->eps);
    }
    leave(s, own, seen);
    leave(p, own, at);
    leave(w, own, at);
}

// `v` is null without momentum.
extern "C" __global__ void rmsprop(float* p, const float* g, float* s, float* v, val* w, i64 count, const told* f) {
    portion own = own_portion(count, p, g, s, v, w);
    pack<PACK> at = take(p, own), d = take(g, own), seen = take(s, own), speed = {};
    if (v) speed = take(v, own);
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        float step = f->clipped * d.at[k] + f->weight_decay * at.at[k];
        seen.at[k] = f->rho * seen.at[k] + f->new_square * (step * step);
        float change = step / (sqrtf(seen.at[k]) + f->eps);
        speed.at[k] = f->momentum * speed.at[k] + change;
        at.at[k] -= f->lr * (v ? speed.at[k] : change);
    }
    leave(s, own, seen);
    if (v) leave(v, own, speed);
    leave(p, own, at);
    leave(w, own, at);
}

// The host folds the bias corrections into the rate and into epsilon.
extern "C" __global__ void adam(float* p, const float* g, float* m, float* v, val* w, i64 count, const told* f) {
    portion own = own_portion(count, p, g, m, v, w);
    pack<PACK> at = take(p, own), d = take(g, own), mean = take(m, own), square = take(v, own);
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        float step = f->clipped * d.at[k] + f->weight_decay * at.at[k];
        mean.at[k] = f->beta1 * mean.at[k] + f->new1 * step;
        square.at[k] = f->beta2 * square.at[k] + f->new2 * (step * step);
        at.at[k] = f->keep * at.at[k] - f->lr * mean.at[k] / (sqrtf(square.at[k]) + f->eps);
    }
    leave(m, own, mean);
    leave(v, own, square);
    leave(p, own, at);
    leave(w, own, at);
}

// Sums of squares of a tensor and of its gradient, per block; `p` may be null.
extern "C" __global__ void squares(const float* p, const float* g, i64 count, double* of_p, double* of_g) {
    double a = 0.0, b = 0.0;
    for (i64 i = global_index(); i * PACK < count; i += (i64)gridDim.x * blockDim.x) {
        portion own = portion_at(i, count, p, g);
        pack<PACK> at = {}, d = take(g, own);
        if (p) at = take(p, own);
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            a += (double)at.at[k] * (double)at.at[k];
            b += (double)d.at[k] * (double)d.at[k];
        }
    }
    leave_sums(a, b, of_p, of_g);
}

// Runs as one block: computes LARS' trust from the sums over blocks.
extern "C" __global__ void trust(const double* sums, const told* f, double coefficient, float* ratio) {
    if (threadIdx.x > 0) return;
    double norm = sqrt(sums[0]), grad_norm = (double)f->clipped * sqrt(sums[1]);
    bool is_none = norm == 0.0 || grad_norm == 0.0;
    *ratio = is_none ? 1.0f : (float)(coefficient * norm / (grad_norm + (double)f->weight_decay * norm));
}

// Runs as one block: clips grad_scale to `limit` from the sum of the gradients' squares, like the
// CPU's `clip_factor`. A NaN norm yields NaN.
extern "C" __global__ void clip(const double* square, told* f, double limit) {
    if (threadIdx.x > 0) return;
    double scale = (double)f->grad_scale;
    double factor = limit / (sqrt(scale * scale * *square) + 1e-6);
    f->clipped = (float)(scale * (factor >= 1.0 ? 1.0 : factor));
}
