/* What stands between the kernels of a network, with their threads: pooling, pads, concatenation of channels, layer
 * normalization. Those for PyTorch's networks are by OpenMP's threads. Linked into every library of a CPU, compiled for
 * the widest vectors that its kernel has. Data have their channels last; they are f32, or bf16 as its bits.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "parallel.h"
#include "vectors.h"

#define EXPORT __attribute__((visibility("default")))

/* One axis of a pooling: output i has the inputs i * stride - pad + k * dilation that there are. */
typedef struct {
  int64_t inputs, outputs, taps, stride, pad, dilation;
} Axis;

/* NaN is greater than any number, as for PyTorch. */
static void pool_f32(const char* const* taps, int64_t count, int64_t from, char* to) {
  F32 most = *(const F32*)(taps[0] + from);
  for (int64_t tap = 1; tap < count; tap++) {
    F32 value = *(const F32*)(taps[tap] + from);
    I32 takes = (value > most) | (value != value);
    most = (F32)(((I32)value & takes) | ((I32)most & ~takes));
  }
  memcpy(to, &most, sizeof most);
}

/* As whole numbers, those of bf16 with no sign are in order, those with one in the reverse; NaN with one is above the rest of
 * these without their sign. */
static void pool_bf16(const char* const* taps, int64_t count, int64_t from, char* to) {
  I16 greatest = *(const I16*)(taps[0] + from), least = greatest, above = greatest;
  for (int64_t tap = 1; tap < count; tap++) {
    I16 value = *(const I16*)(taps[tap] + from);
    greatest = GREATEST(greatest, value);
    least = LEAST(least, value);
    above = GREATEST_UNSIGNED(above, value);
  }
  I16 negative = greatest < 0, nan = (above < 0) & (above > (int16_t)0xff80);
  I16 most = (least & negative) | (greatest & ~negative);
  most = (above & nan) | (most & ~nan);
  memcpy(to, &most, sizeof most);
}

/* The sum by the number of taps, or by another that is not 0. */
static void mean_f32(const char* const* taps, int64_t count, int64_t divisor, int64_t from, char* to) {
  F32 sum = *(const F32*)(taps[0] + from);
  for (int64_t tap = 1; tap < count; tap++) sum += *(const F32*)(taps[tap] + from);
  sum /= (float)(divisor ? divisor : count);
  memcpy(to, &sum, sizeof sum);
}

/* The taps of an output that meet an input: the first, and the one after the last. */
static void meet(const Axis* axis, int64_t output, int64_t* first, int64_t* last) {
  int64_t start = output * axis->stride - axis->pad, beyond = axis->inputs - start;
  *first = start < 0 ? (-start + axis->dilation - 1) / axis->dilation : 0;
  *last = beyond <= 0 ? 0 : (beyond + axis->dilation - 1) / axis->dilation;
  if (*last > axis->taps) *last = axis->taps;
}

enum { MAX_F32, MAX_BF16, MEAN_F32 };

typedef struct {
  int kind;
  const char* data;
  char* output;
  int64_t channels;
  const Axis* axes;
  int64_t divisor; /* of means; 0: the taps that meet an input */
} Pooling;

INLINE void pool(const Pooling* pooling, const char* const* taps, int64_t count, int64_t from, char* to) {
  if (pooling->kind == MAX_F32)
    pool_f32(taps, count, from, to);
  else if (pooling->kind == MAX_BF16)
    pool_bf16(taps, count, from, to);
  else
    mean_f32(taps, count, pooling->divisor, from, to);
}

