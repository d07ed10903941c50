/* Windows along the last axes of a network's tensors, by its call's threads: pools and resizes of f32 or bf16, channels first.
 *
 * Windows of several axes are reduced axis by axis: for each row of outputs, first the rows that its windows meet, by whole
 * vectors, and then the columns of the result. Compiled for the widest vectors of the CPU that the network is for.
 */
#include <math.h>
#include <stddef.h>

#include "parallel.h"
#include "elements.h"

/* Reductions of a window: its maximum, its sum by a number, its sum by weights; its maximum where some elements may be NaN. */
enum { GREATEST, MEAN, WEIGHTED, KEEPING };
/* Columns that a tap reads for neighbouring outputs: adjacent, strided, or by a table. */
enum { NEXT, APART, TABLE };
/* Rows that are computed together, and the most columns that they are computed from at a time, on the stack of a thread. */
#define ROWS 8
/* So few rows are computed one by one. */
#define FEW_ROWS 2
/* Columns up to so many pairs of vectors apart are picked by shuffles. */
#define MOST_PAIRS 8
#define MOST_COLUMNS 4096
#define SLACK 64 /* behind them, which whole vectors read */
/* So few elements take about 10 us: the caller's thread alone. */
#define FEW 65536

/* One axis: output i has `taps` inputs. */
typedef struct {
  int64_t inputs, outputs, taps;
  const int32_t* places; /* input of each tap and output; -1: outside */
  const float* factors;  /* weight of each tap and output; of a mean the divisor of each output */
} Axis;

typedef struct {
  const char *data, *end;
  char* output;
  Axis axes[3];
  int64_t pad, stride, dilation; /* of columns, but of a table */
  int64_t rows, columns;         /* outputs of a task */
  int kind, type, how;
} Windows;

/* Reduction of no element. */
#define OUTSIDE(kind) ((kind) == GREATEST || (kind) == KEEPING ? -INFINITY : 0)
#define NOTHING(kind) ((F32){} + (float)OUTSIDE(kind))
/* Reduction with one more element, by a weight that is a number or a vector. */
#define COMBINED(so_far, value, weight, kind)                                                                              \
  ((kind) == GREATEST ? (U32)greater_number(so_far, value)                                                                 \
   : (kind) == KEEPING ? (U32)greater(so_far, value)                                                                       \
   : (kind) == MEAN ? (U32)((so_far) + (value)) : (U32)((so_far) + (value) * (weight)))

/* Reduces rows to some vectors from a column on, or to a partial one; of the maximum, `poison` becomes NaN where an element is NaN or
 * infinite. */
INLINE void down_vectors(const char* const* rows, const float* weights, int64_t taps, int64_t column, F32* poison, float* to,
                         int many, int64_t left, int kind, int type) {
  F32 made[4], found[4];
#pragma GCC unroll 4
  for (int each = 0; each < many; each++) made[each] = NOTHING(kind), found[each] = (F32){};
  for (int64_t tap = 0; tap < taps; tap++) {
    const char* from = rows[tap] + column * SIZE(type);
#pragma GCC unroll 4
    for (int each = 0; each < many; each++) {
      const F32 value = left < LANES ? load_some(from, left, type) : load(from + each * LANES * SIZE(type), type);
      made[each] = (F32)COMBINED(made[each], value, weights[tap], kind);
      if (kind == GREATEST) found[each] += value * 0;
    }
  }
#pragma GCC unroll 4
  for (int each = 0; each < many; each++) ((F32*)(to + column))[each] = made[each];
  if (kind == GREATEST && many == 4) *poison += (found[0] + found[1]) + (found[2] + found[3]);
  if (kind == GREATEST && many == 2) *poison += found[0] + found[1];
  if (kind == GREATEST && many == 1) *poison += found[0];
}

