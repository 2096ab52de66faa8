// Update rules, as the CPU's: f32 parameters, gradients as sums over examples. `f` is what the host says of the step, so that a
// recorded step can be done again with other numbers.

struct told {
    float lr, momentum, weight_decay, grad_scale, eps, rho, new_square, beta1, beta2, new1, new2, keep;
};

// Statistics move by what the step says of them.
extern "C" __global__ void follow(float* p, const float* g, i64 count, const told* f) {
    i64 i = global_index();
    if (i < count) p[i] -= f->grad_scale * g[i];
}

extern "C" __global__ void sgd(float* p, const float* g, i64 count, const told* f, const float* trust) {
    i64 i = global_index();
    if (i < count) p[i] -= f->lr * (trust ? *trust : 1.0f) * (f->grad_scale * g[i] + f->weight_decay * p[i]);
}

extern "C" __global__ void momentum(float* p, const float* g, float* v, i64 count, const told* f, int nesterov) {
    i64 i = global_index();
    if (i >= count) return;
    float step = f->grad_scale * g[i] + f->weight_decay * p[i];
    v[i] = f->momentum * v[i] + step;
    p[i] -= f->lr * (nesterov ? step + f->momentum * v[i] : v[i]);
}

extern "C" __global__ void lars(float* p, const float* g, float* v, i64 count, const told* f, const float* trust) {
    i64 i = global_index();
    if (i >= count) return;
    v[i] = f->momentum * v[i] + f->lr * (trust ? *trust : 1.0f) * (f->grad_scale * g[i] + f->weight_decay * p[i]);
    p[i] -= v[i];
}

extern "C" __global__ void adagrad(float* p, const float* g, float* s, i64 count, const told* f) {
    i64 i = global_index();
    if (i >= count) return;
    float step = f->grad_scale * g[i] + f->weight_decay * p[i];
    s[i] += step * step;
    p[i] -= f->lr * step / (sqrtf(s[i]) + f->eps);
}

extern "C" __global__ void rmsprop(float* p, const float* g, float* s, float* v, i64 count, const told* f) {
    i64 i = global_index();
    if (i >= count) return;
    float step = f->grad_scale * g[i] + f->weight_decay * p[i];
    s[i] = f->rho * s[i] + f->new_square * (step * step);
    float change = step / (sqrtf(s[i]) + f->eps);
    if (v) {
        v[i] = f->momentum * v[i] + change;
        change = v[i];
    }
    p[i] -= f->lr * change;
}

// Bias corrections are folded into the rate and into epsilon by the host.
extern "C" __global__ void adam(float* p, const float* g, float* m, float* v, i64 count, const told* f) {
    i64 i = global_index();
    if (i >= count) return;
    float step = f->grad_scale * g[i] + f->weight_decay * p[i];
    m[i] = f->beta1 * m[i] + f->new1 * step;
    v[i] = f->beta2 * v[i] + f->new2 * (step * step);
    p[i] = f->keep * p[i] - f->lr * m[i] / (sqrtf(v[i]) + f->eps);
}

// Of a tensor and its gradient, each block's sums of squares.
extern "C" __global__ void squares(const float* p, const float* g, i64 count, double* of_p, double* of_g) {
    double a = 0.0, b = 0.0;
    for (i64 i = global_index(); i < count; i += (i64)gridDim.x * blockDim.x) {
        a += (double)p[i] * (double)p[i];
        b += (double)g[i] * (double)g[i];
    }
    leave_sums(a, b, of_p, of_g);
}

// One block: LARS' trust from the sums over blocks.
extern "C" __global__ void trust(const double* sums, const told* f, double coefficient, float* ratio) {
    if (threadIdx.x > 0) return;
    double norm = sqrt(sums[0]), grad_norm = (double)f->grad_scale * sqrt(sums[1]);
    bool is_none = norm == 0.0 || grad_norm == 0.0;
    *ratio = is_none ? 1.0f : (float)(coefficient * norm / (grad_norm + (double)f->weight_decay * norm));
}