static int pool_row(void* context, int64_t task) {
  const Pooling* pooling = context;
  const Axis* axes = pooling->axes;
  const int64_t rows = axes[1].outputs, columns = axes[2].outputs;
  const int64_t pixel = pooling->channels * (pooling->kind == MAX_BF16 ? 2 : 4);
  const int64_t image = axes[0].inputs * axes[1].inputs * axes[2].inputs * pixel;
  const char* taps[axes[0].taps * axes[1].taps * axes[2].taps];
  const int64_t at[2] = {task / rows % axes[0].outputs, task % rows};
  int64_t first[3], last[3];
  for (int axis = 0; axis < 2; axis++) meet(axes + axis, at[axis], first + axis, last + axis);
  int64_t count = 0, before = -1, beyond = -1;
  for (int64_t column = 0; column < columns; column++) {
    meet(axes + 2, column, first + 2, last + 2);
    const int alike = first[2] == before && last[2] == beyond; /* as the column before */
    if (alike)
      for (int64_t tap = 0; tap < count; tap++) taps[tap] += axes[2].stride * pixel;
    else
      count = 0;
    before = first[2], beyond = last[2];
    for (int64_t z = first[0]; z < last[0] && !alike; z++)
      for (int64_t y = first[1]; y < last[1]; y++)
        for (int64_t x = first[2]; x < last[2]; x++) {
          int64_t plane = at[0] * axes[0].stride - axes[0].pad + z * axes[0].dilation;
          int64_t row = at[1] * axes[1].stride - axes[1].pad + y * axes[1].dilation;
          int64_t place = column * axes[2].stride - axes[2].pad + x * axes[2].dilation;
          place += (plane * axes[1].inputs + row) * axes[2].inputs;
          taps[count++] = pooling->data + task / rows / axes[0].outputs * image + place * pixel;
        }
    char* to = pooling->output + (task * columns + column) * pixel;
    /* The last vector ends with the channels. */
    for (int64_t from = 0; from < pixel && pixel >= BYTES; from += BYTES) {
      int64_t begin = from + BYTES <= pixel ? from : pixel - BYTES;
      pool(pooling, taps, count, begin, to + begin);
    }
    if (pixel < BYTES) {
      char room[count][BYTES], most[BYTES];
      const char* copies[count];
      for (int64_t tap = 0; tap < count; tap++) {
        memset(room[tap], 0, BYTES);
        copies[tap] = memcpy(room[tap], taps[tap], pixel);
      }
      pool(pooling, copies, count, 0, most);
      memcpy(to, most, pixel);
    }
  }
  return 0;
}

/* `axes` are three, the first of one input and output where there are fewer; every output meets an input. */
EXPORT void tvmconv_max_pool(int threads, int bf16, const void* data, void* output, int64_t batch, int64_t channels,
                             const Axis* axes) {
  Pooling pooling = {bf16 ? MAX_BF16 : MAX_F32, data, output, channels, axes, 0};
  tvmconv_parallel_for_openmp(threads, batch * axes[0].outputs * axes[1].outputs, pool_row, &pooling);
}

/* The same for a network's plan, by its call's threads: the numbers of each axis one after the other. Of few elements, which take
 * about 10 us, by the caller's alone. */
#define NUMBERS(a) int64_t a##_in, int64_t a##_out, int64_t a##_taps, int64_t a##_stride, int64_t a##_pad, int64_t a##_dilation
#define AXIS(a) {a##_in, a##_out, a##_taps, a##_stride, a##_pad, a##_dilation}
#define FEW 65536

static void share_pool(Pooling* pooling, int64_t batch) {
  const Axis* axes = pooling->axes;
  const int64_t rows = batch * axes[0].outputs * axes[1].outputs, taps = axes[0].taps * axes[1].taps * axes[2].taps;
  if (rows * axes[2].outputs * pooling->channels * taps >= FEW)
    tvmconv_share(rows, pool_row, pooling);
  else
    for (int64_t row = 0; row < rows; row++) pool_row(pooling, row);
}

void tvmconv_network_max_pool(const void* data, void* output, int64_t batch, int64_t channels, NUMBERS(z), NUMBERS(y),
                              NUMBERS(x)) {
  const Axis axes[] = {AXIS(z), AXIS(y), AXIS(x)};
  Pooling pooling = {MAX_F32, data, output, channels, axes, 0};
  share_pool(&pooling, batch);
}

void tvmconv_network_mean_pool(int64_t divisor, const void* data, void* output, int64_t batch, int64_t channels, NUMBERS(z),
                               NUMBERS(y), NUMBERS(x)) {
  const Axis axes[] = {AXIS(z), AXIS(y), AXIS(x)};
  Pooling pooling = {MEAN_F32, data, output, channels, axes, divisor};
  share_pool(&pooling, batch);
}

static void copy(char* to, const char* from, int64_t bytes) {
  int64_t done = 0;
  for (; done + BYTES <= bytes; done += BYTES) *(I32*)(to + done) = *(const I32*)(from + done);
  if (done < bytes) memcpy(to + done, from + done, bytes - done);
}

/* One axis of pads: output i is input i - begin, where there is one. `stride`: of the data, in bytes. */
typedef struct {
  int64_t inputs, outputs, begin, stride;
} Padded;

enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };

/* The input that an output is; -1: none, but the constant. */
static int64_t source(const Padded* axis, int64_t output, int mode) {
  int64_t input = output - axis->begin, last = axis->inputs - 1;
  if (input >= 0 && input <= last) return input;
  if (mode == REFLECT) return input < 0 ? -input : 2 * last - input;
  if (mode == REPLICATE) return input < 0 ? 0 : last;
  if (mode == CIRCULAR) return input < 0 ? input + axis->inputs : input - axis->inputs;
  return -1;
}

/* Pixels one after the other, `apart` bytes from each other in the data, of channels that lie `stride` bytes apart there; some at
 * a time, for power-of-two strides leave few lines of the data in a cache. Inlined, for elements of one size each. */
