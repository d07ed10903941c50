/* Pools of a network, by its call's threads: data are f32 or bf16, channels last. Compiled for the widest vectors of the
 * CPU that the network is for.
 */
#include <math.h>
#include <stddef.h>

#include "elements.h"
#include "parallel.h"

/* One axis of a pooling: output i has the inputs i * stride - pad + k * dilation that there are. */
typedef struct {
  int64_t inputs, outputs, taps, stride, pad, dilation;
} Axis;

/* Reductions of taps: the maximum, the maximum where some elements may be NaN, the sum, divided by a number that is not 0. */
enum { GREATEST, KEEPING, MEAN };

/* Reduces all taps' elements of some vectors from `at` on, or of a partial one; of the maximum, `poison` becomes NaN where an element
 * is NaN or infinite. */
INLINE void vectors(const char* const* taps, int64_t count, int64_t at, float by, char* to, F32* poison, int many, int64_t left,
                    int kind, int in, int out) {
  F32 made[4], found[4];
#pragma GCC unroll 4
  for (int each = 0; each < many; each++) {
    made[each] = (F32){} + (float)(kind == MEAN ? 0 : -INFINITY);
    found[each] = (F32){};
  }
  for (int64_t tap = 0; tap < count; tap++)
#pragma GCC unroll 4
    for (int each = 0; each < many; each++) {
      const char* from = taps[tap] + (at + each * LANES) * SIZE(in);
      const F32 value = left < LANES ? load_some(from, left, in) : load(from, in);
      if (kind == MEAN)
        made[each] += value;
      else
        made[each] = kind == GREATEST ? greater_number(made[each], value) : greater(made[each], value);
      if (kind == GREATEST) found[each] += value * 0;
    }
#pragma GCC unroll 4
  for (int each = 0; each < many; each++) {
    if (kind == MEAN && by) made[each] /= by;
    if (left < LANES)
      store_some(to, made[each], left, out);
    else
      store(to + (at + each * LANES) * SIZE(out), made[each], out);
  }
  if (kind == GREATEST && many == 4) *poison += (found[0] + found[1]) + (found[2] + found[3]);
  if (kind == GREATEST && many == 1) *poison += found[0];
}

/* The same of all elements, the last vector of which ends with them. */
INLINE void together(const char* const* taps, int64_t count, int64_t elements, float by, char* to, F32* poison, int kind, int in,
                     int out) {
  int64_t at = 0;
  F32 found = *poison;
  for (; at + 4 * LANES <= elements; at += 4 * LANES) vectors(taps, count, at, by, to, &found, 4, LANES, kind, in, out);
  for (; at < elements && elements >= LANES; at += LANES)
    vectors(taps, count, at + LANES <= elements ? at : elements - LANES, by, to, &found, 1, LANES, kind, in, out);
  if (elements < LANES) vectors(taps, count, 0, by, to, &found, 1, elements, kind, in, out);
  *poison = found;
}

typedef void Together(const char* const* taps, int64_t count, int64_t elements, float by, char* to, F32* poison);
#define KNOWN(kind, in, out)                                                                                                  \
  static void kind##_##in##_##out(const char* const* taps, int64_t count, int64_t elements, float by, char* to, F32* poison) { \
    together(taps, count, elements, by, to, poison, kind, in, out);                                                           \
  }
#ifdef WHOLE_ALONE
#define TYPES(kind) KNOWN(kind, WHOLE, WHOLE)
#define BY_TYPES(kind) {{kind##_WHOLE_WHOLE}}
#else
#define TYPES(kind) KNOWN(kind, WHOLE, WHOLE) KNOWN(kind, WHOLE, HALF) KNOWN(kind, HALF, WHOLE) KNOWN(kind, HALF, HALF)
#define BY_TYPES(kind) {{kind##_WHOLE_WHOLE, kind##_WHOLE_HALF}, {kind##_HALF_WHOLE, kind##_HALF_HALF}}
#endif
TYPES(GREATEST) TYPES(KEEPING) TYPES(MEAN)
/* Functions by the types of inputs and outputs. */
static Together* const known[3][2][2] = {BY_TYPES(GREATEST), BY_TYPES(KEEPING), BY_TYPES(MEAN)};

/* Sets the first tap of an output that meets an input, and the one after the last. */
static void meet(const Axis* axis, int64_t output, int64_t* first, int64_t* last) {
  int64_t start = output * axis->stride - axis->pad, beyond = axis->inputs - start;
  *first = start < 0 ? (-start + axis->dilation - 1) / axis->dilation : 0;
  *last = beyond <= 0 ? 0 : (beyond + axis->dilation - 1) / axis->dilation;
  if (*last > axis->taps) *last = axis->taps;
}

typedef struct {
  int kind, type;
  const char* data;
  char* output;
  int64_t channels;
  const Axis* axes;
  int64_t divisor; /* of means; 0: the taps that meet an input */
} Pooling;

