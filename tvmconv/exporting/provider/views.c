/* Concatenations of which one begins with another, as blocks of densely connected layers have them: the lesser is made within the
 * greater, so that its channels are not copied again for each layer. */
#include "tvmconv-plan.h"

#include <string.h>

static int inputs_of(const struct op *op) { return op->array_count - 1; }
static int output_of(const struct op *op) { return op->arrays[op->array_count - 1]; }

/* Returns how many of the first inputs of a concatenation are another, or its inputs; 0: none. */
static int begins_with(const struct op *greater, const struct op *lesser) {
  int count = inputs_of(lesser);
  if (greater->arrays[0] == output_of(lesser)) return 1;
  if (count >= inputs_of(greater) || memcmp(greater->arrays, lesser->arrays, (size_t)count * sizeof *lesser->arrays) != 0) return 0;
  return count;
}

/* Returns whether all that read a value may find its pixels further apart: the data of maps, and the greater concatenation. */
static int may_be_apart(const struct plan *plan, int value, const struct op *greater) {
  for (int i = 0; i < plan->op_count; ++i) {
    const struct op *op = &plan->ops[i];
    for (int k = 0; k < inputs_of(op); ++k)
      if (op->arrays[k] == value && !(k == 0 && (op->kind == OP_MAP || op == greater))) return 0;
  }
  for (int i = 0; i < plan->value_count; ++i)
    if (i != value && plan->values[i].alias == value) return 0;
  return plan->values[value].home == IN_BUFFER && plan->values[value].alias == value;
}

/* Takes away the first inputs, whose channels are there already. */
static void begin_after(struct op *op, int count) {
  for (int i = 0; i < count; ++i) op->from += op->parts[i];
  op->array_count -= count;
  memmove(op->arrays, op->arrays + count, (size_t)op->array_count * sizeof *op->arrays);
  memmove(op->parts, op->parts + count, (size_t)(op->array_count - 1) * sizeof *op->parts);
}

void share_concatenations(struct plan *plan) {
  for (int i = plan->op_count; i-- > 0;) {
    struct op *greater = &plan->ops[i];
    if (greater->kind != OP_JOIN || plan->values[output_of(greater)].home != IN_BUFFER) continue;
    for (int k = i; k-- > 0;) {
      const struct op *lesser = &plan->ops[k];
      int count = lesser->kind == OP_JOIN ? begins_with(greater, lesser) : 0, value = output_of(lesser);
      if (count == 0 || inputs_of(greater) == count || !may_be_apart(plan, value, greater)) continue;
      plan->values[value].alias = output_of(greater);
      begin_after(greater, count);
      break;
    }
  }
  for (int i = 0; i < plan->op_count; ++i) {
    struct op *op = &plan->ops[i];
    if (op->kind == OP_MAP || op->kind == OP_PART) op->pitch = plan->values[root_of(plan, op->arrays[0])].extent.channels;
    if (op->kind == OP_JOIN) op->pitch = plan->values[root_of(plan, output_of(op))].extent.channels;
  }
}
