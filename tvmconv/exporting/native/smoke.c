/* Runs every kernel of the library on integers and compares with smoke-answers.h. Exits with 77 if this CPU does not run all. */
#include "tvmconv_name.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smoke-answers.h"

enum { MOST_INPUTS = 8 };

static uint64_t mixed(uint64_t bits) {
  bits += 0x9E3779B97F4A7C15u;
  bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ bits >> 27) * 0x94D049BB133111EBu;
  return bits ^ bits >> 31;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Stores a small integer or half, which every type represents. */
static void store(const char *type, void *array, size_t at, float value) {
  uint32_t bits = bits_of(value);
  if (strcmp(type, "f32") == 0)
    ((float *)array)[at] = value;
  else if (strcmp(type, "u8") == 0)
    ((uint8_t *)array)[at] = (uint8_t)value;
  else if (strcmp(type, "s8") == 0)
    ((int8_t *)array)[at] = (int8_t)value;
  else if (strcmp(type, "s16") == 0)
    ((int16_t *)array)[at] = (int16_t)value;
  else if (strcmp(type, "s32") == 0)
    ((int32_t *)array)[at] = (int32_t)value;
  else if (strcmp(type, "bf16") == 0)
    ((uint16_t *)array)[at] = (uint16_t)(bits >> 16);
  else /* f16: another exponent bias, and fewer mantissa bits */
    ((uint16_t *)array)[at] = (uint16_t)(value == 0 ? 0 : (bits >> 16 & 0x8000) | (((bits >> 13) & 0x3FFFF) - (112u << 10)));
}

static double load(const char *type, const void *array, size_t at) {
  uint32_t bits;
  float value;
  if (strcmp(type, "f32") == 0) return ((const float *)array)[at];
  if (strcmp(type, "u8") == 0) return ((const uint8_t *)array)[at];
  if (strcmp(type, "s8") == 0) return ((const int8_t *)array)[at];
  if (strcmp(type, "s32") == 0) return ((const int32_t *)array)[at];
  bits = ((const uint16_t *)array)[at];
  if (strcmp(type, "bf16") == 0) {
    bits <<= 16;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  double magnitude = (bits >> 10 & 31) ? ldexp((double)((bits & 1023) | 1024), (int)(bits >> 10 & 31) - 25)
                                       : ldexp((double)(bits & 1023), -24);
  if ((bits >> 10 & 31) == 31) magnitude = (bits & 1023) ? (double)NAN : (double)INFINITY;
  return bits >> 15 ? -magnitude : magnitude;
}

static void *draw(const tvmconv_name_array *array, const struct answer *answer) {
  static const char *const names[] = {"data", "filter", "bias", "scale", "slope", "residual"};
  uint64_t seed = 0;
  while (strcmp(names[seed], array->name) != 0) ++seed;
  int largest = seed == 0 ? answer->data_range : seed == 1 ? answer->filter_range : ADDED_RANGE;
  void *made = malloc(array->bytes + 1);
  for (size_t i = 0; made != NULL && i < array->elements; ++i) {
    uint64_t bits = mixed(i + ((seed + 1) << 40));
    int upper = (int)(bits >> 33);
    float value = seed == 3 || seed == 4 ? factors[upper % FACTORS] : (float)(upper % (2 * largest + 1) - largest);
    if (seed == 0 && (int)(bits & 0xFFFFFF) >= answer->dense) value = 0;
    if (seed < 2) value += (float)(seed == 0 ? answer->data_middle : answer->filter_middle);
    store(array->type, made, i, value);
  }
  if (made == NULL) exit(2);
  return made;
}

/* Returns 0 if an output is the expected one. */
static int compare(const tvmconv_name_array *array, const void *output, const struct answer *answer) {
  if (answer->exact) {
    uint64_t sum = 0;
    for (size_t i = 0; i < array->elements; ++i) {
      uint64_t bits = 0;
      memcpy(&bits, (const char *)output + i * (array->bytes / array->elements), array->bytes / array->elements);
      if (load(array->type, output, i) == 0) bits = 0;
      sum += mixed(bits ^ (uint64_t)i << 32);
    }
    return sum != answer->checksum;
  }
  double wrong = 0, right = 0;
  for (size_t i = 0; array->elements > 0 && i < SAMPLES; ++i) {
    double got = load(array->type, output, i * array->elements / SAMPLES);
    wrong += (got - answer->samples[i]) * (got - answer->samples[i]);
    right += answer->samples[i] * answer->samples[i];
  }
  return !(sqrt(wrong) <= answer->error * (right > 0 ? sqrt(right) : 1)); /* a NaN is wrong, too */
}

static int failed(const char *name, const char *how, int status, int wrong) {
  if (status != tvmconv_name_OK)
    printf("%s (%s): %s\n", name, how, tvmconv_name_error_string(status));
  else if (wrong)
    printf("%s (%s): another answer than stored\n", name, how);
  return status != tvmconv_name_OK || wrong;
}

static int try_kernel(const tvmconv_name_kernel *kernel, const struct answer *answer) {
  const void *inputs[MOST_INPUTS];
  const tvmconv_name_array *result = &kernel->arrays[kernel->inputs];
  int bad = 0;
  for (int i = 0; i < kernel->inputs; ++i) inputs[i] = draw(&kernel->arrays[i], answer);
  void *output = malloc(result->bytes + 1), *packed = malloc(kernel->packed_bytes() + 1);
  if (output == NULL || packed == NULL) exit(2);
  memset(output, 0xFF, result->bytes);
  int status = kernel->run(NULL, inputs, output);
  bad += failed(kernel->signature, "plain filter", status, compare(result, output, answer));
  memset(output, 0xFF, result->bytes);
  status = kernel->pack(inputs[1], packed);
  const void *filter = inputs[1];
  inputs[1] = packed;
  if (status == tvmconv_name_OK) status = kernel->run_packed(NULL, inputs, output);
  bad += failed(kernel->signature, "packed filter", status, compare(result, output, answer));
  inputs[1] = filter;
  for (int i = 0; i < kernel->inputs; ++i) free((void *)(uintptr_t)inputs[i]);
  free(output);
  free(packed);
  return bad;
}

int main(void) {
  int bad = 0;
  if (!tvmconv_name_supported()) {
    printf("this CPU runs not all kernels: %s\n", tvmconv_name_error_string(tvmconv_name_ERROR_CPU));
    return 77;
  }
  for (int i = 0; i < tvmconv_name_kernel_count; ++i) bad += try_kernel(tvmconv_name_kernels[i], &kernel_answers[i]);
  printf("%d kernels, %d wrong\n", tvmconv_name_kernel_count, bad);
  return bad != 0;
}