/* Elements of a row that a thread has on its stack. */
#define MOST_ROW 32768

/* Returns whether a row is reduced from the rows that its windows meet, then from their columns: fewer reads where windows overlap. */
static int is_by_rows(const Pooling* pooling) {
  const Axis* axes = pooling->axes;
  const int64_t rows = axes[0].taps * axes[1].taps, columns = axes[2].taps;
  return rows > 1 && axes[2].inputs * pooling->channels <= MOST_ROW && rows * columns > rows * axes[2].stride + columns + 2;
}

/* Computes a row of outputs from the first `count` of `rows`, each with all columns; returns whether all elements are finite. */
static int columns_of(const Pooling* pooling, const char* const* rows, int64_t count, int kind, int in, float by_rows, char* to) {
  const Axis* axis = &pooling->axes[2];
  const int64_t pixel = pooling->channels * SIZE(in), size = pooling->channels * SIZE(pooling->type);
  const char* taps[count * axis->taps];
  Together* const make = known[kind][in][pooling->type];
  int64_t first, last, before = -1, beyond = -1, met = 0;
  F32 poison = {};
  for (int64_t column = 0, run; column < axis->outputs; column += run, to += run * size) {
    meet(axis, column, &first, &last);
    const int alike = first == before && last == beyond; /* as the column before */
    if (alike)
      for (int64_t tap = 0; tap < met; tap++) taps[tap] += axis->stride * pixel;
    else
      met = 0;
    before = first, beyond = last;
    for (int64_t row = 0; row < count && !alike; row++)
      for (int64_t x = first; x < last; x++)
        taps[met++] = rows[row] + (column * axis->stride - axis->pad + x * axis->dilation) * pixel;
    /* Neighbours whose taps are neighbours, too, are computed as one. */
    for (run = 1; axis->stride == 1 && column + run < axis->outputs; run++) {
      int64_t next, end;
      meet(axis, column + run, &next, &end);
      if (next != first || end != last) break;
    }
    make(taps, met, run * pooling->channels, pooling->divisor ? pooling->divisor : by_rows * (last - first), to, &poison);
  }
  return is_finite(poison);
}

static int pool_row(void* context, int64_t task) {
  const Pooling* pooling = context;
  const Axis* axes = pooling->axes;
  const int64_t lines = axes[1].outputs, elements = axes[2].inputs * pooling->channels, size = SIZE(pooling->type);
  const char* image = pooling->data + task / lines / axes[0].outputs * axes[0].inputs * axes[1].inputs * elements * size;
  const int64_t at[2] = {task / lines % axes[0].outputs, task % lines};
  const char* rows[axes[0].taps * axes[1].taps];
  int64_t first[2], last[2], count = 0;
  for (int axis = 0; axis < 2; axis++) meet(axes + axis, at[axis], first + axis, last + axis);
  for (int64_t z = first[0]; z < last[0]; z++)
    for (int64_t y = first[1]; y < last[1]; y++) {
      const int64_t plane = at[0] * axes[0].stride - axes[0].pad + z * axes[0].dilation;
      const int64_t line = at[1] * axes[1].stride - axes[1].pad + y * axes[1].dilation;
      rows[count++] = image + (plane * axes[1].inputs + line) * elements * size;
    }
  char* to = pooling->output + task * axes[2].outputs * pooling->channels * size;
  const int by_rows = is_by_rows(pooling);
  float row[by_rows ? elements : 1];
  const char* made = (const char*)row;
  for (int kind = pooling->kind;; kind = KEEPING) { /* once more, if an element may be NaN */
    F32 poison = {};
    if (by_rows) known[kind][pooling->type][WHOLE](rows, count, elements, 0, (char*)row, &poison);
    const int finite = by_rows ? is_finite(poison) && columns_of(pooling, &made, 1, kind, WHOLE, count, to)
                               : columns_of(pooling, rows, count, kind, pooling->type, count, to);
    if (finite || kind != GREATEST) return 0;
  }
}

/* The numbers of each axis in turn: three axes, the first of one input and output where there are fewer; every output meets an
 * input. Few elements, which take about 10 us, are computed by the caller's thread alone. */
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

void tvmconv_network_max_pool(int64_t type, const void* data, void* output, int64_t batch, int64_t channels, NUMBERS(z),
                              NUMBERS(y), NUMBERS(x)) {
  const Axis axes[] = {AXIS(z), AXIS(y), AXIS(x)};
  Pooling pooling = {GREATEST, (int)type, data, output, channels, axes, 0};
  share_pool(&pooling, batch);
}

void tvmconv_network_mean_pool(int64_t divisor, int64_t type, const void* data, void* output, int64_t batch, int64_t channels,
                               NUMBERS(z), NUMBERS(y), NUMBERS(x)) {
  const Axis axes[] = {AXIS(z), AXIS(y), AXIS(x)};
  Pooling pooling = {MEAN, (int)type, data, output, channels, axes, divisor};
  share_pool(&pooling, batch);
}