/* Reduces a range of columns of rows; elements behind the last, up to a vector's end, are undefined. */
INLINE void down(const char* const* rows, const float* weights, int64_t taps, int64_t columns, const char* end, F32* poison,
                 float* to, int kind, int type) {
  const char* last = rows[0];
  for (int64_t tap = 1; tap < taps; tap++)
    if (rows[tap] > last) last = rows[tap];
  const int64_t readable = (end - last) / SIZE(type);
  int64_t column = 0;
  F32 found = *poison;
  for (; column + 2 * LANES < columns && column + 4 * LANES <= readable; column += 4 * LANES)
    down_vectors(rows, weights, taps, column, &found, to, 4, LANES, kind, type);
  for (; column + LANES < columns && column + 2 * LANES <= readable; column += 2 * LANES)
    down_vectors(rows, weights, taps, column, &found, to, 2, LANES, kind, type);
  for (; column < columns && column + LANES <= readable; column += LANES)
    down_vectors(rows, weights, taps, column, &found, to, 1, LANES, kind, type);
  if (column < columns)
    down_vectors(rows, weights, taps, column, &found, to, 1, columns - column, kind, type);
  *poison = found;
}

/* Gathers the elements `numbers` behind `from`, all below `beyond`, from one vector, a pair, or some pairs of vectors. */
INLINE F32 picked(const float* from, I32 numbers, int64_t beyond) {
  F32 made;
#ifndef __clang__ /* has no such shuffle */
  const F32* vectors = (const F32*)from;
  if (beyond <= LANES) return __builtin_shuffle(vectors[0], numbers);
  if (beyond <= MOST_PAIRS * 2 * LANES) {
    made = __builtin_shuffle(vectors[0], vectors[1], numbers);
    for (int64_t begin = 2 * LANES; begin < beyond; begin += 2 * LANES) {
      vectors += 2;
      made = SELECT(numbers >= (int32_t)begin, __builtin_shuffle(vectors[0], vectors[1], numbers), made);
    }
    return made;
  }
#endif
  for (int lane = 0; lane < LANES; lane++) made[lane] = from[numbers[lane]];
  return made;
}

/* Reduces further the result of each row by the elements that `picked` gathers from it. */
INLINE void bring(F32* made, const float* from, int64_t width, I32 numbers, int64_t beyond, F32 weights, int rows, int kind) {
#pragma GCC unroll 8
  for (int each = 0; each < rows; each++) {
    const F32 value = picked(from + each * width, numbers, beyond);
    made[each] = (F32)COMBINED(made[each], value, weights, kind);
  }
}

/* Outputs `from` to `beyond` of some rows, whose columns from `base` on are at `columns`, each row `width` from the one before. */
INLINE void across(const Windows* windows, const float* columns, int64_t width, int64_t base, int64_t from, int64_t beyond,
                   const float* divisors, float* to, int64_t row, int64_t stored, int rows, int kind, int how) {
  const Axis* axis = &windows->axes[2];
  const int64_t padded = axis->outputs + SLACK, stride = how == NEXT ? 1 : windows->stride;
  I32 lanes;
  for (int lane = 0; lane < LANES; lane++) lanes[lane] = lane;
  for (int64_t x = from; x < beyond; x += LANES) {
    int64_t count = beyond - x;
    if (count < LANES && beyond - from >= LANES) x = beyond - LANES;
    count = count < LANES && beyond - from < LANES ? count : LANES;
    F32 made[ROWS];
#pragma GCC unroll 8
    for (int each = 0; each < rows; each++) made[each] = NOTHING(kind);
    for (int64_t tap = 0; tap < axis->taps; tap++) {
      const float* first = columns + (how == TABLE ? 0 : x * stride - windows->pad - base + tap * windows->dilation);
      F32 weights = {};
      I32 places = lanes * (int32_t)stride;
      int64_t last = (count - 1) * stride;
      if (how == TABLE) {
        const int32_t* at = axis->places + tap * padded + x;
        first += *at - base;
        places = *(const I32*)at - *at;
        last = at[count - 1] - *at;
        if (kind == WEIGHTED) weights = *(const F32*)(axis->factors + tap * padded + x);
      }
      if (count < LANES) places = (I32)SELECT(places > (int32_t)last, (I32){} + (int32_t)last, places);
      if (how == NEXT) {
#pragma GCC unroll 8
        for (int each = 0; each < rows; each++)
          made[each] = (F32)COMBINED(made[each], *(const F32*)(first + each * width), weights, kind);
      } else if (last < LANES) {
        bring(made, first, width, places, LANES, weights, rows, kind);
      } else if (last < 2 * LANES) {
        bring(made, first, width, places, 2 * LANES, weights, rows, kind);
      } else {
        bring(made, first, width, places, last + 1, weights, rows, kind);
      }
    }
#pragma GCC unroll 8
    for (int each = 0; each < rows; each++) {
      if (each == stored) break;
      if (kind == MEAN) made[each] /= divisors[each] * *(const F32*)(axis->factors + x);
      char* at = (char*)(to + each * row + x - from);
      if (count == LANES)
        store(at, made[each], WHOLE);
      else
        store_some(at, made[each], count, WHOLE);
    }
  }
}