INLINE void gather(char* to, const char* from, int64_t pixels, int64_t apart, int64_t channels, int64_t stride, int size) {
  for (int64_t begin = 0; begin < pixels; begin += 16) {
    const int64_t end = begin + 16 < pixels ? begin + 16 : pixels;
    for (int64_t c = 0, more; c < channels; c += more) {
      const int64_t left = channels - c;
      int64_t pixel = begin;
      more = left < 4 ? left : 4;
      for (; size == 4 && apart == 4 && more == 4 && pixel + 4 <= end; pixel += 4) {
        F32x4 rows[4];
        for (int row = 0; row < 4; row++) memcpy(rows + row, from + (c + row) * stride + pixel * 4, sizeof *rows);
        TRANSPOSE4(rows);
        for (int row = 0; row < 4; row++) memcpy((float*)to + (pixel + row) * channels + c, rows + row, sizeof *rows);
      }
      for (; pixel < end; pixel++)
        for (int64_t one = c; one < c + more; one++)
          memcpy(to + (pixel * channels + one) * size, from + pixel * apart + one * stride, size);
    }
  }
}

typedef struct {
  int size, mode; /* bytes of an element, 2 or 4 */
  const char* data;
  char* output;
  int64_t channels, image, channel; /* how many, and bytes between images and between channels of the data */
  const Padded* axes;
  const void* value;
  int64_t together, blocks; /* pixels of a task, and tasks of a row */
} Pads;

static int pad_block(void* context, int64_t task) {
  const Pads* pads = context;
  const Padded* axes = pads->axes;
  const int size = pads->size, mode = pads->mode;
  const int64_t channels = pads->channels, channel = pads->channel, columns = axes[2].outputs, pixel = channels * size;
  const int is_whole = channel == size || channels == 1, is_row = is_whole && axes[2].stride == pixel;
  const int64_t rows = axes[0].outputs * axes[1].outputs, row = task / pads->blocks;
  const int64_t first = task % pads->blocks * pads->together;
  const int64_t end = first + pads->together < columns ? first + pads->together : columns;
  const int64_t z = source(axes, row / axes[1].outputs % axes[0].outputs, mode);
  const int64_t y = source(axes + 1, row % axes[1].outputs, mode);
  const char* from = pads->data + row / rows * pads->image + z * axes[0].stride + y * axes[1].stride;
  char* to = pads->output + row * columns * pixel;
  for (int64_t x = first, more; x < end; x += more) {
    int64_t input = z < 0 || y < 0 ? -1 : source(axes + 2, x, mode);
    /* So many outputs from here on are inputs one after the other; where they are reflected, one. */
    int64_t within = x - axes[2].begin >= 0 ? axes[2].inputs - (x - axes[2].begin) : 0;
    more = input < 0 || within <= 0 ? 1 : within < end - x ? within : end - x;
    char* at = to + x * pixel;
    const char* there = from + input * axes[2].stride;
    if (input < 0) {
      for (int64_t c = 0; c < channels; c++) memcpy(at + c * size, pads->value, size);
    } else if (is_row) {
      copy(at, there, more * pixel);
    } else if (is_whole) {
      for (int64_t each = 0; each < more; each++) copy(at + each * pixel, there + each * axes[2].stride, pixel);
    } else if (size == 4) {
      gather(at, there, more, axes[2].stride, channels, channel, 4);
    } else {
      gather(at, there, more, axes[2].stride, channels, channel, 2);
    }
  }
  return 0;
}

/* `axes` are three, the first of one input and output where there are fewer. The output has its channels last; the data may lie in
 * any way. */
EXPORT void tvmconv_pad(int threads, int size, int mode, const void* data, void* output, int64_t batch, int64_t channels,
                        int64_t image, int64_t channel, const Padded* axes, const void* value) {
  const int64_t columns = axes[2].outputs, pixel = channels * size, rows = batch * axes[0].outputs * axes[1].outputs;
  Pads pads = {size, mode, data, output, channels, image, channel, axes, value, 1 + 32768 / pixel, 0};
  pads.blocks = (columns + pads.together - 1) / pads.together;
  /* Less than what one task takes is not worth waking threads. */
  tvmconv_parallel_for_openmp(rows * columns * pixel > 32768 ? threads : 1, rows * pads.blocks, pad_block, &pads);
}

#define TOGETHER 64 /* pixels */

typedef struct {
  int64_t parts;
  const void* const* data;
  const int64_t* bytes;
  char* output;
  int64_t pixels, all;
} Parts;

