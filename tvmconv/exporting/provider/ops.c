/* The loops of operations between kernels, for the set of instructions LEVEL. Computed in f32, stored in the tensors' type. */
#include <math.h>
#include <string.h>

#include "tvmconv-ops.h"

#define NAMED(level) NAMED_(level)
#define NAMED_(level) tvmconv_name_rt_rows_##level
/* Floats that stay in L1 while steps are applied. */
enum { BLOCK = 2048 };
typedef float four __attribute__((vector_size(16)));
typedef int four_places __attribute__((vector_size(16)));

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t bytes_of(int type) { return type == ORT_FLOAT ? 4 : 2; }

/* Rounds to the nearest, ties to even; NaN stays one. */
static void store(char *to, const float *from, int64_t count, int type) {
  if (type == ORT_FLOAT) {
    memcpy(to, from, (size_t)count * sizeof *from);
  } else if (type == ORT_FLOAT16) {
    for (int64_t i = 0; i < count; ++i) ((_Float16 *)(void *)to)[i] = (_Float16)from[i];
  } else {
    for (int64_t i = 0; i < count; ++i) {
      uint32_t bits;
      memcpy(&bits, &from[i], sizeof bits);
      ((uint16_t *)(void *)to)[i] = from[i] != from[i] ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
  }
}

/* The numbers where they are if they are f32, else in `room`. */
static const float *read(const char *from, int64_t count, int type, float *room) {
  if (type == ORT_FLOAT) return (const float *)(const void *)from;
  load(room, from, count, type);
  return room;
}

/* e^x as 2^n * e^r with a polynomial of r, |r| <= ln(2)/2, to 2 units in the last place. */
static inline float exponential(float x) {
  x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
  float n = x * 1.44269504f + 12582912.0f, r, p, scale;
  int32_t bits;
  memcpy(&bits, &n, sizeof bits);
  n -= 12582912.0f;
  r = x - n * 0.693359375f + n * 2.12194440e-4f;
  p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  bits = (bits - 0x4b400000 + 127) << 23;
  memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}

static inline float sigmoid(float x) {
  float value = 1.0f / (1.0f + exponential(-x));
  return x != x ? x : value;
}

static inline float bounded(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

static void apply(const struct step *step, float *v, int64_t n) {
  const float a = step->a, b = step->b;
  switch (step->kind) {
    case CLIP:
      for (int64_t i = 0; i < n; ++i) v[i] = bounded(v[i], a, b);
      return;
    case LEAKY:
      for (int64_t i = 0; i < n; ++i) v[i] = v[i] < 0 ? v[i] * a : v[i];
      return;
    case ELU:
      for (int64_t i = 0; i < n; ++i) v[i] = v[i] < 0 ? a * expm1f(v[i]) : v[i];
      return;
    case SIGMOID:
      for (int64_t i = 0; i < n; ++i) v[i] = sigmoid(v[i]);
      return;
    case TANH:
      for (int64_t i = 0; i < n; ++i) v[i] = tanhf(v[i]);
      return;
    case HARDSIGMOID:
      for (int64_t i = 0; i < n; ++i) v[i] = bounded(v[i] * a + b, 0, 1);
      return;
    case SILU:
      for (int64_t i = 0; i < n; ++i) v[i] *= sigmoid(v[i]);
      return;
    case HARDSWISH:
      for (int64_t i = 0; i < n; ++i) v[i] *= bounded(v[i] * (1 / 6.0f) + 0.5f, 0, 1);
      return;
    case GELU:
      for (int64_t i = 0; i < n; ++i) v[i] = 0.5f * v[i] * (1 + erff(v[i] * 0.70710678f));
      return;
    case GELU_TANH:
      for (int64_t i = 0; i < n; ++i) v[i] = 0.5f * v[i] * (1 + tanhf(0.79788456f * (v[i] + 0.044715f * v[i] * v[i] * v[i])));
      return;
    default: return;
  }
}

/* Applies a step to `pixels` of `count` channels each from `channel` on; `first` is the number of the first of them. */
static void map_block(const struct op *op, const struct map_step *step, char *const *arrays, float *v, int64_t first, int64_t pixels,
                      int64_t channel, int64_t count) {
  float room[BLOCK];
  const int64_t n = pixels * count, size = bytes_of(op->type);
  const float *f = step->factors + channel, *t = step->terms + channel, *w;
  switch (step->kind) {
    case FUNCTION: apply(&step->function, v, n); return;
    case AFFINE:
      for (int64_t p = 0; p < pixels; ++p)
        for (int64_t c = 0; c < count; ++c) v[p * count + c] = v[p * count + c] * f[c] + t[c];
      return;
    case SLOPED:
      for (int64_t p = 0; p < pixels; ++p)
        for (int64_t c = 0; c < count; ++c) v[p * count + c] = v[p * count + c] < 0 ? v[p * count + c] * f[c] : v[p * count + c];
      return;
    case GATED:
    case SHIFTED:
      w = read(arrays[step->operand] + (first / op->pixels * op->channels + channel) * size, count, op->type, room);
      for (int64_t p = 0; p < pixels; ++p)
        for (int64_t c = 0; c < count; ++c) v[p * count + c] = step->kind == GATED ? v[p * count + c] * w[c] : v[p * count + c] + w[c];
      return;
    default: break;
  }
  w = read(arrays[step->operand] + (first * op->channels + channel) * size, n, op->type, room);
  switch (step->kind) {
    case PLUS:
      for (int64_t i = 0; i < n; ++i) v[i] += w[i];
      return;
    case MINUS:
      for (int64_t i = 0; i < n; ++i) v[i] -= w[i];
      return;
    case TAKEN_FROM:
      for (int64_t i = 0; i < n; ++i) v[i] = w[i] - v[i];
      return;
    case TIMES:
      for (int64_t i = 0; i < n; ++i) v[i] *= w[i];
      return;
    default:
      for (int64_t i = 0; i < n; ++i) v[i] /= w[i];
      return;
  }
}

static void map(const struct op *op, char *const *arrays, int64_t begin, int64_t end) {
  float v[BLOCK];
  const int64_t channels = op->channels, together = channels < BLOCK ? BLOCK / channels : 1, size = bytes_of(op->type);
  for (int64_t p = begin, more; p < end; p += more) {
    more = least(together, least(end, (p / op->pixels + 1) * op->pixels) - p);
    for (int64_t c = 0, count; c < channels; c += count) {
      count = least(BLOCK, channels - c);
      const int64_t place = (p * channels + c) * size;
      if (op->pitch == channels)
        load(v, arrays[0] + place, more * count, op->type);
      else
        for (int64_t k = 0; k < more; ++k) load(v + k * count, arrays[0] + ((p + k) * op->pitch + c) * size, count, op->type);
      for (int i = 0; i < op->step_count; ++i) map_block(op, &op->steps[i], arrays, v, p, more, c, count);
      store(arrays[op->array_count - 1] + place, v, more * count, op->type);
    }
  }
}

/* The taps of an output that meet an input: the first, and the one after the last. */
static void meet(const struct problem *w, int axis, int64_t output, int64_t *first, int64_t *last) {
  int64_t start = output * w->strides[axis] - w->begin[axis], beyond = w->in[axis] - start;
  *first = start < 0 ? (-start + w->dilations[axis] - 1) / w->dilations[axis] : 0;
  *last = beyond <= 0 ? 0 : least((beyond + w->dilations[axis] - 1) / w->dilations[axis], w->taps[axis]);
}

/* Adds numbers to sums, or keeps the greater; NaN stays one. */
static inline void collect(enum pooling pooling, float *restrict sums, const float *restrict v, int64_t count) {
  if (pooling == MAXIMUM)
    for (int64_t i = 0; i < count; ++i) sums[i] = v[i] > sums[i] || v[i] != v[i] ? v[i] : sums[i];
  else
    for (int64_t i = 0; i < count; ++i) sums[i] += v[i];
}

/* A row of the output of a pooling in three axes. */
static void pool(const struct op *op, char *const *arrays, int64_t row) {
  const struct problem *w = &op->window;
  const int64_t channels = op->channels, size = bytes_of(op->type), all = w->taps[0] * w->taps[1] * w->taps[2];
  const int64_t at[2] = {row / w->out[1] % w->out[0], row % w->out[1]}, image = row / w->out[1] / w->out[0] * w->in[0];
  int64_t first[AXES], last[AXES];
  float sums[BLOCK], room[BLOCK];
  for (int i = 0; i < 2; ++i) meet(w, i, at[i], &first[i], &last[i]);
  for (int64_t column = 0; column < w->out[2]; ++column) {
    meet(w, 2, column, &first[2], &last[2]);
    for (int64_t c = 0, count; c < channels; c += count) {
      int64_t taps = 0;
      count = least(BLOCK, channels - c);
      for (int64_t i = 0; i < count; ++i) sums[i] = op->pooling == MAXIMUM ? -INFINITY : 0;
      for (int64_t z = first[0]; z < last[0]; ++z)
        for (int64_t y = first[1]; y < last[1]; ++y)
          for (int64_t x = first[2]; x < last[2]; ++x, ++taps) {
            int64_t place = image + at[0] * w->strides[0] - w->begin[0] + z * w->dilations[0];
            place = place * w->in[1] + at[1] * w->strides[1] - w->begin[1] + y * w->dilations[1];
            place = place * w->in[2] + column * w->strides[2] - w->begin[2] + x * w->dilations[2];
            collect(op->pooling, sums, read(arrays[0] + (place * channels + c) * size, count, op->type, room), count);
          }
      if (op->pooling != MAXIMUM)
        for (int64_t i = 0; i < count; ++i) sums[i] /= (float)(op->pooling == AVERAGE_OF_ALL ? all : taps);
      store(arrays[1] + ((row * w->out[2] + column) * channels + c) * size, sums, count, op->type);
    }
  }
}

/* A row is some channels of an image, of all pixels. Sums of some pixels each are added up, for their errors grow with the count. */
enum { SUMMED = 64 };

static void reduce(const struct op *op, char *const *arrays, int64_t row) {
  const int64_t blocks = reduced_rows(op->channels), c = row % blocks * REDUCED, image = row / blocks;
  const int64_t count = least(REDUCED, op->channels - c), size = bytes_of(op->type), pixels = op->from;
  float sums[REDUCED] = {0}, part[REDUCED], room[REDUCED];
  const char *from = arrays[0] + (image * pixels * op->channels + c) * size;
  for (int64_t i = 0; i < count && op->pooling == MAXIMUM; ++i) sums[i] = -INFINITY;
  for (int64_t p = 0; p < pixels;) {
    memset(part, 0, sizeof part);
    for (int64_t end = least(pixels, p + SUMMED); p < end; ++p) {
      collect(op->pooling, op->pooling == MAXIMUM ? sums : part, read(from + p * op->channels * size, count, op->type, room), count);
    }
    for (int64_t i = 0; i < count && op->pooling != MAXIMUM; ++i) sums[i] += part[i];
  }
  for (int64_t i = 0; i < count && op->pooling != MAXIMUM; ++i) sums[i] /= (float)pixels;
  store(arrays[1] + (image * op->channels + c) * size, sums, count, op->type);
}

static void join(const struct op *op, char *const *arrays, int64_t begin, int64_t end) {
  const int64_t size = bytes_of(op->type), whole = op->pitch * size;
  enum { TOGETHER = 32 };
  for (int64_t p = begin; p < end; p += TOGETHER) {
    char *to = arrays[op->array_count - 1] + p * whole + op->from * size;
    for (int i = 0; i + 1 < op->array_count; ++i) {
      const int64_t part = op->parts[i] * size;
      for (int64_t k = p; k < least(end, p + TOGETHER); ++k) memcpy(to + (k - p) * whole, arrays[i] + k * part, (size_t)part);
      to += part;
    }
  }
}

static void part(const struct op *op, char *const *arrays, int64_t begin, int64_t end) {
  const int64_t size = bytes_of(op->type), whole = op->pitch * size, bytes = op->channels * size;
  for (int64_t p = begin; p < end; ++p) memcpy(arrays[1] + p * bytes, arrays[0] + p * whole + op->from * size, (size_t)bytes);
}

/* Transposes `groups` by n channels. */
static void shuffle(const struct op *op, char *const *arrays, int64_t begin, int64_t end) {
  const int64_t channels = op->channels, groups = op->groups, each = channels / groups;
  for (int64_t p = begin; p < end; ++p)
    for (int64_t j = 0; j < each; ++j)
      for (int64_t i = 0; i < groups; ++i) {
        int64_t to = p * channels + j * groups + i, from = p * channels + i * each + j;
        if (op->type == ORT_FLOAT)
          ((float *)(void *)arrays[1])[to] = ((const float *)(void *)arrays[0])[from];
        else
          ((uint16_t *)(void *)arrays[1])[to] = ((const uint16_t *)(void *)arrays[0])[from];
      }
}

/* A row of the output, whose pixels repeat those of the data a whole number of times. */
static void stretch(const struct op *op, char *const *arrays, int64_t row) {
  const struct problem *w = &op->window;
  const int64_t bytes = op->channels * bytes_of(op->type), y = row % w->out[1], z = row / w->out[1] % w->out[0];
  const int64_t plane = row / w->out[1] / w->out[0] * w->in[0] + z * w->in[0] / w->out[0];
  const char *from = arrays[0] + (plane * w->in[1] + y * w->in[1] / w->out[1]) * w->in[2] * bytes;
  for (int64_t x = 0; x < w->out[2]; ++x)
    memcpy(arrays[1] + (row * w->out[2] + x) * bytes, from + x * w->in[2] / w->out[2] * bytes, (size_t)bytes);
}

/* x / (bias + alpha/n * the sum of squares of n channels around it)^beta. */
static void across(const struct op *op, char *const *arrays, int64_t begin, int64_t end) {
  const int64_t channels = op->channels, size = bytes_of(op->type), n = op->groups, before = (n - 1) / 2;
  float squares[2 * BLOCK] = {0}, sums[BLOCK], room[BLOCK];
  for (int64_t p = begin; p < end; ++p) {
    const float *v = read(arrays[0] + p * channels * size, channels, op->type, room);
    for (int64_t c = 0; c < channels; ++c) squares[before + c] = v[c] * v[c];
    for (int64_t c = 0; c < channels; ++c) sums[c] = 0;
    for (int64_t k = 0; k < n; ++k)
      for (int64_t c = 0; c < channels; ++c) sums[c] += squares[k + c];
    for (int64_t c = 0; c < channels; ++c) sums[c] = op->bias + op->alpha / (float)n * sums[c];
    if (op->beta == 0.75f)
      for (int64_t c = 0; c < channels; ++c) sums[c] = v[c] / sqrtf(sums[c]) / sqrtf(sqrtf(sums[c]));
    else
      for (int64_t c = 0; c < channels; ++c) sums[c] = v[c] / powf(sums[c], op->beta);
    store(arrays[1] + p * channels * size, sums, channels, op->type);
  }
}

static void transpose_four(float *to, int64_t to_apart, const float *from, int64_t from_apart) {
  four a, b, c, d;
  memcpy(&a, from, sizeof a);
  memcpy(&b, from + from_apart, sizeof b);
  memcpy(&c, from + 2 * from_apart, sizeof c);
  memcpy(&d, from + 3 * from_apart, sizeof d);
  four ab = __builtin_shuffle(a, b, (four_places){0, 4, 1, 5}), cd = __builtin_shuffle(c, d, (four_places){0, 4, 1, 5});
  four ba = __builtin_shuffle(a, b, (four_places){2, 6, 3, 7}), dc = __builtin_shuffle(c, d, (four_places){2, 6, 3, 7});
  a = __builtin_shuffle(ab, cd, (four_places){0, 1, 4, 5});
  b = __builtin_shuffle(ab, cd, (four_places){2, 3, 6, 7});
  c = __builtin_shuffle(ba, dc, (four_places){0, 1, 4, 5});
  d = __builtin_shuffle(ba, dc, (four_places){2, 3, 6, 7});
  memcpy(to, &a, sizeof a);
  memcpy(to + to_apart, &b, sizeof b);
  memcpy(to + 2 * to_apart, &c, sizeof c);
  memcpy(to + 3 * to_apart, &d, sizeof d);
}

/* to[j][i] = from[i][j] of `rows` by `columns`, whose rows are so many elements apart. */
static void transpose(char *to, int64_t to_apart, const char *from, int64_t from_apart, int64_t rows, int64_t columns, int type) {
  int64_t i = 0;
  if (type != ORT_FLOAT) {
    uint16_t *t = (uint16_t *)(void *)to;
    const uint16_t *f = (const uint16_t *)(const void *)from;
    for (; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) t[j * to_apart + i] = f[i * from_apart + j];
    return;
  }
  float *t = (float *)(void *)to;
  const float *f = (const float *)(const void *)from;
  if (rows == 3 && to_apart == 3) { /* pictures */
    for (int64_t j = 0; j < columns; ++j) {
      t[3 * j] = f[j];
      t[3 * j + 1] = f[from_apart + j];
      t[3 * j + 2] = f[2 * from_apart + j];
    }
    return;
  }
  for (; i + 4 <= rows; i += 4) {
    int64_t j = 0;
    for (; j + 4 <= columns; j += 4) transpose_four(t + j * to_apart + i, to_apart, f + i * from_apart + j, from_apart);
    for (; j < columns; ++j)
      for (int64_t k = i; k < i + 4; ++k) t[j * to_apart + k] = f[k * from_apart + j];
  }
  for (; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) t[j * to_apart + i] = f[i * from_apart + j];
}

/* Pixels of images, some at a time, of some channels each, so that the lines of both arrays stay in L1. */
static void move(const struct op *op, char *const *arrays, int64_t begin, int64_t end) {
  const int64_t channels = op->channels, pixels = op->pixels, size = bytes_of(op->type);
  const int64_t together = channels == 3 ? 512 : 16;
  for (int64_t p = begin, more; p < end; p += more) {
    const int64_t image = p / pixels, pixel = p % pixels;
    more = least(together, least(end, (image + 1) * pixels) - p);
    for (int64_t c = 0; c < channels; c += 16) {
      const int64_t count = least(16, channels - c);
      const int64_t first = ((image * channels + c) * pixels + pixel) * size, last = (p * channels + c) * size;
      if (op->kind == OP_TO_LAST)
        transpose(arrays[1] + last, channels, arrays[0] + first, pixels, count, more, op->type);
      else
        transpose(arrays[1] + first, pixels, arrays[0] + last, channels, more, count, op->type);
    }
  }
}

void NAMED(LEVEL)(const struct op *op, char *const *arrays, int64_t begin, int64_t end) {
  switch (op->kind) {
    case OP_MAP: map(op, arrays, begin, end); return;
    case OP_POOL:
      for (; begin < end; ++begin) pool(op, arrays, begin);
      return;
    case OP_REDUCE:
      for (; begin < end; ++begin) reduce(op, arrays, begin);
      return;
    case OP_JOIN: join(op, arrays, begin, end); return;
    case OP_PART: part(op, arrays, begin, end); return;
    case OP_SHUFFLE: shuffle(op, arrays, begin, end); return;
    case OP_STRETCH:
      for (; begin < end; ++begin) stretch(op, arrays, begin);
      return;
    case OP_ACROSS: across(op, arrays, begin, end); return;
    case OP_TO_LAST:
    case OP_TO_FIRST: move(op, arrays, begin, end); return;
    default: return;
  }
}
