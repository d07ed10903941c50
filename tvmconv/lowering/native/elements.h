/* Vectors of f32, the widest of the CPU that a file is compiled for, loaded from and stored as f32 or bf16. */
#include <stdint.h>
#include <string.h>

#include "vectors.h"

#define INLINE static inline __attribute__((always_inline))
#define BYTES __BIGGEST_ALIGNMENT__ /* of a vector */
#define LANES (BYTES / (int64_t)sizeof(float))
typedef float F32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef int32_t I32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef uint32_t U32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef uint16_t U16 __attribute__((vector_size(BYTES / 2), aligned(2), may_alias));

/* Types of elements: f32, and bf16, unless a file is compiled for a network that has none (WHOLE_ALONE). */
enum { WHOLE, HALF };
#define SIZE(type) ((type) == HALF ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float))

INLINE F32 load(const char* from, int type) {
  if (type == WHOLE) return *(const F32*)from;
  return (F32)(__builtin_convertvector(*(const U16*)from, U32) << 16);
}

/* Rounds to bf16, to the nearest, the even one of two; NaN stays NaN. */
INLINE U16 narrow(F32 value) {
  const U32 bits = (U32)value, high = bits >> 16;
  const U32 none = (U32)(value != value);
  return __builtin_convertvector(((((bits + 0x7fff + (high & 1)) >> 16) & ~none) | ((high | 0x40) & none)), U16);
}

INLINE void store(char* to, F32 value, int type) {
  if (type == WHOLE)
    *(F32*)to = value;
  else
    *(U16*)to = narrow(value);
}

/* Fewer elements than a vector's. */
INLINE void copy_some(char* to, const char* from, int64_t bytes) {
#pragma GCC unroll 8
  for (int64_t part = BYTES / 2; part >= 2; part /= 2)
    if (bytes & part) {
      memcpy(to, from, part);
      to += part;
      from += part;
    }
}

INLINE F32 load_some(const char* from, int64_t count, int type) {
  char room[BYTES] __attribute__((aligned(BYTES))) = {0};
  copy_some(room, from, count * SIZE(type));
  return load(room, type);
}

INLINE void store_some(char* to, F32 value, int64_t count, int type) {
  char room[BYTES] __attribute__((aligned(BYTES)));
  store(room, value, type);
  copy_some(to, room, count * SIZE(type));
}

INLINE void narrow_row(const float* from, int64_t count, char* to) {
  for (int64_t at = 0; at < count; at += LANES) {
    if (at + LANES <= count)
      store(to + at * SIZE(HALF), *(const F32*)(from + at), HALF);
    else
      store_some(to + at * SIZE(HALF), load_some((const char*)(from + at), count - at, WHOLE), count - at, HALF);
  }
}

#define SELECT(takes, a, b) ((F32)(((I32)(a) & (takes)) | ((I32)(b) & ~(takes))))

/* The greater; what there was before, where either is NaN. */
INLINE F32 greater_number(F32 most, F32 value) {
#if defined GREATER_OF_16 && __BIGGEST_ALIGNMENT__ == 64
  return (F32)GREATER_OF_16(value, most);
#elif defined GREATER_OF_8 && __BIGGEST_ALIGNMENT__ == 32
  return (F32)GREATER_OF_8(value, most);
#else
  return SELECT(value > most, value, most);
#endif
}

/* NaN is greater than any number, as for PyTorch. */
INLINE F32 greater(F32 most, F32 value) {
  const I32 takes = (value > most) | (value != value);
  return SELECT(takes, value, most);
}

/* Returns whether no element is NaN. */
INLINE int is_finite(F32 poison) {
  const I32 none = poison != poison;
  int32_t any = 0;
  for (int lane = 0; lane < LANES; lane++) any |= none[lane];
  return !any;
}