/* Returns the first of the columns that some outputs read; sets `count` to their number. */
static int64_t columns_of(const Windows* windows, int64_t from, int64_t beyond, int64_t* count) {
  const Axis* axis = &windows->axes[2];
  if (windows->how != TABLE) {
    *count = (beyond - 1 - from) * windows->stride + (axis->taps - 1) * windows->dilation + 1;
    return from * windows->stride - windows->pad;
  }
  int32_t first = INT32_MAX, last = 0;
  for (int64_t tap = 0; tap < axis->taps; tap++) { /* places grow with outputs */
    const int32_t* places = axis->places + tap * (axis->outputs + SLACK);
    if (places[from] < first) first = places[from];
    if (places[beyond - 1] > last) last = places[beyond - 1];
  }
  *count = last - first + 1;
  return first;
}

typedef void Down(const char* const* rows, const float* weights, int64_t taps, int64_t columns, const char* end, F32* poison,
                  float* to);
typedef void Across(const Windows* windows, const float* columns, int64_t width, int64_t base, int64_t from, int64_t beyond,
                    const float* divisors, float* to, int64_t row, int64_t stored);

/* Functions for the arguments that are known when a network is compiled. */
#define DOWN(kind, type)                                                                                                \
  static void down_##kind##_##type(const char* const* rows, const float* weights, int64_t taps, int64_t columns,        \
                                   const char* end, F32* poison, float* to) {                                           \
    down(rows, weights, taps, columns, end, poison, to, kind, type);                                                    \
  }
#define ACROSS(kind, how, rows)                                                                                         \
  static void across_##kind##_##how##_##rows(const Windows* windows, const float* columns, int64_t width, int64_t base, \
                                             int64_t from, int64_t beyond, const float* divisors, float* to, int64_t row,    \
                                             int64_t stored) {                                                          \
    across(windows, columns, width, base, from, beyond, divisors, to, row, stored, rows, kind, how);                            \
  }
#ifdef WHOLE_ALONE
#define EACH_DOWN(kind) DOWN(kind, WHOLE)
#define BY_TYPE(kind) {down_##kind##_WHOLE}
#else
#define EACH_DOWN(kind) DOWN(kind, WHOLE) DOWN(kind, HALF)
#define BY_TYPE(kind) {down_##kind##_WHOLE, down_##kind##_HALF}
#endif
#define EACH_ACROSS(kind, how) ACROSS(kind, how, 1) ACROSS(kind, how, 8)
#define ROWS_OF(kind, how) {across_##kind##_##how##_1, across_##kind##_##how##_8}
EACH_DOWN(GREATEST) EACH_DOWN(KEEPING) EACH_DOWN(MEAN) EACH_DOWN(WEIGHTED)
EACH_ACROSS(GREATEST, NEXT) EACH_ACROSS(GREATEST, APART) EACH_ACROSS(GREATEST, TABLE)
EACH_ACROSS(KEEPING, NEXT) EACH_ACROSS(KEEPING, APART) EACH_ACROSS(KEEPING, TABLE)
EACH_ACROSS(MEAN, NEXT) EACH_ACROSS(MEAN, APART) EACH_ACROSS(WEIGHTED, TABLE)

