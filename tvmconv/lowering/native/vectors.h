/* The widest vectors of the CPU that this is compiled for, as GCC's. Its instruction set says in intrinsics.h how many BYTES they
 * have, how to take a SQUARE_ROOT (the mathematical library is not linked), and what it does better than plain C does here. */
#pragma once
#include <stdint.h>

#include "intrinsics.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES (BYTES / 4)

typedef float F32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef float F32x4 __attribute__((vector_size(16)));
typedef int32_t I32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef uint32_t U32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef int16_t I16 __attribute__((vector_size(BYTES), aligned(2), may_alias));
typedef uint16_t U16 __attribute__((vector_size(BYTES / 2), aligned(2), may_alias));
typedef uint16_t WholeU16 __attribute__((vector_size(BYTES), aligned(2), may_alias));

#ifndef GREATEST
#define TAKES(a, b, first) (((a) & (I16)(first)) | ((b) & ~(I16)(first)))
#define GREATEST(a, b) TAKES(a, b, (a) > (b))
#define LEAST(a, b) TAKES(a, b, (a) < (b))
#define GREATEST_UNSIGNED(a, b) TAKES(a, b, (WholeU16)(a) > (WholeU16)(b))
#endif
#ifndef WIDEN
#define WIDEN(row) __builtin_convertvector(*(const U16*)(row), U32)
#define NARROW(row, bits) (*(U16*)(row) = __builtin_convertvector(bits, U16))
#endif

#ifndef TRANSPOSE4
/* Of four rows of four: columns become rows. */
INLINE void TRANSPOSE4(F32x4* rows) {
  typedef int32_t Order __attribute__((vector_size(16)));
  const Order low = {0, 4, 1, 5}, high = {2, 6, 3, 7};
  F32x4 even = __builtin_shuffle(rows[0], rows[2], low), even_high = __builtin_shuffle(rows[0], rows[2], high);
  F32x4 odd = __builtin_shuffle(rows[1], rows[3], low), odd_high = __builtin_shuffle(rows[1], rows[3], high);
  rows[0] = __builtin_shuffle(even, odd, low);
  rows[1] = __builtin_shuffle(even, odd, high);
  rows[2] = __builtin_shuffle(even_high, odd_high, low);
  rows[3] = __builtin_shuffle(even_high, odd_high, high);
}
#endif
