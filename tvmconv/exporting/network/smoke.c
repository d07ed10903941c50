/* Runs the network on the numbers of smoke.bin, and compares its answers with another library's, which are there, too.
 * Ends with 0 if they are alike, 77 if this CPU does not run it. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tvmconv_name.h"

/* Returns an element as a number, by the type of its tensor. */
static double number(const tvmconv_name_tensor *tensor, const void *array, size_t index) {
  const char *type = tensor->type;
  const size_t size = tensor->bytes / tensor->elements;
  const char *at = (const char *)array + index * size;
  if (strcmp(type, "float32") == 0) return *(const float *)(const void *)at;
  if (strcmp(type, "float64") == 0) return *(const double *)(const void *)at;
  if (strcmp(type, "int64") == 0) return (double)*(const int64_t *)(const void *)at;
  if (strcmp(type, "int32") == 0) return *(const int32_t *)(const void *)at;
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

int main(int count, char **arguments) {
  FILE *file = fopen(count > 1 ? arguments[1] : "smoke.bin", "rb");
  if (file == NULL) {
    perror("smoke.bin");
    return 2;
  }
  tvmconv_name_network *network;
  check("open", tvmconv_name_open(&network));
  const void *inputs[tvmconv_name_INPUTS + 1];
  void *outputs[tvmconv_name_OUTPUTS + 1];
  for (int i = 0; i < tvmconv_name_INPUTS; ++i) inputs[i] = block_of(file, tvmconv_name_inputs[i].bytes);
  for (int i = 0; i < tvmconv_name_OUTPUTS; ++i) outputs[i] = block(tvmconv_name_outputs[i].bytes);
  check("run", tvmconv_name_run(network, inputs, outputs));
  int bad = 0;
  for (int i = 0; i < tvmconv_name_OUTPUTS; ++i) {
    const tvmconv_name_tensor *tensor = &tvmconv_name_outputs[i];
    const void *expected = block_of(file, tensor->bytes);
    double error = 0, norm = 0;
    size_t other = 0;
    for (size_t k = 0; k < tensor->elements; ++k) {
      double a = number(tensor, outputs[i], k), b = number(tensor, expected, k);
      if (!isfinite(b) || !isfinite(a)) {
        other += !(a == b || (isnan(a) && isnan(b)));
        continue;
      }
      error += (a - b) * (a - b);
      norm += b * b;
    }
    const double least = 1e-4 * sqrt((double)tensor->elements); /* of the mean, below which outputs are compared as if they were so large */
    error = sqrt(error) / (sqrt(norm) > least ? sqrt(norm) : least);
    printf("%s: relative L2 error %.2g\n", tensor->name, error);
    bad += other > 0 || !(error <= tvmconv_name_SMOKE_ERROR);
  }
  fclose(file);
  tvmconv_name_close(network);
  return bad ? 1 : 0;
}
