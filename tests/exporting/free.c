/* Calls a network named net, of x (n 3 h w) and b (5), in every way that its header allows at free extents: sizes and inputs are in the
 * first file, the second takes the outputs. Prints what is wrong, and ends with how many things are. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "net.h"

enum { CASES = 16, CALLS = 8, MANY = 400 };
struct one {
  int64_t extents[net_EXTENTS], shapes[net_OUTPUT_AXES];
  const void *inputs[net_INPUTS];
  void *outputs[net_OUTPUTS];
  size_t bytes[net_OUTPUTS];
};
static int bad;
static net_network *network;

static void check(const char *what, int got, int wanted) {
  if (got == wanted) return;
  printf("%s: %d (%s) instead of %d\n", what, got, net_error_string(got), wanted);
  ++bad;
}

static void check_text(const char *what, const char *wanted) {
  if (strstr(net_error_text(), wanted) != NULL) return;
  printf("%s: '%s' instead of '%s'\n", what, net_error_text(), wanted);
  ++bad;
}

static void *block(size_t bytes) { return calloc(bytes ? bytes : 1, 1); }

/* Returns the bytes of an input for extents. */
static size_t bytes_of(int input, const int64_t *extents) {
  size_t bytes = net_inputs[input].element_bytes;
  for (int axis = 0; axis < net_inputs[input].rank; ++axis) {
    const int64_t extent = net_inputs[input].shape[axis];
    bytes *= (size_t)(extent < 0 ? extents[-1 - extent] : extent);
  }
  return bytes;
}

static void make_outputs(struct one *one) {
  const int64_t *shape = one->shapes;
  check("output_extents", net_output_extents(network, one->extents, one->shapes), net_OK);
  for (int i = 0; i < net_OUTPUTS; ++i) {
    one->bytes[i] = net_outputs[i].element_bytes;
    for (int axis = 0; axis < net_outputs[i].rank; ++axis) one->bytes[i] *= (size_t)shape[axis];
    shape += net_outputs[i].rank;
    one->outputs[i] = block(one->bytes[i]);
  }
}

static int read_case(FILE *file, struct one *one) {
  if (fread(one->extents, sizeof one->extents, 1, file) != 1) return 0;
  for (int i = 0; i < net_INPUTS; ++i) {
    const size_t bytes = bytes_of(i, one->extents);
    void *read = block(bytes);
    if (fread(read, 1, bytes, file) != bytes) return 0;
    one->inputs[i] = read;
  }
  make_outputs(one);
  return 1;
}

/* Returns how many outputs of a call differ from those of the first one. */
static int differ(const char *what, const struct one *one, const net_call *call) {
  void *outputs[net_OUTPUTS];
  int wrong = 0;
  for (int i = 0; i < net_OUTPUTS; ++i) outputs[i] = block(one->bytes[i]);
  const int status = net_run_with(network, call, one->extents, one->inputs, outputs);
  for (int i = 0; i < net_OUTPUTS; ++i) {
    wrong += memcmp(outputs[i], one->outputs[i], one->bytes[i]) != 0;
    free(outputs[i]);
  }
  if (wrong || status) printf("%s: %d outputs differ, status %d\n", what, wrong, status);
  return wrong + status;
}

static int backwards(void *context, int count, void (*task)(void *, int), void *argument) {
  *(int *)context += count;
  while (count-- > 0) task(argument, count);
  return 0;
}

static struct one cases[CASES];
static int count;

static void *caller(void *given) {
  int *wrong = given;
  for (int i = 0; i < CALLS * count; ++i) *wrong += differ("a thread", &cases[(i + *wrong) % count], NULL);
  return NULL;
}

static void refuse(int64_t n, int64_t h, int64_t w, const char *text) {
  const int64_t extents[net_EXTENTS] = {n, h, w};
  int64_t shapes[net_OUTPUT_AXES];
  check(text, net_output_extents(network, extents, shapes), net_ERROR_EXTENTS);
  check_text("output_extents", text);
  check(text, net_workspace_bytes(network, extents) != 0, 0);
  check(text, net_run(network, extents, cases[0].inputs, cases[0].outputs), net_ERROR_EXTENTS);
  check_text("run", text);
}

