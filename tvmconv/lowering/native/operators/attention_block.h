/* Attention of a block of queries, by vectors of LANES of them: attention.c includes this once for each width of its vectors, with
 * NAME(x) as the name of x, EACH(m, s) as m(lane, s) of all lanes, and MOST_TWO as the most rows of a tile of two vectors.
 *
 * A lane is a query: the greatest score, the sum of powers and the rounding are computed lane by lane. Keys and values are read
 * number by number in place, and only queries and outputs are transposed.
 */
#define V NAME(F32)
#define I NAME(I32)
#include "tiles.h"
typedef int32_t I __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t NAME(U16) __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef uint8_t NAME(U8) __attribute__((vector_size(LANES), aligned(1), may_alias));

#define SELECT(condition, a, b) ((V)(((condition) & (I)(a)) | (~(condition) & (I)(b))))

/* The greater; the second, where either is NaN. */
INLINE V NAME(greater)(V a, V b) {
#ifdef GREATER
  return (V)GREATER(a, b);
#else
  return SELECT(a > b, a, b);
#endif
}

#define PRODUCT(name, vectors, row, step)                                                                                     \
  static __attribute__((noinline)) void NAME(name)(const float* a, int64_t far, const float* b, int64_t steps, int64_t rows, \
                                                   const V* factor, float* to) {                                            \
    NAME(product)(vectors, a, row, step, b, (vectors) * LANES, steps, rows, factor, to, (vectors) * LANES);                 \
  }
PRODUCT(two_by_step, 2, far, 1)
PRODUCT(two_by_row, 2, 1, far)
PRODUCT(one_by_step, 1, far, 1)
PRODUCT(one_by_row, 1, 1, far)
#undef PRODUCT

/* Multiplies by rows that are contiguous, or whose numbers are. */
INLINE void NAME(multiply)(int vectors, const float* a, int64_t row, int64_t step, const float* b, int64_t steps, int64_t rows,
                           const V* factor, float* to) {
  if (step == 1)
    (vectors == 2 ? NAME(two_by_step) : NAME(one_by_step))(a, row, b, steps, rows, factor, to);
  else
    (vectors == 2 ? NAME(two_by_row) : NAME(one_by_row))(a, step, b, steps, rows, factor, to);
}

DEFINE_POWER(NAME(power_within), V, I)

/* e**x of x up to 0, within 2e-7 of 1; below -88 it is 0, of NaN it is NaN. */
INLINE V NAME(power)(V x) { return NAME(power_within)(NAME(greater)((V){} - 88.0f, x)); }

/* Loads the vector of any type that begins at `from`. */
INLINE V NAME(load)(int type, const char* from) {
  if (type == F32_TYPE) return *(const V*)from;
  if (type == BF16_TYPE) return (V)(__builtin_convertvector(*(const NAME(U16)*)from, I) << 16);
  return __builtin_convertvector(__builtin_convertvector(*(const NAME(U8)*)from, I), V);
}

INLINE void NAME(store)(int type, char* to, V value) {
  if (type == F32_TYPE)
    *(V*)to = value;
  else {
    const I bits = (I)value, rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const I kept = (I)SELECT(value != value, (I){} + 0x7fc0, (rounded >> 16) & 0xffff);
    *(NAME(U16)*)to = __builtin_convertvector(kept, NAME(U16));
  }
}

/* Transposes: rows i and i + s of each square of 2s exchange the halves across its diagonal. */
INLINE void NAME(transpose)(V* rows) {
#define LOW(lane, s) ((lane) & (s) ? LANES + (lane) - (s) : (lane))
#define HIGH(lane, s) ((lane) & (s) ? LANES + (lane) : (lane) + (s))
#define STAGE(s)                                                      \
  if (s < LANES)                                                      \
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) if (!(i & s)) { \
      const V a = rows[i], b = rows[i | s];                           \
      rows[i] = SHUFFLE(I, a, b, EACH(LOW, s));                       \
      rows[i | s] = SHUFFLE(I, a, b, EACH(HIGH, s));                  \
    }
  STAGE(1)
  STAGE(2)
#if LANES > 4
  STAGE(4)
#endif
#if LANES > 8
  STAGE(8)
#endif
#undef STAGE
#undef LOW
#undef HIGH
}

