/* Identities of graphs: hashes of all their nodes, attributes, shapes and constants. */
#include "tvmconv-whole.h"

#include <stdlib.h>
#include <string.h>

enum { LANES = 4, MOST_RANK = 8 };
/* xxHash's first 64-bit prime. */
static const uint64_t PRIME = 11400714785074694791u;

/* FNV-1a by words of 8 bytes, in lanes: weights are hashed at the speed of memory. */
static uint64_t add_bytes(uint64_t hash, const void *data, size_t bytes) {
  const char *at = data;
  uint64_t lanes[LANES], word;
  for (int i = 0; i < LANES; ++i) lanes[i] = hash + (uint64_t)i + bytes;
  for (; bytes >= sizeof lanes; bytes -= sizeof lanes, at += sizeof lanes)
    for (int i = 0; i < LANES; ++i) {
      memcpy(&word, at + 8 * i, sizeof word);
      lanes[i] = (lanes[i] ^ word) * PRIME;
      lanes[i] ^= lanes[i] >> 32;
    }
  for (size_t i = 0; i < bytes; ++i) lanes[0] = (lanes[0] ^ (unsigned char)at[i]) * PRIME;
  for (int i = 0; i < LANES; ++i) hash = (hash ^ lanes[i] ^ lanes[i] >> 29) * PRIME;
  return hash;
}

static uint64_t add_number(uint64_t hash, int64_t number) { return add_bytes(hash, &number, sizeof number); }
static uint64_t add_text(uint64_t hash, const char *text) { return add_bytes(hash, text, strlen(text)); }

/* Returns the bytes of an element of a type; 0: networks do not have the type. */
static size_t bytes_of(int type) {
  static const unsigned char bytes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 0, 0, 2};
  return type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 0;
}

/* Returns 0 if networks do not have the value's type. Free extents are -1, whatever their names. */
static int add_tensor(uint64_t *hash, const ort_value_info *value, size_t *bytes) {
  int64_t dims[MOST_RANK];
  int type = 0, rank = shape_of(value, &type, dims, MOST_RANK);
  *bytes = bytes_of(type);
  if (rank < 0 || *bytes == 0) return 0;
  *hash = add_number(add_number(*hash, type), rank);
  for (int i = 0; i < rank; ++i) {
    *bytes *= dims[i] < 0 ? 0 : (size_t)dims[i];
    *hash = add_number(*hash, dims[i] < 0 ? -1 : dims[i]);
  }
  return 1;
}

/* Hashes an input: the node of the part that computes it, the content of a constant, or the name of an input of the part. */
static int add_input(uint64_t *hash, const struct graph *graph, const int64_t *places, const ort_value_info *value) {
  const char *name = name_of(value);
  if (name[0] == '\0') {
    *hash = add_number(*hash, -1);
    return 1;
  }
  long writer = writer_of(graph, name);
  size_t bytes = 0;
  const int64_t place = writer >= 0 ? places[writer] : -1;
  *hash = add_number(*hash, place);
  if (place >= 0) {
    const struct node *node = &graph->nodes[writer];
    size_t output = 0;
    while (output < node->output_count && strcmp(name_of(node->outputs[output]), name) != 0) ++output;
    *hash = add_number(*hash, (int64_t)output);
    return 1;
  }
  if (!add_tensor(hash, value, &bytes)) return 0;
  const void *data = fixed_data(value);
  *hash = data != NULL ? add_bytes(*hash, data, bytes) : add_text(*hash, name);
  return 1;
}

/* Hashes a node's attributes; returns 0 if one is a graph or a tensor or cannot be read, -1 if there is no memory, as add_node does. */
static int add_attributes(uint64_t *hash, const ort_node *node) {
  size_t count = 0;
  if (!good(ort.attribute_count(node, &count))) return 0;
  const ort_attribute **list = calloc(count + 1, sizeof *list);
  int fine = list == NULL ? -1 : count == 0 || good(ort.attributes(node, list, count));
  uint64_t sum = 0; /* of the attributes' hashes: their order does not count */
  for (size_t i = 0; fine > 0 && i < count; ++i) {
    const char *name = NULL;
    int type = 0;
    fine = good(ort.attribute_name(list[i], &name)) && good(ort.attribute_type(list[i], &type)) && type >= ORT_ATTRIBUTE_INT &&
           type <= ORT_ATTRIBUTE_STRINGS;
    if (!fine) break; /* a graph or a tensor */
    size_t size = 0, read = 0;
    good(ort.read_attribute(list[i], type, NULL, 0, &size));
    char *values = malloc(size + 1);
    fine = values == NULL ? -1 : size == 0 || good(ort.read_attribute(list[i], type, values, size, &read));
    if (fine > 0) sum += add_bytes(add_number(add_text(PRIME, name), type), values, read);
    free(values);
  }
  free(list);
  *hash = add_number(*hash, (int64_t)sum);
  return fine;
}

static int add_node(uint64_t *hash, const struct graph *graph, const int64_t *places, const struct node *node) {
  const char *type = NULL, *domain = NULL;
  int since = 0;
  size_t bytes = 0;
  if (node->implicit_count > 0 || !good(ort.node_type(node->node, &type)) || !good(ort.node_domain(node->node, &domain)) ||
      !good(ort.node_since(node->node, &since)))
    return 0;
  const int fine = add_attributes(hash, node->node);
  if (fine <= 0) return fine;
  *hash = add_number(add_text(add_text(*hash, type), domain), since);
  for (size_t i = 0; i < node->input_count; ++i)
    if (!add_input(hash, graph, places, node->inputs[i])) return 0;
  for (size_t i = 0; i < node->output_count; ++i) {
    bool given = false;
    if (name_of(node->outputs[i])[0] == '\0') continue;
    if (!good(ort.is_graph_output(node->outputs[i], &given)) || !add_tensor(hash, node->outputs[i], &bytes)) return 0;
    if (given) *hash = add_text(add_number(*hash, (int64_t)i), name_of(node->outputs[i]));
  }
  return 1;
}

ort_status *identity_of(const struct graph *graph, const unsigned char *part, uint64_t *identity) {
  int64_t *places = calloc(graph->count + 1, sizeof *places), count = 0; /* positions within the part; -1: other nodes */
  if (places == NULL) return fail(ORT_FAIL, "out of memory");
  for (size_t i = 0; i < graph->count; ++i) places[i] = part[i] ? count++ : -1;
  uint64_t hash = PRIME;
  int fine = 1;
  for (size_t i = 0; fine > 0 && i < graph->count; ++i) fine = part[i] ? add_node(&hash, graph, places, &graph->nodes[i]) : 1;
  free(places);
  *identity = fine <= 0 ? 0 : hash != 0 ? hash : 1;
  return fine < 0 ? fail(ORT_FAIL, "out of memory") : NULL;
}
