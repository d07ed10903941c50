/* Products of two tensors of f32 that are both data of a network, of any extents, by its call's threads: rows of the left one times
 * columns of the right one, each sum in the order of its terms. Compiled for the widest vectors of the CPU that the network is for.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "parallel.h"

#define INLINE static inline __attribute__((always_inline))

/* Workspace of this thread, where there is room in what the plan lends; NULL with an error raised (launcher.c). */
extern void* (*__TVMBackendAllocWorkspace)(int device_type, int device_id, uint64_t bytes, int code, int bits);
extern int (*__TVMBackendFreeWorkspace)(int device_type, int device_id, void* block);

#if __BIGGEST_ALIGNMENT__ >= 64
#define LANES 16
#elif __BIGGEST_ALIGNMENT__ >= 32
#define LANES 8
#else
#define LANES 4
#endif
#define NAME(x) x
#define V F32
#define MOST_ROWS 12
/* Rows of a tile of two vectors: 12 where there are 32 registers, 6 of 16. */
#define MOST_TWO (LANES == 8 ? 6 : 12)
#include "tiles.h"

/* Columns that are computed together; the most terms, whose rows of these columns the L1 cache keeps (AVX2: 16 KiB); the most and
 * fewest rows of a task, and the number of tasks wanted; rows for which nothing is copied. */
enum { COLUMNS = 2 * LANES, MOST_TERMS = 256, MOST_LINES = 192, FEWEST_LINES = 24, TASKS = 32, FEW_LINES = 2 * MOST_TWO };
/* Products below which, in about 5 us, the caller's thread computes alone. */
#define FEW_PRODUCTS 200000

typedef struct {
  const float *left, *right;
  float* output;
  int64_t left_step, right_step; /* from one of the batch to the next; 0: all have the same */
  int64_t rows, terms, columns, lines, groups, panels;
} Call;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#define PRODUCT(name, vectors)                                                                                       \
  static __attribute__((noinline)) void name(const float* left, int64_t far, const float* right, int64_t right_far,  \
                                             int64_t terms, int64_t lines, const V* factor, float* to, int64_t to_far) { \
    product(vectors, left, far, 1, right, right_far, terms, lines, factor, to, to_far);                              \
  }
PRODUCT(by_one, 1)
PRODUCT(by_two, 2)

/* Multiplies some rows of the left one by two vectors of columns, or one. Rows of the right one that many rows use are copied to contiguous
 * memory, and the last columns to whole vectors, whose sums are in a copy, too. */
static int multiply(void* context, int64_t index) {
  const Call* c = context;
  const int64_t line = index % c->groups * c->lines, lines = least(c->rows - line, c->lines);
  index /= c->groups;
  const int64_t first = index % c->panels * COLUMNS, columns = least(c->columns - first, COLUMNS);
  index /= c->panels;
  const int64_t width = columns > LANES ? COLUMNS : LANES, terms_together = least(c->terms, MOST_TERMS);
  const int partial = columns < width, copies = partial || lines > FEW_LINES;
  const int64_t floats = (copies ? terms_together * width : 0) + (partial ? lines * width : 0);
  float* room = floats ? __TVMBackendAllocWorkspace(1, 0, (uint64_t)floats * sizeof(float), 2, 32) : NULL;
  if (floats && room == NULL) return -1;
  const float *left = c->left + index * c->left_step + line * c->terms, *right = c->right + index * c->right_step + first;
  float* output = c->output + (index * c->rows + line) * c->columns + first;
  float* sums = partial ? room + terms_together * width : output;
  const int64_t far = partial ? width : c->columns;
  const V ones[2] = {(V){} + 1.0f, (V){} + 1.0f}; /* of sums that go on */
  for (int64_t term = 0; term < c->terms; term += MOST_TERMS, right += MOST_TERMS * c->columns) {
    const int64_t terms = least(c->terms - term, MOST_TERMS);
    for (int64_t i = 0; copies && i < terms; i++) {
      if (partial) memset(room + (i + 1) * width - LANES, 0, LANES * sizeof(float));
      memcpy(room + i * width, right + i * c->columns, (size_t)columns * sizeof(float));
    }
    (width == COLUMNS ? by_two : by_one)(left + term, c->terms, copies ? room : right, copies ? width : c->columns, terms, lines,
                                         term ? ones : NULL, sums, far);
  }
  for (int64_t row = 0; partial && row < lines; row++)
    memcpy(output + row * c->columns, sums + row * width, (size_t)columns * sizeof(float));
  if (room) __TVMBackendFreeWorkspace(1, 0, room);
  return 0;
}

/* Returns 0, or -1 with an error raised. Matrices follow one another; `left_count` and `right_count` are equal, or one of them is 1
 * and its matrix is used for all. */
int tvmconv_network_product(const void* left, const void* right, void* output, int64_t left_count, int64_t right_count, int64_t rows,
                            int64_t terms, int64_t columns) {
  Call call = {.left = left, .right = right, .output = output, .rows = rows, .terms = terms, .columns = columns,
               .left_step = left_count > 1 ? rows * terms : 0, .right_step = right_count > 1 ? terms * columns : 0,
               .panels = (columns + COLUMNS - 1) / COLUMNS};
  const int64_t batch = left_count > right_count ? left_count : right_count;
  const int64_t parts = (TASKS + batch * call.panels - 1) / (batch * call.panels);
  call.lines = least((rows + parts - 1) / parts, MOST_LINES);
  if (call.lines < FEWEST_LINES) call.lines = least(rows, FEWEST_LINES);
  call.groups = (rows + call.lines - 1) / call.lines;
  const int64_t tasks = batch * call.panels * call.groups;
  if (batch * rows * terms * columns >= FEW_PRODUCTS) return tvmconv_share(tasks, multiply, &call);
  int failed = 0;
  for (int64_t task = 0; task < tasks && !failed; task++) failed = multiply(&call, task);
  return failed;
}
