/* Attention of a network, by its call's threads: for each query the mean of values, weighted by e to the power of its product with
 * their keys. Compiled for the widest vectors of the CPU that the network is for.
 *
 * Keys come in blocks. The scores of one block, of a few queries, stay in the cache: powers are of their differences to
 * the greatest score so far, and a factor rescales sums of the blocks before when it grows.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "parallel.h"
#include "vectors.h"

#define INLINE static inline __attribute__((always_inline))
#include "power.h"

/* Workspace of this thread, where there is room in what the plan lends; NULL with an error raised (launcher.c). */
extern void* (*__TVMBackendAllocWorkspace)(int device_type, int device_id, uint64_t bytes, int code, int bits);
extern int (*__TVMBackendFreeWorkspace)(int device_type, int device_id, void* block);

#define MASKS 2
#define BATCH_AXES 4
enum { F32_TYPE, BF16_TYPE, BOOL_TYPE };
enum { NO_MASK, ADDED, KEPT_WHERE, KEPT_WHERE_NOT };
#define ITEM(type) ((type) == F32_TYPE ? 4 : (type) == BF16_TYPE ? 2 : 1)

/* Strides of an operand, in elements: of each axis of the batch, of queries or keys, of the numbers of one. */
typedef struct {
  int64_t offset, batch[BATCH_AXES], row, column, type;
} Place;

/* A mask is added to scores, or keeps those where it is true, or false, and replaces the others by a number (`fill`, its bits). */
typedef struct {
  Place place; /* its rows are of queries, its columns of keys */
  int64_t kind, fill;
} Mask;

/* Numbers that `tvmconv/network/operators/attention.py` writes. Products are multiplied by a factor (its bits) and by an element of the scale for each index of
 * the batch. */
typedef struct {
  int64_t batch[BATCH_AXES], query_count, key_count, depth, width;
  Place queries, keys, values, output, scale;
  int64_t factor;
  Mask masks[MASKS];
  int64_t empty_is_zero; /* of queries all of whose keys are masked; else not a number */
} Numbers;

typedef struct {
  const Numbers* numbers;
  const char *queries, *masks[MASKS]; /* of this index of the batch */
  char* output;
  float scale;
  /* Of a block of keys. */
  const float *keys, *values;
  int64_t first_key, key_count, key_row, key_column, value_row, value_column;
  float *scores, *mask;
} Task;

INLINE float as_float(int64_t bits) {
  const int32_t low = (int32_t)bits;
  float value;
  memcpy(&value, &low, sizeof value);
  return value;
}

INLINE float number(int64_t type, const char* from) {
  if (type == F32_TYPE) {
    float value;
    memcpy(&value, from, sizeof value);
    return value;
  }
  if (type == BOOL_TYPE) return *(const uint8_t*)from != 0;
  uint16_t half;
  memcpy(&half, from, sizeof half);
  return as_float((int64_t)half << 16);
}

/* The most rows of a tile; of two vectors each, where there are 32 registers. */
#define MOST_ROWS 12
#ifdef __clang__
#define SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif
#define EACH4(m, s) m(0, s), m(1, s), m(2, s), m(3, s)
#define EACH8(m, s) EACH4(m, s), m(4, s), m(5, s), m(6, s), m(7, s)
#define EACH16(m, s) EACH8(m, s), m(8, s), m(9, s), m(10, s), m(11, s), m(12, s), m(13, s), m(14, s), m(15, s)

#if __BIGGEST_ALIGNMENT__ >= 64
#define WIDE 16
#define NARROW 8 /* of queries that are left */
#define OF_WIDE(x) x##_of_16
#define OF_NARROW(x) x##_of_8
#elif __BIGGEST_ALIGNMENT__ >= 32
#define WIDE 8
#define OF_WIDE(x) x##_of_8
#else
#define WIDE 4
#define OF_WIDE(x) x##_of_4
#endif
/* Rows of a tile of two vectors: 12 where there are 32 registers, 6 of 16. */
#define MOST_TWO (WIDE == 8 ? 6 : 12)

