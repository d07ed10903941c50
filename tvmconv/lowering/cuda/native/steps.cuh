// The steps of epilogues that are more than one operation on a value, as tvmconv/lowering/common/activations.py has them for CPUs.
//
// Exact steps are the formula itself, rounded after each operation. The others keep within 4e-7 of the formula, relative to
// it, wherever that is a normal number: e**x = 2**n * e**r with x = n*log(2) + r, and what would cancel or overflow is
// scaled, or summed in two parts. No function of a library is called, so that tests on a CPU see the errors of a GPU.
// Products that must be rounded by themselves are __fmul_rn's, which the compiler makes no part of an fma. Bounds are
// comparisons, as fmaxf and fminf would lose a NaN. The products of minus infinity with a gate of 0 are NaN: fmaf(x, 0, y) is
// y of every other x.

#include <math_constants.h>

__device__ __forceinline__ float tvmconv_clip(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

__device__ __forceinline__ float tvmconv_relu(float x) { return x < 0.0f ? 0.0f : x; }

__device__ __forceinline__ float tvmconv_scale(float x, float a) { return __fmul_rn(a, x); }

__device__ __forceinline__ float tvmconv_leaky(float x, float a) { return x < 0.0f ? __fmul_rn(a, x) : x; }

__device__ __forceinline__ float tvmconv_prelu(float x, float a) { return x < 0.0f ? __fmul_rn(a, x) : x; }

__device__ __forceinline__ float tvmconv_hardsigmoid(float x, float a, float b) {
  return tvmconv_clip(fmaf(a, x, b), 0.0f, 1.0f);
}

__device__ __forceinline__ float tvmconv_hardswish(float x) {
  return __fmul_rn(x, tvmconv_clip(x / 6.0f + 0.5f, 0.0f, 1.0f));
}

__device__ __forceinline__ float tvmconv_power_of_two(int n) {
  return __int_as_float(static_cast<int>(static_cast<unsigned>(n + 127) << 23));
}

// x = n*log(2) + r, abs(r) at most half of log(2).
struct tvmconv_reduced {
  float r;
  int n;
  __device__ __forceinline__ explicit tvmconv_reduced(float x) {
    const float whole = floorf(fmaf(x, 1.44269504f, 0.5f));
    // log(2) in two parts, the first of so few bits that its product is exact.
    r = fmaf(whole, 2.12194440e-4f, fmaf(whole, -0.693359375f, x));
    n = static_cast<int>(whole);
  }
  // e**r - 1, by Taylor: off by 2e-8 of it.
  __device__ __forceinline__ float expm1() const {
    float sum = 1.0f / 5040;
    sum = fmaf(sum, r, 1.0f / 720);
    sum = fmaf(sum, r, 1.0f / 120);
    sum = fmaf(sum, r, 1.0f / 24);
    sum = fmaf(sum, r, 1.0f / 6);
    sum = fmaf(sum, r, 0.5f);
    return fmaf(__fmul_rn(r, r), sum, r);
  }
};

// e**x - 1, x from -18 to 19.
__device__ __forceinline__ float tvmconv_expm1(float x) {
  const tvmconv_reduced reduced(x);
  const float scale = tvmconv_power_of_two(reduced.n);
  return fmaf(scale, reduced.expm1(), scale - 1.0f);
}

// e**(x - low) without its power of two, 2**n; `low` is less than the last bit of x.
__device__ __forceinline__ float tvmconv_exp(float x, float low, int &n) {
  const tvmconv_reduced reduced(x);
  n = reduced.n;
  const float power = 1.0f + reduced.expm1();
  return fmaf(-power, low, power);
}

// value / (1 + e**-(x + low)), x from -104 to 87. Where e**-x is beyond f32, the quotient is not: both sides of it are
// scaled by half of the power of two.
__device__ __forceinline__ float tvmconv_logistic(float value, float x, float low) {
  int n;
  const float power = tvmconv_exp(-x, low, n);
  const int half = n > 0 ? n >> 1 : 0;
  const float down = tvmconv_power_of_two(-half);
  return __fmul_rn(value, down) / fmaf(power, tvmconv_power_of_two(n - half), down);
}

__device__ __forceinline__ float tvmconv_elu(float x, float a) {
  return x > 0.0f ? x : __fmul_rn(a, tvmconv_expm1(tvmconv_clip(x, -18.0f, 0.0f)));
}

__device__ __forceinline__ float tvmconv_sigmoid(float x) {
  return tvmconv_logistic(1.0f, tvmconv_clip(x, -104.0f, 87.0f), 0.0f);
}

__device__ __forceinline__ float tvmconv_silu(float x) {
  const float value = x < -104.0f ? fmaf(x, 0.0f, -104.0f) : x;
  return tvmconv_logistic(value, value > 87.0f ? 87.0f : value, 0.0f);
}

// (e**2a - 1) / (e**2a + 1) with the sign of x, a = abs(x).
__device__ __forceinline__ float tvmconv_tanh(float x) {
  const float power = tvmconv_expm1(fabsf(tvmconv_clip(x, -9.1f, 9.1f)) * 2.0f);
  const float tangent = power / (power + 2.0f);
  return x < 0.0f ? -tangent : tangent;
}

// x * q for negative x, x - x * q for others, q = erfc(a / sqrt(2)) / 2 of a = abs(x).
__device__ __forceinline__ float tvmconv_gelu(float x) {
  const float bounded = tvmconv_clip(x, -14.5f, 14.5f), a = fabsf(bounded);
  // q * e**(a*a/2) * (a + 4) by u = (a - 4) / (a + 4).
  const float u = (a - 4.0f) / (a + 4.0f);
  float factor = -1.3197184e-4f;
  factor = fmaf(factor, u, 1.7935413e-4f);
  factor = fmaf(factor, u, 1.5699235e-3f);
  factor = fmaf(factor, u, -3.5125539e-3f);
  factor = fmaf(factor, u, -7.5252713e-3f);
  factor = fmaf(factor, u, 6.040383e-2f);
  factor = fmaf(factor, u, -1.8652344e-1f);
  factor = fmaf(factor, u, 3.871369e-1f);
  factor = fmaf(factor, u, -6.0789657e-1f);
  factor = fmaf(factor, u, 7.5528514e-1f);
  // a*a/2 is summed in two parts: half of the last bit of 87 is more than 4e-7.
  const float square = __fmul_rn(0.5f * a, a);
  int n;
  const float power = tvmconv_exp(-square, fmaf(0.5f * a, a, -square), n);
  const float q = power * (factor / (a + 4.0f));
  const int half = n >> 1;  // 2**n may be no normal number
  const float tail = __fmul_rn(bounded * q * tvmconv_power_of_two(half), tvmconv_power_of_two(n - half));
  return x < 0.0f ? fmaf(x, 0.0f, tail) : x - tail;
}

// x / (1 + e**-v), v = x * (c1 + c3*x*x), summed in two parts.
__device__ __forceinline__ float tvmconv_gelu_tanh(float x) {
  const float c1 = 1.5957692f, c1_low = -4.534068e-08f, c3 = 0.071354814f, c3_low = 2.3988325e-09f;
  const float a = tvmconv_clip(x, -10.7f, 10.7f);
  const float square = __fmul_rn(a, a), product = __fmul_rn(c3, square);
  float low = fmaf(c3, square, -product) + fmaf(c3, fmaf(a, a, -square), fmaf(c3_low, square, c1_low));
  // Both parts are taken, since the larger depends on x: the rounding error of each (Knuth's two-sum).
  const float total = c1 + product, part = total - c1;
  low += (c1 - (total - part)) + (product - part);
  const float high = __fmul_rn(a, total);
  low = fmaf(a, total, -high) + a * low;
  return tvmconv_logistic(x < -10.7f ? fmaf(x, 0.0f, -10.7f) : x, high > 87.0f ? 87.0f : high, low);
}