static Down* const downs[][2] = {
    [GREATEST] = BY_TYPE(GREATEST),
    [KEEPING] = BY_TYPE(KEEPING),
    [MEAN] = BY_TYPE(MEAN),
    [WEIGHTED] = BY_TYPE(WEIGHTED),
};
static Across* const acrosses[][3][2] = {
    [GREATEST] = {ROWS_OF(GREATEST, NEXT), ROWS_OF(GREATEST, APART), ROWS_OF(GREATEST, TABLE)},
    [KEEPING] = {ROWS_OF(KEEPING, NEXT), ROWS_OF(KEEPING, APART), ROWS_OF(KEEPING, TABLE)},
    [MEAN] = {ROWS_OF(MEAN, NEXT), ROWS_OF(MEAN, APART)},
    [WEIGHTED] = {[TABLE] = ROWS_OF(WEIGHTED, TABLE)},
};

/* The part of a task that is computed together: columns from `base` on, those from `first` to before `last` inside the data. */
typedef struct {
  const char* data; /* of the image */
  int64_t z, from, beyond, base, width, first, last;
} Part;

/* Reduces the rows of some outputs to `columns`; returns, of the maximum, whether all elements are finite. */
static int rows_down(const Windows* windows, const Part* part, int64_t y, int64_t together, int kind, float* columns) {
  const Axis *planes = &windows->axes[0], *lines = &windows->axes[1];
  const int64_t pixels = windows->axes[2].inputs, size = SIZE(windows->type);
  const char* rows[planes->taps * lines->taps];
  float weights[planes->taps * lines->taps];
  F32 poison = {};
  for (int64_t each = 0; each < together; each++) {
    float* to = columns + each * part->width - part->base;
    int64_t taps = 0;
    for (int64_t above = 0; above < planes->taps; above++) {
      const int64_t plane = above * planes->outputs + part->z, depth = planes->places[plane];
      for (int64_t tap = 0; tap < lines->taps && depth >= 0; tap++) {
        const int64_t place = tap * lines->outputs + y + each, line = lines->places[place];
        if (line < 0) continue;
        weights[taps] = kind == WEIGHTED ? planes->factors[plane] * lines->factors[place] : 1;
        rows[taps++] = part->data + ((depth * lines->inputs + line) * pixels + part->first) * size;
      }
    }
    if (taps)
      downs[kind][windows->type](rows, weights, taps, part->last - part->first, windows->end, &poison, to + part->first);
    else
      for (int64_t column = part->first; column < part->last; column++) to[column] = OUTSIDE(kind);
    for (int64_t column = part->base; column < part->first; column++) to[column] = OUTSIDE(kind);
    for (int64_t column = part->last; column < part->base + part->width - SLACK; column++) to[column] = OUTSIDE(kind);
  }
  return is_finite(poison);
}