#if WIDE == 16
#define LANES 16
#define NAME(x) x##_of_16
#define EACH(m, s) EACH16(m, s)
#ifdef GREATER_OF_16
#define GREATER GREATER_OF_16
#endif
#include "operators/attention_block.h"
#endif
#if WIDE >= 8
#define LANES 8
#define NAME(x) x##_of_8
#define EACH(m, s) EACH8(m, s)
#ifdef GREATER_OF_8
#define GREATER GREATER_OF_8
#endif
#include "operators/attention_block.h"
#else
#define LANES 4
#define NAME(x) x##_of_4
#define EACH(m, s) EACH4(m, s)
#include "operators/attention_block.h"
#endif

/* Blocks of queries: of two wide vectors each; the rest is a block of two, or one of one and perhaps a narrow one. */
enum { TWO, ONE, FEW };

static int64_t count_blocks(int64_t queries) {
  const int64_t left = queries % (2 * WIDE);
  int64_t blocks = queries / (2 * WIDE) + (left > 0);
#ifdef NARROW
  blocks += left > WIDE && left <= WIDE + NARROW;
#endif
  return blocks;
}

/* Sets the first query of a block, and their number; returns its kind. */
static int find_block(int64_t queries, int64_t block, int64_t* first, int64_t* count) {
  *first = block * 2 * WIDE;
#ifdef NARROW
  if (*first >= queries) *first -= WIDE; /* a narrow one after one of one vector */
  const int64_t left = queries - *first;
  if (left <= NARROW) return *count = left, FEW;
  if (left <= WIDE + NARROW) return *count = left < WIDE ? left : WIDE, ONE;
#else
  const int64_t left = queries - *first;
  if (left <= WIDE) return *count = left, ONE;
#endif
  return *count = left < 2 * WIDE ? left : 2 * WIDE, TWO;
}

typedef struct {
  int64_t first, count;
  int kind;
  OF_WIDE(State) wide;
#ifdef NARROW
  OF_NARROW(State) narrow;
#endif
} Block;

#ifdef NARROW
#define IF_FEW(what) if (block->kind == FEW) { OF_NARROW(what)(task, 1, block->first, block->count, &block->narrow); return; }
#else
#define IF_FEW(what)
#endif
#define STEP(what)                                                                        \
  static __attribute__((noinline)) void what##_block(const Task* task, Block* block) {    \
    IF_FEW(what)                                                                          \
    if (block->kind == ONE)                                                               \
      OF_WIDE(what)(task, 1, block->first, block->count, &block->wide);                   \
    else                                                                                  \
      OF_WIDE(what)(task, 2, block->first, block->count, &block->wide);                   \
  }
STEP(begin)
STEP(go_on)
STEP(end)

/* The most keys of a block: their scores, of two vectors of queries, are 12 KiB. */
#define MOST_KEYS 96
/* The most blocks of queries of a task, which share copies; and the number of tasks wanted before blocks share a task. */
#define MOST_BLOCKS 4
#define TASKS 32
/* Distance of rows that share one set of the L1 cache. */
#define ALIAS_BYTES 4096
/* Products below which, in about 5 us, the caller's thread computes alone. */
#define FEW_PRODUCTS 200000

typedef struct {
  const Numbers* numbers;
  const char *queries, *keys, *values, *scale, *masks[MASKS];
  char* output;
  int64_t blocks, together, groups, block_keys;
  int copies_keys, copies_values;
} Call;

INLINE int64_t offset_of(const Numbers* numbers, const Place* place, int64_t index) {
  int64_t offset = place->offset;
  for (int axis = BATCH_AXES - 1; axis >= 0; axis--) {
    offset += index % numbers->batch[axis] * place->batch[axis];
    index /= numbers->batch[axis];
  }
  return offset * ITEM(place->type);
}

/* Returns the keys, or values, from `first` on, in place or copied to `room`, and sets the strides of rows and columns. */
static const float* block_of(const char* from, const Place* place, int64_t first, int64_t count, int64_t width, int copies,
                             float* room, int64_t* row, int64_t* column) {
  from += first * place->row * ITEM(place->type);
  *row = copies ? width : place->row;
  *column = copies ? 1 : place->column;
  if (!copies) return (const float*)from;
  for (int64_t r = 0; r < count; r++, from += place->row * ITEM(place->type), room += width)
    OF_WIDE(copy)(place->type, from, place->column, width, room);
  return room - count * width;
}

