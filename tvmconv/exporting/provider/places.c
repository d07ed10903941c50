/* Memory: where the tensors of a plan lie in its buffer, two that are needed at the same time in different places. */
#include "tvmconv-plan.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Large ones in huge pages, where the system has any: of a packed filter, each call reads all (tvmconv/runtime/pages.py). */
void *allocate(size_t bytes) {
  size_t whole = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, alignment = whole > 0 ? HUGE_PAGE_BYTES : tvmconv_name_ALIGNMENT;
  void *block = aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
#ifdef MADV_HUGEPAGE
  if (block != NULL && whole > 0) madvise(block, whole, MADV_HUGEPAGE); /* refused, it is only slower */
#endif
  return block;
}

int root_of(const struct plan *plan, int value) {
  while (plan->values[value].alias != value) value = plan->values[value].alias;
  return value;
}

static void touch(struct plan *plan, int value, int op) {
  struct value *touched = &plan->values[root_of(plan, value)];
  if (touched->first < 0) touched->first = op;
  touched->last = op;
}

/* A map writes to where it reads, if nobody reads that later. */
static void reuse(struct plan *plan) {
  for (int i = 0; i < plan->op_count; ++i) {
    const struct op *op = &plan->ops[i];
    int from = root_of(plan, op->arrays[0]), to = op->arrays[op->array_count - 1];
    if (op->kind != OP_MAP || plan->values[from].home != IN_BUFFER || plan->values[to].home != IN_BUFFER || plan->values[from].last != i ||
        op->pitch != op->channels)
      continue;
    plan->values[from].last = plan->values[to].last;
    plan->values[to].alias = from;
  }
}

/* The lowest place for a value that no other has while both are needed. */
static size_t place(const struct plan *plan, const struct value *wanted) {
  size_t at = 0;
  for (int again = 1; again;) {
    again = 0;
    for (int i = 0; i < plan->value_count; ++i) {
      const struct value *other = &plan->values[i];
      if (!other->placed || other->last < wanted->first || other->first > wanted->last || other->offset >= at + wanted->bytes ||
          at >= other->offset + other->bytes)
        continue;
      at = other->offset + other->bytes;
      again = 1;
    }
  }
  return at;
}

void place_values(struct plan *plan) {
  for (int i = 0; i < plan->op_count; ++i)
    for (int k = 0; k < plan->ops[i].array_count; ++k) touch(plan, plan->ops[i].arrays[k], i);
  reuse(plan);
  for (int i = 0; i < plan->op_count; ++i) {
    const struct op *op = &plan->ops[i];
    struct value *made = &plan->values[root_of(plan, op->arrays[op->array_count - 1])];
    if (made->home != IN_BUFFER || made->placed) continue;
    made->offset = place(plan, made);
    made->placed = 1;
    if (made->offset + made->bytes > plan->buffer) plan->buffer = made->offset + made->bytes;
  }
  for (int i = 0; i < plan->value_count; ++i) {
    plan->values[i].name = NULL; /* the graph's */
    plan->values[i].offset = plan->values[root_of(plan, i)].offset;
  }
}