static int task_of(void* context, int64_t task) {
  const Windows* windows = context;
  const int type = windows->type;
  const Axis *planes = &windows->axes[0], *lines = &windows->axes[1], *axis = &windows->axes[2];
  const int64_t blocks = (axis->outputs + windows->columns - 1) / windows->columns;
  const int64_t heights = (lines->outputs + windows->rows - 1) / windows->rows;
  const int64_t from = task % blocks * windows->columns, top = task / blocks % heights * windows->rows;
  const int64_t plane = task / blocks / heights, image = planes->inputs * lines->inputs * axis->inputs * SIZE(type);
  const int64_t bottom = top + windows->rows < lines->outputs ? top + windows->rows : lines->outputs;
  const int64_t beyond = from + windows->columns < axis->outputs ? from + windows->columns : axis->outputs;
  int64_t count;
  const int64_t base = columns_of(windows, from, beyond, &count), end = base + count;
  const Part part = {windows->data + plane / planes->outputs * image, plane % planes->outputs, from, beyond, base, count + SLACK,
                     base > 0 ? base : 0, end < axis->inputs ? end : axis->inputs};
  float columns[ROWS * part.width] __attribute__((aligned(BYTES))), made[type == HALF ? ROWS * (beyond - from) : 1];
  for (int64_t y = top; y < bottom; y += ROWS) {
    const int64_t together = bottom - y < ROWS ? bottom - y : ROWS;
    int kind = windows->kind;
    if (!rows_down(windows, &part, y, together, kind, columns) && kind == GREATEST)
      rows_down(windows, &part, y, together, kind = KEEPING, columns);
    float divisors[ROWS] = {};
    for (int64_t each = 0; each < together && kind == MEAN; each++)
      divisors[each] = planes->factors[part.z] * lines->factors[y + each];
    char* output = windows->output + ((plane * lines->outputs + y) * axis->outputs + from) * SIZE(type);
    float* to = type == HALF ? made : (float*)output;
    const int64_t row = type == HALF ? beyond - from : axis->outputs;
    Across* const* by = acrosses[kind][windows->how];
    if (together > FEW_ROWS)
      by[1](windows, columns, part.width, base, from, beyond, divisors, to, row, together);
    else
      for (int64_t each = 0; each < together; each++)
        by[0](windows, columns + each * part.width, part.width, base, from, beyond, divisors + each, to + each * row, row, 1);
    for (int64_t each = 0; each < together && type == HALF; each++)
      narrow_row(made + each * row, row, output + each * axis->outputs * SIZE(type));
  }
  return 0;
}

/* `places` and `factors` have those of each axis in turn, by taps; columns have SLACK more, and means have factors for one tap
 * alone. `stride` is 0 where columns have a table. */
void tvmconv_network_windows(const int32_t* places, const float* factors, const void* data, void* output, int64_t kind,
                             int64_t type, int64_t images, int64_t z_in, int64_t z_out, int64_t z_taps, int64_t y_in,
                             int64_t y_out, int64_t y_taps, int64_t x_in, int64_t x_out, int64_t x_taps, int64_t pad,
                             int64_t stride, int64_t dilation, int64_t rows, int64_t columns) {
  const int64_t weighted = kind == WEIGHTED;
  const int64_t z_factors = z_out * (weighted ? z_taps : 1), y_factors = y_out * (weighted ? y_taps : 1);
  Windows windows = {
      .data = data,
      .end = (const char*)data + images * z_in * y_in * x_in * SIZE(type),
      .output = output,
      .axes = {{z_in, z_out, z_taps, places, factors},
               {y_in, y_out, y_taps, places + z_out * z_taps, factors + z_factors},
               {x_in, x_out, x_taps, places + z_out * z_taps + y_out * y_taps, factors + z_factors + y_factors}},
      .pad = pad,
      .stride = stride,
      .dilation = dilation,
      .rows = rows,
      .columns = columns,
      .kind = (int)kind,
      .type = (int)type,
      .how = stride > 1 ? APART : stride ? NEXT : TABLE,
  };
  const int64_t tasks = images * z_out * ((y_out + rows - 1) / rows) * ((x_out + columns - 1) / columns);
  if (images * z_out * y_out * x_out * (z_taps * y_taps + x_taps) >= FEW)
    tvmconv_share(tasks, task_of, &windows);
  else
    for (int64_t task = 0; task < tasks; task++) task_of(&windows, task);
}
