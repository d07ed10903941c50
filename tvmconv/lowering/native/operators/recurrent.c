/* Steps of a recurrent layer in sequence, each with the product of the state and a matrix, by the call's threads.
 * Compiled for the widest vectors of the CPU that the network is for. Each sum is one chain, in the order of the state's numbers.
 */
#include "elements.h"
#include "parallel.h"
#include "power.h"

/* Workspace of this thread, where there is room in what the plan lends; NULL with an error raised (launcher.c). */
extern void* (*__TVMBackendAllocWorkspace)(int device_type, int device_id, uint64_t bytes, int code, int bits);
extern int (*__TVMBackendFreeWorkspace)(int device_type, int device_id, void* block);

enum { TANH, RELU, GRU, GRU_LINEAR, LSTM, LSTM_PROJECTED, LSTM_ROUNDED }; /* as in tvmconv/network/operators/recurrent.py */
static const int gates[] = {1, 1, 3, 3, 4, 4, 4};
/* Products of a part of a step, and numbers of its matrix, which are read from the L2 cache at best: below both, the caller's thread computes
 * alone, in about 3 us. Else the number of tasks, if the batch is large enough. */
enum { FEW_PRODUCTS = 120000, FEW_NUMBERS = 48000, TASKS = 32 };

DEFINE_POWER(power_within, F32, I32)

/* e**x, within 2e-7 of it from -88 to 88, beyond these that of the nearer one; NaN of NaN. */
INLINE F32 power(F32 x) {
  x = (F32)(((I32)x & ~(x < -88.0f)) | ((I32)((F32){} - 88.0f) & (x < -88.0f)));
  x = (F32)(((I32)x & ~(x > 88.0f)) | ((I32)((F32){} + 88.0f) & (x > 88.0f)));
  return power_within(x);
}

INLINE F32 logistic(F32 x) { return 1.0f / (1.0f + power(-x)); }
INLINE F32 hyperbolic(F32 x) { return 1.0f - 2.0f / (1.0f + power(x + x)); }

/* Adds rows of states times a panel of a matrix to sums. */
enum { PANEL = 64, PART = 16 }; /* as in recurrent.py */
#define NAME(x) x
#define V F32
#define MOST_ROWS 12
#define MOST_TWO (LANES == 8 ? 6 : 12)
#include "tiles.h"

#define PRODUCT(name, vectors)                                                                                     \
  static __attribute__((noinline)) void name(const float* state, int64_t far, const float* matrix, int64_t width, \
                                             int64_t terms, int64_t lines, float* sums, int64_t sums_far) {        \
    const F32 ones[2] = {(F32){} + 1.0f, (F32){} + 1.0f}; /* of sums that go on */                                 \
    product(vectors, state, far, 1, matrix, width, terms, lines, ones, sums, sums_far);                            \
  }
PRODUCT(by_one, 1)
PRODUCT(by_two, 2)

/* The same of one row: the sums of a whole panel hide each other's latency. */
static __attribute__((noinline)) void by_panel(const float* state, const float* matrix, int64_t terms, float* sums) {
  enum { VECTORS = PANEL / LANES };
  F32 sum[VECTORS];
#pragma GCC unroll 16
  for (int v = 0; v < VECTORS; v++) sum[v] = *(const F32*)(sums + v * LANES);
  for (int64_t k = 0; k < terms; k++, matrix += PANEL)
#pragma GCC unroll 16
    for (int v = 0; v < VECTORS; v++) sum[v] += state[k] * *(const F32*)(matrix + v * LANES);
#pragma GCC unroll 16
  for (int v = 0; v < VECTORS; v++) *(F32*)(sums + v * LANES) = sum[v];
}

static void add_product(const float* state, int64_t far, const float* matrix, int64_t width, int64_t terms, int64_t lines,
                        float* sums, int64_t sums_far) {
  if (lines == 1 && width == PANEL) {
    by_panel(state, matrix, terms, sums);
    return;
  }
  int64_t column = 0;
  for (; column + 2 * LANES <= width; column += 2 * LANES)
    by_two(state, far, matrix + column, width, terms, lines, sums + column, sums_far);
  if (column < width) by_one(state, far, matrix + column, width, terms, lines, sums + column, sums_far);
}

typedef struct {
  int kind, backward;
  const float *rows, *matrix, *more, *first, *first_cell;
  float *output, *last_cell;
  int64_t steps, batch, size, width; /* numbers of a cell, and of a state */
  int64_t room, state_room; /* the same in whole parts, with zeros in the matrix beyond the size */
  int64_t panels, state_panels, lines; /* a task is a panel of units, of so many of the batch */
  /* Of each of the batch: the sums of its gates; its cell; GRU_LINEAR's addend of the last gate; the operand of GRU's last gate, of a
   * projection and of LSTM_ROUNDED; its state, and the next one. */
  float *sums, *cell, *added, *other, *state, *next;
  int64_t step;
} Layer;

INLINE F32 at(const float* from, int64_t place) { return *(const F32*)(from + place); }