/* to[c][r] = from[r][c] * factor, of `count` rows; the last is repeated in the remaining lanes. */
INLINE void NAME(pack_of)(int type, int vectors, const char* from, int64_t row, int64_t column, int64_t count, int64_t columns,
                          float factor, float* to) {
  const int64_t item = ITEM(type);
  for (int v = 0; v < vectors; v++, to += LANES) {
    const int64_t first = (int64_t)v * LANES, left = count - first;
    if (row == 1 && left >= LANES) {
      for (int64_t c = 0; c < columns; c++)
        *(V*)(to + c * vectors * LANES) = NAME(load)(type, from + (first + c * column) * item) * factor;
    } else if (row == 0) {
      for (int64_t c = 0; c < columns; c++)
        *(V*)(to + c * vectors * LANES) = (V){} + number(type, from + c * column * item) * factor;
    } else if (column == 1 && columns >= LANES) {
      for (int64_t c = 0; c < columns; c += LANES) {
        const int64_t at = c + LANES <= columns ? c : columns - LANES; /* the last ends with the columns */
        V rows[LANES];
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++)
          rows[r] = NAME(load)(type, from + ((r < left ? first + r : count - 1) * row + at) * item);
        NAME(transpose)(rows);
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++) *(V*)(to + (at + r) * vectors * LANES) = rows[r] * factor;
      }
    } else {
      for (int r = 0; r < LANES; r++)
        for (int64_t c = 0; c < columns; c++)
          to[c * vectors * LANES + r] =
              number(type, from + ((r < left ? first + r : count - 1) * row + c * column) * item) * factor;
    }
  }
}

static __attribute__((noinline)) void NAME(pack)(int64_t type, int vectors, const char* from, int64_t row, int64_t column,
                                                 int64_t count, int64_t columns, float factor, float* to) {
  if (type == F32_TYPE)
    NAME(pack_of)(F32_TYPE, vectors, from, row, column, count, columns, factor, to);
  else if (type == BF16_TYPE)
    NAME(pack_of)(BF16_TYPE, vectors, from, row, column, count, columns, factor, to);
  else
    NAME(pack_of)(BOOL_TYPE, vectors, from, row, column, count, columns, factor, to);
}

/* to[r][c] = from[c][r] * factor[r] */
INLINE void NAME(unpack_of)(int type, int vectors, const float* from, const V* factor, char* to, int64_t row, int64_t column,
                            int64_t count, int64_t columns) {
  const int64_t item = ITEM(type);
  for (int v = 0; v < vectors; v++, from += LANES) {
    const int64_t first = (int64_t)v * LANES, left = count - first;
    if (row == 1 && left >= LANES) {
      for (int64_t c = 0; c < columns; c++)
        NAME(store)(type, to + (first + c * column) * item, *(const V*)(from + c * vectors * LANES) * factor[v]);
    } else if (column == 1 && columns >= LANES) {
      for (int64_t c = 0; c < columns; c += LANES) {
        const int64_t at = c + LANES <= columns ? c : columns - LANES;
        V rows[LANES];
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++) rows[r] = *(const V*)(from + (at + r) * vectors * LANES) * factor[v];
        NAME(transpose)(rows);
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++)
          if (r < left) NAME(store)(type, to + ((first + r) * row + at) * item, rows[r]);
      }
    } else {
      for (int64_t c = 0; c < columns; c++) {
        const V made = *(const V*)(from + c * vectors * LANES) * factor[v];
        char room[4 * LANES];
        NAME(store)(type, room, made);
        for (int r = 0; r < LANES && r < left; r++)
          memcpy(to + ((first + r) * row + c * column) * item, room + r * item, (size_t)item);
      }
    }
  }
}

static __attribute__((noinline)) void NAME(unpack)(int64_t type, int vectors, const float* from, const V* factor, char* to,
                                                   int64_t row, int64_t column, int64_t count, int64_t columns) {
  if (type == F32_TYPE)
    NAME(unpack_of)(F32_TYPE, vectors, from, factor, to, row, column, count, columns);
  else
    NAME(unpack_of)(BF16_TYPE, vectors, from, factor, to, row, column, count, columns);
}

/* A row of keys or values, of any type, as f32. */
static inline void NAME(copy)(int64_t type, const char* from, int64_t column, int64_t width, float* to) {
  int64_t c = 0;
  if (column == 1 && type == F32_TYPE)
    for (; c + LANES <= width; c += LANES) *(V*)(to + c) = NAME(load)(F32_TYPE, from + c * ITEM(F32_TYPE));
  else if (column == 1)
    for (; c + LANES <= width; c += LANES) *(V*)(to + c) = NAME(load)(BF16_TYPE, from + c * ITEM(BF16_TYPE));
  for (; c < width; c++) to[c] = number(type, from + c * column * ITEM(type));
}

