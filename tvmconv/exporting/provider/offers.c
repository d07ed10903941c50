/* Record of the graphs that onnxruntime offered, with their identities, for the export's race. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tvmconv-whole.h"

/* Splits a text into lines, the names of tensors; returns their number. The names point into the text. */
static int add_names(char *lines, struct tensor *tensors) {
  char *rest = NULL;
  int count = 0;
  for (char *name = lines != NULL ? strtok_r(lines, "\n", &rest) : NULL; name != NULL; name = strtok_r(NULL, "\n", &rest))
    tensors[count++].name = name;
  return count;
}

static ort_status *find_part(const struct graph *graph, const char *inputs, const char *outputs, unsigned char *part, uint64_t *identity) {
  char *given = inputs != NULL ? strdup(inputs) : NULL, *computed = strdup(outputs);
  struct tensor *tensors = calloc(strlen(outputs) + (inputs != NULL ? strlen(inputs) : 0) + 2, sizeof *tensors);
  struct network ends = {.tensors = tensors};
  ort_status *status = NULL;
  if (tensors != NULL && computed != NULL && (given != NULL || inputs == NULL)) {
    ends.input_count = add_names(given, tensors);
    ends.output_count = add_names(computed, tensors + ends.input_count);
    status = part_of(&ends, graph, part, identity);
  } else {
    status = fail(ORT_FAIL, "out of memory");
  }
  free(tensors);
  free(computed);
  free(given);
  return status;
}

ort_status *find_identity(const struct graph *graph, const char *inputs, const char *outputs, uint64_t *identity) {
  unsigned char *part = calloc(graph->count + 1, 1);
  if (part == NULL) return fail(ORT_FAIL, "out of memory");
  memset(part, 1, graph->count);
  ort_status *status = outputs != NULL ? find_part(graph, inputs, outputs, part, identity) : identity_of(graph, part, identity);
  free(part);
  return status;
}

/* Hash and identity of each graph offered since the library was loaded or the list was read. */
enum { MOST_GRAPHS = 256 };
static uint64_t graphs_seen[MOST_GRAPHS][2];
static int graphs_seen_count;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;

void note_graph(uint64_t graph, uint64_t identity) {
  pthread_mutex_lock(&seen_lock);
  int known = 0;
  for (int i = 0; i < graphs_seen_count; ++i) known |= graphs_seen[i][0] == graph && graphs_seen[i][1] == identity;
  if (!known && graphs_seen_count < MOST_GRAPHS) {
    graphs_seen[graphs_seen_count][0] = graph;
    graphs_seen[graphs_seen_count++][1] = identity;
  }
  pthread_mutex_unlock(&seen_lock);
}

__attribute__((visibility("default"))) int tvmconv_provider_graphs(uint64_t (*graphs)[2], int most);

/* Moves the recorded graphs into an array, for the race; returns their number. */
int tvmconv_provider_graphs(uint64_t (*graphs)[2], int most) {
  pthread_mutex_lock(&seen_lock);
  int count = graphs_seen_count < most ? graphs_seen_count : most;
  memcpy(graphs, graphs_seen, (size_t)count * sizeof *graphs);
  graphs_seen_count = 0;
  pthread_mutex_unlock(&seen_lock);
  return count;
}
