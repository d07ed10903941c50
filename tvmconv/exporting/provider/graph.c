/* Reading onnxruntime's graphs. */
#include "tvmconv-graph.h"

#include <stdlib.h>
#include <string.h>

const char *name_of(const ort_value_info *value) {
  const char *name = NULL;
  return value != NULL && good(ort.value_name(value, &name)) && name != NULL ? name : "";
}

static int by_name(const void *a, const void *b) {
  const struct use *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  return order != 0 ? order : (x->node > y->node) - (x->node < y->node);
}

const ort_value_info **values_of(const ort_node *node, ort_status *(*counting)(const ort_node *, size_t *),
                                 ort_status *(*reading)(const ort_node *, const ort_value_info **, size_t), size_t *count) {
  if (!good(counting(node, count))) return NULL;
  const ort_value_info **found = calloc(*count + 1, sizeof *found);
  if (found != NULL && *count > 0 && !good(reading(node, found, *count))) {
    free(found);
    return NULL;
  }
  return found;
}

static int add_uses(struct uses *uses, const ort_value_info *const *names, size_t count, size_t node) {
  struct use *grown = realloc(uses->list, (uses->count + count + 1) * sizeof *grown);
  if (grown == NULL) return 0;
  uses->list = grown;
  for (size_t i = 0; i < count; ++i)
    if (names[i] != NULL) grown[uses->count++] = (struct use){name_of(names[i]), node};
  return 1;
}

static void sort_uses(struct uses *uses) {
  if (uses->count > 0) qsort(uses->list, uses->count, sizeof *uses->list, by_name);
}

int read_graph(const ort_graph *graph, struct graph *read) {
  memset(read, 0, sizeof *read);
  size_t count = 0;
  if (!good(ort.node_count(graph, &count))) return 0;
  const ort_node **nodes = calloc(count + 1, sizeof *nodes);
  read->nodes = calloc(count + 1, sizeof *read->nodes);
  int fine = nodes != NULL && read->nodes != NULL && (count == 0 || good(ort.nodes(graph, nodes, count)));
  for (size_t i = 0; fine && i < count; ++i) {
    struct node *node = &read->nodes[read->count++];
    const char *domain = "";
    node->node = nodes[i];
    node->inputs = values_of(nodes[i], ort.input_count, ort.inputs, &node->input_count);
    node->outputs = values_of(nodes[i], ort.output_count, ort.outputs, &node->output_count);
    node->implicit = values_of(nodes[i], ort.implicit_count, ort.implicit_inputs, &node->implicit_count);
    while (node->outputs != NULL && node->output_count > 1 && name_of(node->outputs[node->output_count - 1])[0] == '\0') --node->output_count;
    fine = node->inputs != NULL && node->outputs != NULL && node->implicit != NULL && good(ort.node_type(nodes[i], &node->type)) &&
           good(ort.node_domain(nodes[i], &domain)) && add_uses(&read->readers, node->inputs, node->input_count, i) &&
           add_uses(&read->readers, node->implicit, node->implicit_count, i) && add_uses(&read->writers, node->outputs, node->output_count, i);
    if (fine && domain[0] != '\0' && strcmp(domain, "ai.onnx") != 0) node->type = ""; /* another domain's operator of that name */
  }
  free(nodes);
  if (!fine) {
    free_graph(read);
    return 0;
  }
  sort_uses(&read->readers);
  sort_uses(&read->writers);
  return 1;
}

void free_graph(struct graph *read) {
  for (size_t i = 0; i < read->count; ++i) {
    free(read->nodes[i].inputs);
    free(read->nodes[i].outputs);
    free(read->nodes[i].implicit);
  }
  free(read->nodes);
  free(read->readers.list);
  free(read->writers.list);
  memset(read, 0, sizeof *read);
}

int is_convolution(const struct node *node) {
  return strcmp(node->type, "Conv") == 0 || strcmp(node->type, "ConvTranspose") == 0;
}

