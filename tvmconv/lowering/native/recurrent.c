/* The steps of a recurrent layer, one after the other, each with the product of its state; by its call's threads, of each of the batch one.
 * Compiled for the widest vectors of the CPU that the network is for. Each sum is one chain, in the order of the state's numbers.
 */
#include "elements.h"
#include "parallel.h"
#include "power.h"

/* Workspace of this thread, where there is room in what the plan lends; NULL with an error raised (launcher.c). */
extern void* (*__TVMBackendAllocWorkspace)(int device_type, int device_id, uint64_t bytes, int code, int bits);
extern int (*__TVMBackendFreeWorkspace)(int device_type, int device_id, void* block);

enum { TANH, RELU, GRU, GRU_LINEAR, LSTM, LSTM_PROJECTED }; /* as in tvmconv/network/operators/recurrent.py */
static const int gates[] = {1, 1, 3, 3, 4, 4};
/* Products below which, in about 5 us, the caller's thread computes alone. */
#define FEW_PRODUCTS 200000

DEFINE_POWER(power_within, F32, I32)

/* e**x, within 2e-7 of it from -88 to 88, beyond that of these; of not a number that. */
INLINE F32 power(F32 x) {
  x = (F32)(((I32)x & ~(x < -88.0f)) | ((I32)((F32){} - 88.0f) & (x < -88.0f)));
  x = (F32)(((I32)x & ~(x > 88.0f)) | ((I32)((F32){} + 88.0f) & (x > 88.0f)));
  return power_within(x);
}

INLINE F32 logistic(F32 x) { return 1.0f / (1.0f + power(-x)); }
INLINE F32 hyperbolic(F32 x) { return 1.0f - 2.0f / (1.0f + power(x + x)); }

/* Adds a state times a gate's matrix, of panels of columns one behind the other, to sums. */
enum { PANEL = 64, PART = 16 }; /* as in recurrent.py */
#define SUMS(width)                                                                                              \
  do {                                                                                                           \
    F32 sum[width / LANES];                                                                                      \
    for (int i = 0; i < width / LANES; i++) sum[i] = *(const F32*)(sums + i * LANES);                            \
    for (int64_t k = 0; k < size; k++)                                                                           \
      for (int i = 0; i < width / LANES; i++) sum[i] += state[k] * *(const F32*)(matrix + k * far + i * LANES);  \
    for (int i = 0; i < width / LANES; i++) *(F32*)(sums + i * LANES) = sum[i];                                  \
  } while (0)
static void add_product(const float* state, const float* matrix, int64_t size, int64_t room, float* sums) {
  for (int64_t column = 0; column < room; column += PANEL, matrix += PANEL * (size - 1)) {
    const int64_t left = room - column, far = left < PANEL ? left : PANEL;
    if (far == PANEL) {
      SUMS(PANEL);
      matrix += PANEL, sums += PANEL;
      continue;
    }
    for (int64_t part = 0; part < far; part += PART, matrix += PART, sums += PART) SUMS(PART);
  }
}

typedef struct {
  int kind, backward;
  const float *rows, *matrix, *more, *first, *first_cell;
  float *output, *last_cell;
  int64_t steps, batch, size, width; /* numbers of a cell, and of a state */
  int64_t room, state_room; /* floats from gate to gate: whole parts, zeros in the matrix beyond the size; of states the same */
} Layer;

INLINE F32 at(const float* from, int64_t place) { return *(const F32*)(from + place); }

/* Makes a state of the sums of its gates, and a cell; `added` is of GRU_LINEAR what the state gave the last gate. */
static void mix(const Layer* l, const float* sums, const float* added, float* state, float* cell) {
  for (int64_t i = 0; i < l->size; i += LANES) {
    F32 made = at(sums, i);
    if (l->kind == TANH) made = hyperbolic(made);
    if (l->kind == RELU) made = (F32)((I32)made & ~(made < 0.0f));
    if (l->kind == GRU || l->kind == GRU_LINEAR) {
      const F32 update = logistic(made);
      F32 of_last = at(sums, 2 * l->room + i);
      if (l->kind == GRU_LINEAR) of_last += logistic(at(sums, l->room + i)) * at(added, i);
      const F32 fresh = hyperbolic(of_last);
      made = fresh + update * (at(state, i) - fresh);
    }
    if (l->kind >= LSTM) {
      const F32 kept = logistic(at(sums, 2 * l->room + i)) * at(cell, i);
      const F32 now = kept + logistic(made) * hyperbolic(at(sums, 3 * l->room + i));
      *(F32*)(cell + i) = now;
      made = logistic(at(sums, l->room + i)) * hyperbolic(now);
    }
    *(F32*)(state + i) = made;
  }
}