static int attend(void* context, int64_t index) {
  const Call* call = context;
  const Numbers* n = call->numbers;
  const int64_t batch = index / call->groups, first_block = index % call->groups * call->together;
  const int64_t blocks = call->blocks - first_block < call->together ? call->blocks - first_block : call->together;
  const int64_t lanes = 2 * WIDE, most = call->block_keys;
  const int64_t of_block = (n->depth + n->width) * lanes, copied = most * (n->depth * call->copies_keys + n->width * call->copies_values);
  const int64_t floats = 2 * most * lanes + blocks * of_block + copied;
  float* room = __TVMBackendAllocWorkspace(1, 0, (uint64_t)floats * sizeof(float), 2, 32);
  if (room == NULL) return -1;
  Task task = {.numbers = n, .queries = call->queries + offset_of(n, &n->queries, batch),
               .output = call->output + offset_of(n, &n->output, batch),
               .scale = as_float(n->factor) * number(n->scale.type, call->scale + offset_of(n, &n->scale, batch)),
               .scores = room, .mask = room + most * lanes};
  for (int mask = 0; mask < MASKS; mask++) task.masks[mask] = call->masks[mask] + offset_of(n, &n->masks[mask].place, batch);
  const char *keys = call->keys + offset_of(n, &n->keys, batch), *values = call->values + offset_of(n, &n->values, batch);
  float *own = room + 2 * most * lanes, *copies = own + blocks * of_block;
  Block block[MOST_BLOCKS];
  for (int64_t i = 0; i < blocks; i++, own += of_block) {
    block[i].kind = find_block(n->query_count, first_block + i, &block[i].first, &block[i].count);
    block[i].wide.queries = own;
    block[i].wide.outputs = own + n->depth * lanes;
#ifdef NARROW
    block[i].narrow.queries = own;
    block[i].narrow.outputs = own + n->depth * lanes;
#endif
    begin_block(&task, &block[i]);
  }
  for (int64_t first = 0; first < n->key_count; first += most) {
    task.first_key = first;
    task.key_count = n->key_count - first < most ? n->key_count - first : most;
    task.keys = block_of(keys, &n->keys, first, task.key_count, n->depth, call->copies_keys, copies, &task.key_row,
                         &task.key_column);
    task.values = block_of(values, &n->values, first, task.key_count, n->width, call->copies_values,
                           copies + most * n->depth * call->copies_keys, &task.value_row, &task.value_column);
    for (int64_t i = 0; i < blocks; i++) go_on_block(&task, &block[i]);
  }
  for (int64_t i = 0; i < blocks; i++) end_block(&task, &block[i]);
  __TVMBackendFreeWorkspace(1, 0, room);
  return 0;
}

INLINE int is_copied(const Place* place) {
  const int one = place->row == 1 || place->column == 1;
  const int64_t far = place->column == 1 ? place->row : place->column;
  return place->type != F32_TYPE || !one || far * (int64_t)sizeof(float) % ALIAS_BYTES == 0;
}

/* Returns 0, or -1 with an error raised. */
int tvmconv_network_attention(const void* numbers, const void* queries, const void* keys, const void* values, const void* scale,
                              const void* first_mask, const void* second_mask, void* output) {
  const Numbers* n = numbers;
  Call call = {.numbers = n, .queries = queries, .keys = keys, .values = values, .scale = scale,
               .masks = {first_mask, second_mask}, .output = output, .blocks = count_blocks(n->query_count),
               .copies_keys = is_copied(&n->keys), .copies_values = is_copied(&n->values)};
  int64_t batch = 1;
  for (int axis = 0; axis < BATCH_AXES; axis++) batch *= n->batch[axis];
  const int64_t most = batch * call.blocks / (call.copies_keys || call.copies_values ? TASKS / 4 : TASKS);
  call.together = most < 1 ? 1 : most > MOST_BLOCKS ? MOST_BLOCKS : most;
  call.groups = (call.blocks + call.together - 1) / call.together;
  const int64_t parts = (n->key_count + MOST_KEYS - 1) / MOST_KEYS;
  call.block_keys = (n->key_count + parts - 1) / parts;
  const int64_t tasks = batch * call.groups;
  if (batch * n->query_count * n->key_count * (n->depth + n->width) >= FEW_PRODUCTS) return tvmconv_share(tasks, attend, &call);
  int failed = 0;
  for (int64_t task = 0; task < tasks && !failed; task++) failed = attend(&call, task);
  return failed;
}
