/* Runs the network on the inputs of smoke.bin, and compares its outputs with another library's, which are in smoke.bin, too.
 * Exits with 0 if they agree, 77 if this CPU does not run the network. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tvmconv_name.h"

#ifdef tvmconv_name_EXTENTS
static int64_t extents[tvmconv_name_EXTENTS], shapes[tvmconv_name_OUTPUT_AXES + 1];
static size_t element_bytes(const tvmconv_name_tensor *tensor) { return tensor->element_bytes; }
#else
static size_t element_bytes(const tvmconv_name_tensor *tensor) { return tensor->elements ? tensor->bytes / tensor->elements : 1; }
#endif

/* Returns an element as a double, by the type of its tensor. */
static double number(const tvmconv_name_tensor *tensor, const void *array, size_t index) {
  const char *type = tensor->type;
  const size_t size = element_bytes(tensor);
  const char *at = (const char *)array + index * size;
  if (strcmp(type, "float32") == 0) return *(const float *)(const void *)at;
  if (strcmp(type, "float64") == 0) return *(const double *)(const void *)at;
  if (strcmp(type, "int64") == 0) return (double)*(const int64_t *)(const void *)at;
  if (strcmp(type, "uint64") == 0) return (double)*(const uint64_t *)(const void *)at;
  if (strcmp(type, "int32") == 0) return *(const int32_t *)(const void *)at;
  if (strcmp(type, "uint32") == 0) return *(const uint32_t *)(const void *)at;
  if (strcmp(type, "int16") == 0) return *(const int16_t *)(const void *)at;
  if (strcmp(type, "int8") == 0) return *(const signed char *)at;
  if (strcmp(type, "bfloat16") == 0) {
    uint32_t bits = (uint32_t)*(const uint16_t *)(const void *)at << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
  }
  if (strcmp(type, "float16") == 0) {
    unsigned half = *(const uint16_t *)(const void *)at, exponent = half >> 10 & 31, fraction = half & 1023;
    double value = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexp(1024 + fraction, (int)exponent - 25) : ldexp(fraction, -24);
    return half >> 15 ? -value : value;
  }
  return size == 1 ? *(const unsigned char *)at : *(const uint16_t *)(const void *)at;
}

static void *block(size_t bytes) {
  char *allocated = malloc(bytes + tvmconv_name_ALIGNMENT);
  if (allocated == NULL) exit(2);
  return allocated + (tvmconv_name_ALIGNMENT - (uintptr_t)allocated % tvmconv_name_ALIGNMENT);
}

static void *block_of(FILE *file, size_t bytes) {
  void *found = block(bytes);
  if (fread(found, 1, bytes, file) != bytes) {
    fprintf(stderr, "the file of numbers is too short\n");
    exit(2);
  }
  return found;
}

static void check(const char *what, int status) {
  if (status == tvmconv_name_OK) return;
  fprintf(stderr, "%s: %s (%s)\n", what, tvmconv_name_error_string(status), tvmconv_name_error_text());
  exit(status == tvmconv_name_ERROR_CPU ? 77 : 1);
}

/* Returns the number of a tensor's elements; `shape`: an output's, where extents are free. */
static size_t elements(const tvmconv_name_tensor *tensor, const int64_t *shape) {
#ifdef tvmconv_name_EXTENTS
  size_t product = 1;
  for (int axis = 0; axis < tensor->rank; ++axis) {
    const int64_t extent = tensor->shape[axis];
    product *= (size_t)(shape != NULL ? shape[axis] : extent < 0 ? extents[-1 - extent] : extent);
  }
  return product;
#else
  (void)shape;
  return tensor->elements;
#endif
}

/* Returns whether an output differs from another library's. */
static int differs(const tvmconv_name_tensor *tensor, size_t count, const void *output, const void *expected) {
  double error = 0, norm = 0;
  size_t other = 0;
  for (size_t k = 0; k < count; ++k) {
    double a = number(tensor, output, k), b = number(tensor, expected, k);
    if (!isfinite(b) || !isfinite(a)) {
      other += !(a == b || (isnan(a) && isnan(b)));
      continue;
    }
    error += (a - b) * (a - b);
    norm += b * b;
  }
  const double least = 1e-4 * sqrt((double)count); /* norm of outputs of 1e-4: smaller outputs are compared as if they had it */
  error = sqrt(error) / (sqrt(norm) > least ? sqrt(norm) : least);
  printf("%s: relative L2 error %.2g\n", tensor->name, error);
  return other > 0 || !(error <= tvmconv_name_SMOKE_ERROR);
}

/* Runs the network once; returns how many outputs differ. */
static int run(tvmconv_name_network *network, FILE *file) {
  const void *inputs[tvmconv_name_INPUTS + 1];
  void *outputs[tvmconv_name_OUTPUTS + 1];
  size_t counts[tvmconv_name_OUTPUTS + 1];
  const int64_t *shape = NULL;
#ifdef tvmconv_name_EXTENTS
  check("output_extents", tvmconv_name_output_extents(network, extents, shapes));
  shape = shapes;
#endif
  for (int i = 0; i < tvmconv_name_INPUTS; ++i)
    inputs[i] = block_of(file, elements(&tvmconv_name_inputs[i], NULL) * element_bytes(&tvmconv_name_inputs[i]));
  for (int i = 0; i < tvmconv_name_OUTPUTS; ++i) {
    const tvmconv_name_tensor *tensor = &tvmconv_name_outputs[i];
    counts[i] = elements(tensor, shape);
    outputs[i] = block(counts[i] * element_bytes(tensor));
    if (shape != NULL) shape += tensor->rank;
  }
#ifdef tvmconv_name_EXTENTS
  check("run", tvmconv_name_run(network, extents, inputs, outputs));
#else
  check("run", tvmconv_name_run(network, inputs, outputs));
#endif
  int bad = 0;
  for (int i = 0; i < tvmconv_name_OUTPUTS; ++i) {
    const tvmconv_name_tensor *tensor = &tvmconv_name_outputs[i];
    bad += differs(tensor, counts[i], outputs[i], block_of(file, counts[i] * element_bytes(tensor)));
  }
  return bad;
}

int main(int count, char **arguments) {
  FILE *file = fopen(count > 1 ? arguments[1] : "smoke.bin", "rb");
  if (file == NULL) {
    perror("smoke.bin");
    return 2;
  }
  tvmconv_name_network *network;
  check("open", tvmconv_name_open(&network));
#ifdef tvmconv_name_EXTENTS
  int bad = 0; /* at several sizes */
  while (fread(extents, sizeof extents, 1, file) == 1) bad += run(network, file);
#else
  const int bad = run(network, file);
#endif
  fclose(file);
  tvmconv_name_close(network);
  return bad ? 1 : 0;
}