static size_t uses_of(const struct uses *uses, const char *name, const struct use **first) {
  size_t low = 0, high = uses->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(uses->list[middle].name, name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  *first = uses->list + low;
  size_t count = 0;
  while (low + count < uses->count && strcmp(uses->list[low + count].name, name) == 0) ++count;
  return count;
}

size_t readers_of(const struct graph *graph, const char *name, const struct use **first) {
  return uses_of(&graph->readers, name, first);
}

long only_reader(const struct graph *graph, long node) {
  const ort_value_info *output = graph->nodes[node].outputs[0];
  const struct use *first;
  const int only = readers_of(graph, name_of(output), &first) == 1 && !is_kept(graph, output);
  return only && !graph->nodes[first->node].taken ? (long)first->node : -1;
}

long writer_of(const struct graph *graph, const char *name) {
  const struct use *first;
  return name[0] != '\0' && uses_of(&graph->writers, name, &first) > 0 ? (long)first->node : -1;
}

int is_kept(const struct graph *graph, const ort_value_info *value) {
  bool given = false;
  if (!good(ort.is_graph_output(value, &given)) || given) return 1;
  for (size_t i = 0; i < graph->kept_count; ++i)
    if (strcmp(name_of(graph->kept[i]), name_of(value)) == 0) return 1;
  return 0;
}

int shape_of(const ort_value_info *value, int *type, int64_t *dims, int most) {
  const ort_type *known = NULL;
  const ort_shape *shape = NULL;
  size_t rank = 0;
  if (value == NULL || !good(ort.value_type(value, &known)) || known == NULL || !good(ort.tensor_type(known, &shape)) ||
      shape == NULL || !good(ort.element_type(shape, type)) || !good(ort.rank(shape, &rank)) || rank > (size_t)most)
    return -1;
  return rank == 0 || good(ort.dims(shape, dims, rank)) ? (int)rank : -1;
}

int is_constant_tensor(const ort_value_info *value) {
  bool constant = false;
  return value != NULL && good(ort.is_constant(value, &constant)) && constant;
}

const void *fixed_data(const ort_value_info *value) {
  const ort_value *tensor = NULL;
  void *data = NULL;
  if (!is_constant_tensor(value) || !good(ort.initializer(value, &tensor)) || tensor == NULL ||
      !good(ort.tensor_data((ort_value *)(uintptr_t)tensor, &data)))
    return NULL;
  return data;
}

float *fixed_numbers(const ort_value_info *value, size_t most, size_t *count) {
  int64_t dims[8];
  int type = 0, rank = shape_of(value, &type, dims, 8);
  const void *data = rank >= 0 && is_floating(type) ? fixed_data(value) : NULL;
  if (data == NULL) return NULL;
  *count = 1;
  for (int i = 0; i < rank; ++i) {
    if (dims[i] < 0 || (size_t)dims[i] > most) return NULL;
    *count *= (size_t)dims[i];
  }
  if (*count > most) return NULL;
  float *numbers = malloc((*count + 1) * sizeof *numbers);
  if (numbers != NULL) load(numbers, data, (int64_t)*count, type);
  return numbers;
}

/* Returns 1, 0 if there is no such attribute (NULL or an error, by onnxruntime's version), -1 if it cannot be read. */
static int read_attribute(const struct node *node, const char *name, int type, void *values, size_t bytes, size_t *read) {
  const ort_attribute *attribute = NULL;
  if (!good(ort.attribute(node->node, name, &attribute)) || attribute == NULL) return 0;
  return good(ort.read_attribute(attribute, type, values, bytes, read)) ? 1 : -1;
}

int64_t integer_attribute(const struct node *node, const char *name, int64_t none) {
  int64_t value = none;
  size_t read = 0;
  return read_attribute(node, name, ORT_ATTRIBUTE_INT, &value, sizeof value, &read) == 1 ? value : none;
}

float float_attribute(const struct node *node, const char *name, float none) {
  float value = none;
  size_t read = 0;
  return read_attribute(node, name, ORT_ATTRIBUTE_FLOAT, &value, sizeof value, &read) == 1 ? value : none;
}

int integers_attribute(const struct node *node, const char *name, int64_t *values, int most) {
  size_t read = 0;
  int found = read_attribute(node, name, ORT_ATTRIBUTE_INTS, values, (size_t)most * sizeof *values, &read);
  return found == 1 ? (int)(read / sizeof *values) : found == 0 ? -1 : -2;
}

int text_attribute(const struct node *node, const char *name, char *text, size_t size) {
  size_t read = 0;
  memset(text, 0, size);
  return read_attribute(node, name, ORT_ATTRIBUTE_STRING, text, size - 1, &read);
}