/* Applies a mask to the scores of a block of keys. */
static __attribute__((noinline)) void NAME(mask)(const Mask* mask, const float* by, float* scores, int64_t vectors) {
  const V fill = (V){} + as_float(mask->fill);
  for (int64_t i = 0; i < vectors * LANES; i += LANES) {
    const V score = *(const V*)(scores + i), with = *(const V*)(by + i);
    if (mask->kind == ADDED)
      *(V*)(scores + i) = score + with;
    else if (mask->kind == KEPT_WHERE)
      *(V*)(scores + i) = SELECT(with != 0, score, fill);
    else
      *(V*)(scores + i) = SELECT(with != 0, fill, score);
  }
}

/* Replaces the scores of a block of keys by e to the power of their differences to the greatest score of all blocks so far. */
INLINE void NAME(powers)(int vectors, float* scores, int64_t keys, V* greatest, V* total, V* factor) {
  V most[2], sums[2] = {{}, {}}, base[2];
  for (int v = 0; v < vectors; v++) most[v] = greatest[v];
  for (int64_t j = 0; j < keys; j++)
    for (int v = 0; v < vectors; v++) {
      const V score = *(const V*)(scores + (j * vectors + v) * LANES);
      most[v] = NAME(greater)(score, most[v]);
    }
  for (int v = 0; v < vectors; v++) {
    base[v] = SELECT(most[v] == -INFINITY, (V){}, most[v]); /* of nothing but masked scores powers are 0 */
    factor[v] = NAME(power)(greatest[v] - base[v]);
    greatest[v] = most[v];
  }
  for (int64_t j = 0; j < keys; j++)
    for (int v = 0; v < vectors; v++) {
      V* score = (V*)(scores + (j * vectors + v) * LANES);
      const V made = NAME(power)(*score - base[v]);
      sums[v] += made;
      *score = made;
    }
  for (int v = 0; v < vectors; v++) total[v] = total[v] * factor[v] + sums[v];
}

/* State of a block of queries after the keys before. */
typedef struct {
  float *queries, *outputs; /* transposed */
  V greatest[2], total[2];
} NAME(State);

INLINE void NAME(begin)(const Task* task, int vectors, int64_t first, int64_t count, NAME(State)* state) {
  const Numbers* n = task->numbers;
  NAME(pack)(n->queries.type, vectors, task->queries + first * n->queries.row * ITEM(n->queries.type), n->queries.row,
             n->queries.column, count, n->depth, task->scale, state->queries);
  for (int v = 0; v < 2; v++) state->greatest[v] = (V){} - INFINITY, state->total[v] = (V){};
}

INLINE void NAME(go_on)(const Task* task, int vectors, int64_t first, int64_t count, NAME(State)* state) {
  const Numbers* n = task->numbers;
  float* scores = task->scores;
  V factor[2];
  NAME(multiply)(vectors, task->keys, task->key_row, task->key_column, state->queries, n->depth, task->key_count, NULL, scores);
  for (const Mask* mask = n->masks; mask < n->masks + MASKS && mask->kind; mask++) {
    const Place* place = &mask->place;
    const char* from = task->masks[mask - n->masks] + (first * place->row + task->first_key * place->column) * ITEM(place->type);
    NAME(pack)(place->type, vectors, from, place->row, place->column, count, task->key_count, 1, task->mask);
    NAME(mask)(mask, task->mask, scores, task->key_count * vectors);
  }
  NAME(powers)(vectors, scores, task->key_count, state->greatest, state->total, factor);
  NAME(multiply)(vectors, task->values, task->value_column, task->value_row, scores, task->key_count, n->width,
                 task->first_key ? factor : NULL, state->outputs);
}

INLINE void NAME(end)(const Task* task, int vectors, int64_t first, int64_t count, NAME(State)* state) {
  const Numbers* n = task->numbers;
  V factor[2] = {{}, {}};
  for (int v = 0; v < vectors; v++) {
    factor[v] = 1 / state->total[v];
    if (n->empty_is_zero) factor[v] = SELECT(state->total[v] == 0, (V){} + 1, factor[v]);
  }
  NAME(unpack)(n->output.type, vectors, state->outputs, factor, task->output + first * n->output.row * ITEM(n->output.type),
               n->output.row, n->output.column, count, n->width);
}

#undef SELECT
#undef GREATER
#undef I
#undef V
#undef LANES
#undef NAME
#undef EACH
