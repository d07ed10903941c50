/* Pools of a network's plan, by its call's threads: data are f32 or bf16, their channels last. Compiled for the widest vectors of the
 * CPU that the network is for.
 */
#include <stddef.h>

#include "elements.h"
#include "parallel.h"

/* One axis of a pooling: output i has the inputs i * stride - pad + k * dilation that there are. */
typedef struct {
  int64_t inputs, outputs, taps, stride, pad, dilation;
} Axis;

static void greatest(const char* const* taps, int64_t count, int64_t from, char* to, int type) {
  F32 most = load(taps[0] + from, type);
  for (int64_t tap = 1; tap < count; tap++) most = greater(most, load(taps[tap] + from, type));
  store(to, most, type);
}

/* The sum by the number of taps, or by another that is not 0. */
static void mean(const char* const* taps, int64_t count, int64_t divisor, int64_t from, char* to, int type) {
  F32 sum = load(taps[0] + from, type);
  for (int64_t tap = 1; tap < count; tap++) sum += load(taps[tap] + from, type);
  store(to, sum / (float)(divisor ? divisor : count), type);
}

/* The taps of an output that meet an input: the first, and the one after the last. */
static void meet(const Axis* axis, int64_t output, int64_t* first, int64_t* last) {
  int64_t start = output * axis->stride - axis->pad, beyond = axis->inputs - start;
  *first = start < 0 ? (-start + axis->dilation - 1) / axis->dilation : 0;
  *last = beyond <= 0 ? 0 : (beyond + axis->dilation - 1) / axis->dilation;
  if (*last > axis->taps) *last = axis->taps;
}

enum { MAX, MEAN };

typedef struct {
  int kind, type;
  const char* data;
  char* output;
  int64_t channels;
  const Axis* axes;
  int64_t divisor; /* of means; 0: the taps that meet an input */
} Pooling;

INLINE void pool(const Pooling* pooling, const char* const* taps, int64_t count, int64_t from, char* to, int type) {
  if (pooling->kind == MAX)
    greatest(taps, count, from, to, type);
  else
    mean(taps, count, pooling->divisor, from, to, type);
}

INLINE void pool_row(const Pooling* pooling, int64_t task, int type) {
  const Axis* axes = pooling->axes;
  const int64_t rows = axes[1].outputs, columns = axes[2].outputs;
  const int64_t pixel = pooling->channels * SIZE(type), vector = LANES * SIZE(type);
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
    for (int64_t from = 0; from < pixel && pixel >= vector; from += vector) {
      int64_t begin = from + vector <= pixel ? from : pixel - vector;
      pool(pooling, taps, count, begin, to + begin, type);
    }
    if (pixel < vector) {
      char room[count][BYTES], made[BYTES];
      const char* copies[count];
      for (int64_t tap = 0; tap < count; tap++) {
        memset(room[tap], 0, BYTES);
        copies[tap] = memcpy(room[tap], taps[tap], pixel);
      }
      pool(pooling, copies, count, 0, made, type);
      memcpy(to, made, pixel);
    }
  }
}

static int row_of_whole(void* pooling, int64_t task) {
  pool_row(pooling, task, WHOLE);
  return 0;
}

static int row_of_half(void* pooling, int64_t task) {
  pool_row(pooling, task, HALF);
  return 0;
}

/* The numbers of each axis one after the other: three axes, the first of one input and output where there are fewer; every output
 * meets an input. Of few elements, which take about 10 us, by the caller's thread alone. */
#define NUMBERS(a) int64_t a##_in, int64_t a##_out, int64_t a##_taps, int64_t a##_stride, int64_t a##_pad, int64_t a##_dilation
#define AXIS(a) {a##_in, a##_out, a##_taps, a##_stride, a##_pad, a##_dilation}
#define FEW 65536

static void share_pool(Pooling* pooling, int64_t batch) {
  const Axis* axes = pooling->axes;
  const int64_t rows = batch * axes[0].outputs * axes[1].outputs, taps = axes[0].taps * axes[1].taps * axes[2].taps;
  const Body body = pooling->type == HALF ? row_of_half : row_of_whole;
  if (rows * axes[2].outputs * pooling->channels * taps >= FEW)
    tvmconv_share(rows, body, pooling);
  else
    for (int64_t row = 0; row < rows; row++) body(pooling, row);
}

void tvmconv_network_max_pool(int64_t type, const void* data, void* output, int64_t batch, int64_t channels, NUMBERS(z),
                              NUMBERS(y), NUMBERS(x)) {
  const Axis axes[] = {AXIS(z), AXIS(y), AXIS(x)};
  Pooling pooling = {MAX, (int)type, data, output, channels, axes, 0};
  share_pool(&pooling, batch);
}

void tvmconv_network_mean_pool(int64_t divisor, int64_t type, const void* data, void* output, int64_t batch, int64_t channels,
                               NUMBERS(z), NUMBERS(y), NUMBERS(x)) {
  const Axis axes[] = {AXIS(z), AXIS(y), AXIS(x)};
  Pooling pooling = {MEAN, (int)type, data, output, channels, axes, divisor};
  share_pool(&pooling, batch);
}