static long peak(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

/* Calls at sizes up to the first case's, of which a seed chooses. */
static void many(int calls, unsigned seed) {
  for (int i = 0; i < calls; ++i) {
    seed = seed * 1103515245u + 12345u;
    const int64_t h = seed >> 16, w = seed >> 20, *most = cases[0].extents;
    const int64_t extents[net_EXTENTS] = {1, 2 + 2 * (h % (most[1] / 2)), 1 + w % most[2]};
    check("many sizes", net_run(network, extents, cases[0].inputs, cases[0].outputs), net_OK);
  }
}

int main(int argument_count, char **arguments) {
  FILE *file = fopen(arguments[1], "rb");
  check("open", net_open(&network), net_OK);
  while (count < CASES && read_case(file, &cases[count])) ++count;
  fclose(file);
  file = fopen(arguments[2], "wb");
  for (int i = 0; i < count; ++i) {
    check("run", net_run(network, cases[i].extents, cases[i].inputs, cases[i].outputs), net_OK);
    for (int k = 0; k < net_OUTPUTS; ++k) fwrite(cases[i].outputs[k], 1, cases[i].bytes[k], file);
  }
  fclose(file);

  int tasks = 0;
  for (int i = 0; i < count; ++i) {
    const struct one *one = &cases[i];
    const size_t bytes = net_workspace_bytes(network, one->extents);
    char *workspace = block(bytes);
    const net_call single = {NULL, NULL, 1, NULL, 0}, own = {backwards, &tasks, 3, workspace, bytes};
    const net_call small = {NULL, NULL, 0, workspace, bytes - 1}, negative = {NULL, NULL, -1, NULL, 0};
    bad += differ("again", one, NULL) + differ("one thread", one, &single) + differ("own threads and workspace", one, &own);
    check("a workspace that is too small", net_run_with(network, &small, one->extents, one->inputs, one->outputs), net_ERROR_WORKSPACE);
    check("threads", net_run_with(network, &negative, one->extents, one->inputs, one->outputs), net_ERROR_ARGUMENT);
    free(workspace);
  }
  check("tasks of own threads", tasks > 1, 1);

  refuse(1, 7, 5, "extent h is 7, no multiple of 2; pad it by 1 to 8");
  refuse(1, 0, 5, "extent h is 0; it must be from 2 to 4096");
  refuse(1, 4098, 5, "extent h is 4098; it must be from 2 to 4096");
  refuse(-1, 2, 5, "extent n is -1; it must be from 1");
  refuse(1 << 20, 4096, 4096, "more than 2147483647");
  const struct one *one = &cases[0];
  const void *without[net_INPUTS] = {NULL, one->inputs[1]}, *shifted[net_INPUTS] = {(const char *)one->inputs[0] + 1, one->inputs[1]};
  check("no network", net_run(NULL, one->extents, one->inputs, one->outputs), net_ERROR_ARGUMENT);
  check("no extents", net_run(network, NULL, one->inputs, one->outputs), net_ERROR_ARGUMENT);
  check("no inputs", net_run(network, one->extents, NULL, one->outputs), net_ERROR_ARGUMENT);
  check("an input that is NULL", net_run(network, one->extents, without, one->outputs), net_ERROR_ARGUMENT);
  check("an input between elements", net_run(network, one->extents, shifted, one->outputs), net_ERROR_ARGUMENT);
  check("no shapes", net_output_extents(network, one->extents, NULL), net_ERROR_ARGUMENT);

  pthread_t threads[3];
  int wrong[3] = {0};
  for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, caller, &wrong[i]);
  for (int i = 0; i < 3; ++i) {
    pthread_join(threads[i], NULL);
    bad += wrong[i];
  }
  many(MANY, 1);
  const long before = peak();
  many(5 * MANY, 2);
  check("memory of many sizes, KiB", peak() - before > 1024, 0);
  net_close(network);
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < net_INPUTS; ++k) free((void *)(uintptr_t)cases[i].inputs[k]);
    for (int k = 0; k < net_OUTPUTS; ++k) free(cases[i].outputs[k]);
  }
  return bad + (argument_count != 3);
}
