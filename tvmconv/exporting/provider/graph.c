/* Reading onnxruntime's graphs. */
#include "tvmconv-graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ort_functions ort;

int good(ort_status *status) {
  if (status == NULL) return 1;
  ort.release_status(status);
  return 0;
}

const char *name_of(const ort_value_info *value) {
  const char *name = NULL;
  return value != NULL && good(ort.value_name(value, &name)) && name != NULL ? name : "";
}

static int by_name(const void *a, const void *b) {
  const struct reader *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  return order != 0 ? order : (x->node > y->node) - (x->node < y->node);
}

static const ort_value_info **values(const ort_node *node, ort_status *(*counting)(const ort_node *, size_t *),
                                     ort_status *(*reading)(const ort_node *, const ort_value_info **, size_t), size_t *count) {
  if (!good(counting(node, count))) return NULL;
  const ort_value_info **found = calloc(*count + 1, sizeof *found);
  if (found != NULL && *count > 0 && !good(reading(node, found, *count))) {
    free(found);
    return NULL;
  }
  return found;
}

static int add_readers(struct graph *read, const ort_value_info *const *names, size_t count, size_t node) {
  struct reader *grown = realloc(read->readers, (read->reader_count + count + 1) * sizeof *grown);
  if (grown == NULL) return 0;
  read->readers = grown;
  for (size_t i = 0; i < count; ++i)
    if (names[i] != NULL) grown[read->reader_count++] = (struct reader){name_of(names[i]), node};
  return 1;
}

int read_graph(const ort_graph *graph, struct graph *read) {
  *read = (struct graph){NULL, 0, NULL, 0};
  size_t count = 0;
  if (!good(ort.node_count(graph, &count))) return 0;
  const ort_node **nodes = calloc(count + 1, sizeof *nodes);
  read->nodes = calloc(count + 1, sizeof *read->nodes);
  int fine = nodes != NULL && read->nodes != NULL && (count == 0 || good(ort.nodes(graph, nodes, count)));
  for (size_t i = 0; fine && i < count; ++i) {
    struct node *node = &read->nodes[read->count++];
    const char *domain = "";
    size_t implicit_count = 0;
    node->node = nodes[i];
    node->inputs = values(nodes[i], ort.input_count, ort.inputs, &node->input_count);
    node->outputs = values(nodes[i], ort.output_count, ort.outputs, &node->output_count);
    const ort_value_info **implicit = values(nodes[i], ort.implicit_count, ort.implicit_inputs, &implicit_count);
    fine = node->inputs != NULL && node->outputs != NULL && implicit != NULL && good(ort.node_type(nodes[i], &node->type)) &&
           good(ort.node_domain(nodes[i], &domain)) && add_readers(read, node->inputs, node->input_count, i) &&
           add_readers(read, implicit, implicit_count, i);
    free(implicit);
    if (fine && domain[0] != '\0' && strcmp(domain, "ai.onnx") != 0) node->type = ""; /* another's operator of that name */
  }
  free(nodes);
  if (!fine) {
    free_graph(read);
    return 0;
  }
  if (read->reader_count > 0) qsort(read->readers, read->reader_count, sizeof *read->readers, by_name);
  return 1;
}

void free_graph(struct graph *read) {
  for (size_t i = 0; i < read->count; ++i) {
    free(read->nodes[i].inputs);
    free(read->nodes[i].outputs);
  }
  free(read->nodes);
  free(read->readers);
  *read = (struct graph){NULL, 0, NULL, 0};
}

int is_convolution(const struct node *node) {
  return strcmp(node->type, "Conv") == 0 || strcmp(node->type, "ConvTranspose") == 0;
}

size_t readers_of(const struct graph *graph, const char *name, const struct reader **first) {
  size_t low = 0, high = graph->reader_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(graph->readers[middle].name, name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  *first = graph->readers + low;
  size_t count = 0;
  while (low + count < graph->reader_count && strcmp(graph->readers[low + count].name, name) == 0) ++count;
  return count;
}

long only_reader(const struct graph *graph, const char *name) {
  const struct reader *first;
  return readers_of(graph, name, &first) == 1 && !graph->nodes[first->node].taken ? (long)first->node : -1;
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

const void *fixed_data(const ort_value_info *value) {
  bool constant = false;
  const ort_value *tensor = NULL;
  void *data = NULL;
  if (value == NULL || !good(ort.is_constant(value, &constant)) || !constant || !good(ort.initializer(value, &tensor)) ||
      tensor == NULL || !good(ort.tensor_data((ort_value *)(uintptr_t)tensor, &data)))
    return NULL;
  return data;
}

static float from_half(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value = exponent == 0    ? ldexpf((float)fraction, -24)
                : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                                 : ldexpf((float)(fraction + 1024), exponent - 25);
  return bits & 0x8000 ? -value : value;
}

float *fixed_numbers(const ort_value_info *value, size_t most, size_t *count) {
  int64_t dims[8];
  int type = 0, rank = shape_of(value, &type, dims, 8);
  const void *data = rank >= 0 ? fixed_data(value) : NULL;
  if (data == NULL) return NULL;
  *count = 1;
  for (int i = 0; i < rank; ++i) {
    if (dims[i] < 0 || (size_t)dims[i] > most) return NULL;
    *count *= (size_t)dims[i];
  }
  if (*count > most) return NULL;
  float *numbers = malloc((*count + 1) * sizeof *numbers);
  for (size_t i = 0; numbers != NULL && i < *count; ++i) {
    uint32_t wide = (uint32_t)((const uint16_t *)data)[type == ORT_FLOAT ? 0 : i] << 16;
    if (type == ORT_FLOAT)
      numbers[i] = ((const float *)data)[i];
    else if (type == ORT_FLOAT16)
      numbers[i] = from_half(((const uint16_t *)data)[i]);
    else if (type == ORT_BFLOAT16)
      memcpy(&numbers[i], &wide, sizeof wide);
    else {
      free(numbers);
      return NULL;
    }
  }
  return numbers;
}

/* An attribute that is not there has no address, or its name is unknown: which of both depends on onnxruntime's version. */
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