/* All steps of one of the batch. */
static int walk(void* context, int64_t of_batch) {
  const Layer* l = context;
  const int64_t size = l->size, room = l->room, bytes = size * (int64_t)sizeof(float);
  const int64_t of_state = l->width * (int64_t)sizeof(float);
  const int parts = gates[l->kind], has_cell = l->kind >= LSTM, is_projected = l->kind == LSTM_PROJECTED;
  const int64_t row = parts * size;
  const uint64_t all = (uint64_t)(7 * room + l->state_room) * sizeof(float);
  float* sums = __TVMBackendAllocWorkspace(1, 0, all, 2, 32);
  if (sums == NULL) return -1;
  float *cell = sums + 4 * room, *added = sums + 5 * room, *other = sums + 6 * room, *state = sums + 7 * room;
  memset(sums, 0, all);
  memcpy(state, l->first + of_batch * l->width, (size_t)of_state);
  if (has_cell) memcpy(cell, l->first_cell + of_batch * size, (size_t)bytes);
  for (int64_t step = 0; step < l->steps; step++) {
    const int64_t place = (l->backward ? l->steps - 1 - step : step) * l->batch + of_batch;
    for (int gate = 0; gate < parts; gate++) {
      const int apart = l->kind == GRU_LINEAR && gate == 2, after = l->kind == GRU && gate == 2;
      memcpy(sums + gate * room, l->rows + place * row + gate * size, (size_t)bytes);
      if (apart) memcpy(added, l->more, (size_t)bytes);
      if (after)
        for (int64_t i = 0; i < size; i += LANES) *(F32*)(other + i) = logistic(at(sums, room + i)) * at(state, i);
      const float* matrix = l->matrix + gate * room * l->width;
      add_product(after ? other : state, matrix, l->width, room, apart ? added : sums + gate * room);
    }
    mix(l, sums, added, is_projected ? other : state, cell);
    if (is_projected) {
      memset(state, 0, (size_t)l->state_room * sizeof(float));
      add_product(other, l->more, size, l->state_room, state);
    }
    memcpy(l->output + place * l->width, state, (size_t)of_state);
  }
  if (has_cell) memcpy(l->last_cell + of_batch * size, cell, (size_t)bytes);
  __TVMBackendFreeWorkspace(1, 0, sums);
  return 0;
}

/* Whole parts of some numbers. */
INLINE int64_t room_of(int64_t numbers) { return (numbers + PART - 1) / PART * PART; }

/* Returns 0, or -1 with an error raised. `rows` are the sums of the inputs of each step, of each of the batch, gate by gate; `matrix` has
 * panels of columns of each gate; `more` is what GRU_LINEAR adds to the product of its last gate, or the matrix of LSTM_PROJECTED, as panels.
 * A cell has `size` numbers, a state `width`. Arrays that a kind lacks are not read. */
int tvmconv_network_recurrent(const void* rows, const void* matrix, const void* more, const void* first, const void* first_cell,
                              void* output, void* last_cell, int64_t kind, int64_t backward, int64_t steps, int64_t batch,
                              int64_t size, int64_t width) {
  Layer layer = {(int)kind, (int)backward, rows, matrix, more, first, first_cell, output, last_cell,
                 steps, batch, size, width, room_of(size), room_of(width)};
  if (batch > 1 && steps * batch * gates[kind] * size * width >= FEW_PRODUCTS) return tvmconv_share(batch, walk, &layer);
  int failed = 0;
  for (int64_t each = 0; each < batch && !failed; each++) failed = walk(&layer, each);
  return failed;
}