static int concatenate_block(void* context, int64_t block) {
  const Parts* given = context;
  int64_t begin = block * TOGETHER, end = begin + TOGETHER < given->pixels ? begin + TOGETHER : given->pixels, offset = 0;
  for (int64_t part = 0; part < given->parts; part++) {
    const int64_t bytes = given->bytes[part];
    for (int64_t pixel = begin; pixel < end; pixel++)
      copy(given->output + pixel * given->all + offset, (const char*)given->data[part] + pixel * bytes, bytes);
    offset += bytes;
  }
  return 0;
}

/* `bytes` are those of a pixel of each part. */
EXPORT void tvmconv_concatenate(int threads, int64_t parts, const void* const* data, const int64_t* bytes, void* output,
                                int64_t pixels) {
  Parts given = {parts, data, bytes, output, pixels, 0};
  for (int64_t part = 0; part < parts; part++) given.all += bytes[part];
  tvmconv_parallel_for_openmp(threads, (pixels + TOGETHER - 1) / TOGETHER, concatenate_block, &given);
}

INLINE F32 load(const void* row, int64_t c, int bf16) {
  if (!bf16) return *(const F32*)((const float*)row + c);
  return (F32)(WIDEN((const uint16_t*)row + c) << 16);
}

INLINE float load_one(const void* row, int64_t c, int bf16) {
  if (!bf16) return ((const float*)row)[c];
  uint32_t bits = (uint32_t)((const uint16_t*)row)[c] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* To the nearest, ties to even; NaN stays one. */
INLINE void store(void* row, int64_t c, F32 value, int bf16) {
  if (!bf16) {
    *(F32*)((float*)row + c) = value;
    return;
  }
  U32 bits = (U32)value, nan = (U32)(value != value);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  NARROW((uint16_t*)row + c, (bits & ~nan) | (nan & 0x7fc0));
}

INLINE float sum(F32 vector) {
  F32x4 parts[LANES / 4], total = {0};
  memcpy(parts, &vector, sizeof vector);
  for (int part = 0; part < LANES / 4; part++) total += parts[part];
  return (total[0] + total[1]) + (total[2] + total[3]);
}

/* Inlined, for one type each. */
INLINE void normalize(const void* row, void* output, const void* weight, const void* bias, int64_t channels, float epsilon,
                      int bf16) {
  const int64_t whole = channels / LANES * LANES;
  F32 sums = {0}, squares = {0};
  float rest = 0;
  for (int64_t c = 0; c < whole; c += LANES) sums += load(row, c, bf16);
  for (int64_t c = whole; c < channels; c++) rest += load_one(row, c, bf16);
  const float share = 1.0f / channels, mean = (sum(sums) + rest) * share;
  rest = 0;
  for (int64_t c = 0; c < whole; c += LANES) {
    F32 apart = load(row, c, bf16) - mean;
    squares += apart * apart;
  }
  for (int64_t c = whole; c < channels; c++) {
    float apart = load_one(row, c, bf16) - mean;
    rest += apart * apart;
  }
  const float scale = 1 / SQUARE_ROOT((sum(squares) + rest) * share + epsilon);
  for (int64_t c = 0; c < whole; c += LANES) {
    F32 value = (load(row, c, bf16) - mean) * scale;
    if (weight) value *= load(weight, c, bf16);
    if (bias) value += load(bias, c, bf16);
    store(output, c, value, bf16);
  }
  for (int64_t c = whole; c < channels; c++) {
    F32 value = {(load_one(row, c, bf16) - mean) * scale};
    if (weight) value *= load_one(weight, c, bf16);
    if (bias) value += load_one(bias, c, bf16);
    char room[BYTES];
    store(room, 0, value, bf16);
    memcpy((char*)output + c * (bf16 ? 2 : 4), room, bf16 ? 2 : 4);
  }
}

typedef struct {
  int bf16;
  const char* data;
  char* output;
  const void *weight, *bias;
  int64_t channels;
  float epsilon;
} Norm;

static int normalize_row(void* context, int64_t row) {
  const Norm* norm = context;
  const int64_t at = row * norm->channels * (norm->bf16 ? 2 : 4);
  const char* from = norm->data + at;
  char* to = norm->output + at;
  if (norm->bf16)
    normalize(from, to, norm->weight, norm->bias, norm->channels, norm->epsilon, 1);
  else
    normalize(from, to, norm->weight, norm->bias, norm->channels, norm->epsilon, 0);
  return 0;
}

/* Of each row; `weight` and `bias` may be NULL. */
EXPORT void tvmconv_layer_norm(int threads, int bf16, const void* data, void* output, const void* weight,
                               const void* bias, int64_t rows, int64_t channels, float epsilon) {
  Norm norm = {bf16, data, output, weight, bias, channels, epsilon};
  tvmconv_parallel_for_openmp(threads, rows, normalize_row, &norm);
}