/* Computes some units of a state, and of a cell, from the sums of the gates; `added` is GRU_LINEAR's product of the state for the last gate. */
static void mix(const Layer* l, int64_t units, const float* sums, const float* added, const float* before, float* state, float* cell) {
  for (int64_t i = 0; i < units; i += LANES) {
    F32 made = at(sums, i);
    if (l->kind == TANH) made = hyperbolic(made);
    if (l->kind == RELU) made = (F32)((I32)made & ~(made < 0.0f));
    if (l->kind == GRU || l->kind == GRU_LINEAR) {
      const F32 update = logistic(made);
      F32 of_last = at(sums, 2 * l->room + i);
      if (l->kind == GRU_LINEAR) of_last += logistic(at(sums, l->room + i)) * at(added, i);
      const F32 fresh = hyperbolic(of_last);
      made = fresh + update * (at(before, i) - fresh);
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

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The rows of the batch, and the units or numbers of a state, that a task computes. */
typedef struct {
  int64_t row, rows, unit, units, width; /* its panel has room for `width` */
} Task;

static Task task_of(const Layer* l, int64_t index, int64_t panels, int64_t size, int64_t room) {
  const int64_t row = index / panels * l->lines, unit = index % panels * PANEL;
  return (Task){row, least(l->lines, l->batch - row), unit, least(PANEL, size - unit), least(PANEL, room - unit)};
}

static float* output_of(const Layer* l, int64_t row) {
  return l->output + ((l->backward ? l->steps - 1 - l->step : l->step) * l->batch + row) * l->width;
}

/* Sums up a gate: the inputs' share, or GRU_LINEAR's bias, and the product of the states. */
static void sum_gate(const Layer* l, const Task* t, int gate, const float* states, int64_t far) {
  const int64_t parts = gates[l->kind], place = (l->backward ? l->steps - 1 - l->step : l->step) * l->batch;
  const int apart = l->kind == GRU_LINEAR && gate == 2;
  const size_t bytes = (size_t)t->units * sizeof(float);
  float* sums = l->sums + t->row * parts * l->room + gate * l->room + t->unit;
  float* added = l->added + t->row * l->room + t->unit;
  for (int64_t i = 0; i < t->rows; i++) {
    memcpy(sums + i * parts * l->room, l->rows + ((place + t->row + i) * parts + gate) * l->size + t->unit, bytes);
    if (apart) memcpy(added + i * l->room, l->more + t->unit, bytes);
  }
  const float* matrix = l->matrix + (gate * l->room + t->unit) * l->width;
  add_product(states + t->row * far, far, matrix, t->width, l->width, t->rows, apart ? added : sums, apart ? l->room : parts * l->room);
}

/* Computes units of a state, and of a cell, from the sums of the gates, and writes them to the output. */
static void finish(const Layer* l, const Task* t) {
  const int64_t parts = gates[l->kind];
  const int is_projected = l->kind == LSTM_PROJECTED;
  for (int64_t row = t->row; row < t->row + t->rows; row++) {
    const int64_t at_size = row * l->room + t->unit, at_state = row * l->state_room + t->unit;
    float* made = is_projected ? l->other + at_size : l->next + at_state;
    mix(l, t->units, l->sums + row * parts * l->room + t->unit, l->added + at_size, l->state + (is_projected ? 0 : at_state), made,
        l->cell + at_size);
    if (!is_projected) memcpy(output_of(l, row) + t->unit, made, (size_t)t->units * sizeof(float));
  }
}

/* Computes the gates that read the state; the rest of GRU and LSTM_PROJECTED needs all units of these. */
static int take_state(void* context, int64_t index) {
  const Layer* l = context;
  const Task t = task_of(l, index, l->panels, l->size, l->room);
  const int parts = l->kind == GRU ? 2 : gates[l->kind];
  const float* states = l->kind == LSTM_ROUNDED ? l->other : l->state;
  for (int gate = 0; gate < parts; gate++) sum_gate(l, &t, gate, states, l->state_room);
  if (l->kind != GRU) {
    finish(l, &t);
    return 0;
  }
  for (int64_t row = t.row; row < t.row + t.rows; row++)
    for (int64_t i = t.unit; i < t.unit + t.units; i += LANES)
      *(F32*)(l->other + row * l->room + i) =
          logistic(at(l->sums, (3 * row + 1) * l->room + i)) * at(l->state, row * l->state_room + i);
  return 0;
}

static int finish_gru(void* context, int64_t index) {
  const Layer* l = context;
  const Task t = task_of(l, index, l->panels, l->size, l->room);
  sum_gate(l, &t, 2, l->other, l->room);
  finish(l, &t);
  return 0;
}

static int project(void* context, int64_t index) {
  const Layer* l = context;
  const Task t = task_of(l, index, l->state_panels, l->width, l->state_room);
  float* made = l->next + t.row * l->state_room + t.unit;
  for (int64_t i = 0; i < t.rows; i++) memset(made + i * l->state_room, 0, (size_t)t.width * sizeof(float));
  add_product(l->other + t.row * l->room, l->room, l->more + t.unit * l->size, t.width, l->size, t.rows, made, l->state_room);
  for (int64_t i = 0; i < t.rows; i++)
    memcpy(output_of(l, t.row + i) + t.unit, made + i * l->state_room, (size_t)t.units * sizeof(float));
  return 0;
}

/* Rounds the states of a step to 256 numbers from the least, or 0, to the greatest, or 0, as DynamicQuantizeLinear does. */
static void round_states(const Layer* l) {
  const float whole = 12582912.0f; /* 1.5 * 2**23: a sum with it is rounded to a whole number, the even one of two */
  const int64_t numbers = l->batch * l->state_room;
  float least = 0.0f, most = 0.0f;
  for (int64_t i = 0; i < numbers; i++) {
    least = l->state[i] < least ? l->state[i] : least;
    most = l->state[i] > most ? l->state[i] : most;
  }
  const float scale = most > least ? (most - least) / 255.0f : 1.0f, zero = (0.0f - least / scale + whole) - whole;
  for (int64_t i = 0; i < numbers; i += LANES) {
    F32 made = (at(l->state, i) / scale + whole) - whole;
    made = SELECT(made > 255.0f - zero, (F32){} + (255.0f - zero), made);
    *(F32*)(l->other + i) = SELECT(made < 0.0f - zero, (F32){} - zero, made) * scale;
  }
}

/* Runs the tasks of a part of a step, with a matrix of so many numbers. */
static int run(Layer* l, Body body, int64_t panels, int64_t numbers) {
  const int64_t tasks = panels * ((l->batch + l->lines - 1) / l->lines);
  if (tasks > 1 && (numbers >= FEW_NUMBERS || numbers * l->batch >= FEW_PRODUCTS)) return tvmconv_share(tasks, body, l);
  for (int64_t task = 0; task < tasks; task++) body(l, task);
  return 0;
}

static int walk(Layer* l) {
  const int64_t numbers = l->size * l->width; /* of a gate's matrix, or of a projection */
  for (l->step = 0; l->step < l->steps; l->step++) {
    if (l->kind == LSTM_ROUNDED) round_states(l);
    if (run(l, take_state, l->panels, numbers * (l->kind == GRU ? 2 : gates[l->kind]))) return -1;
    if (l->kind == GRU && run(l, finish_gru, l->panels, numbers)) return -1;
    if (l->kind == LSTM_PROJECTED && run(l, project, l->state_panels, numbers)) return -1;
    float* made = l->next;
    l->next = l->state, l->state = made;
  }
  return 0;
}

/* Whole parts of some numbers, and panels. */
INLINE int64_t room_of(int64_t numbers) { return (numbers + PART - 1) / PART * PART; }
INLINE int64_t panels_of(int64_t numbers) { return (numbers + PANEL - 1) / PANEL; }

/* Returns 0, or -1 with an error raised. `rows` are the sums of the inputs of each step, of each of the batch, gate by gate; `matrix` has
 * panels of columns of each gate; `more` is what GRU_LINEAR adds to the product of its last gate, or the matrix of LSTM_PROJECTED, as panels.
 * A cell has `size` numbers, a state `width`. Arrays that a kind lacks are not read. */
int tvmconv_network_recurrent(const void* rows, const void* matrix, const void* more, const void* first, const void* first_cell,
                              void* output, void* last_cell, int64_t kind, int64_t backward, int64_t steps, int64_t batch,
                              int64_t size, int64_t width) {
  Layer l = {(int)kind, (int)backward, rows, matrix, more, first, first_cell, output, last_cell,
             steps, batch, size, width, room_of(size), room_of(width), panels_of(size), panels_of(width), batch};
  const int64_t blocks = least((batch + MOST_TWO - 1) / MOST_TWO, (TASKS + l.panels - 1) / l.panels);
  l.lines = (batch + blocks - 1) / blocks;
  const int64_t of_size = batch * l.room, of_state = batch * l.state_room;
  const uint64_t bytes = (uint64_t)((gates[kind] + 3) * of_size + 2 * of_state) * sizeof(float);
  l.sums = __TVMBackendAllocWorkspace(1, 0, bytes, 2, 32);
  if (l.sums == NULL) return -1;
  memset(l.sums, 0, bytes);
  l.cell = l.sums + gates[kind] * of_size, l.added = l.cell + of_size, l.other = l.added + of_size;
  l.state = l.other + of_size, l.next = l.state + of_state;
  for (int64_t row = 0; row < batch; row++) {
    memcpy(l.state + row * l.state_room, l.first + row * width, (size_t)width * sizeof(float));
    if (kind >= LSTM) memcpy(l.cell + row * l.room, l.first_cell + row * size, (size_t)size * sizeof(float));
  }
  const int failed = walk(&l);
  for (int64_t row = 0; kind >= LSTM && row < batch; row++)
    memcpy(l.last_cell + row * size, l.cell + row * l.room, (size_t)size * sizeof(float));
  __TVMBackendFreeWorkspace(1, 0, l.sums);
  return failed;
}
