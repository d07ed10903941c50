/* Operations that GCC's vectors lack, as instructions of x86-64; of another number of lanes there is none.
 *
 * By the builtins of GCC and of clang: <immintrin.h> has 65,000 lines, which took half of a file's compilation.
 */
#pragma once

typedef float Lanes16 __attribute__((vector_size(64), may_alias));
typedef float Lanes8 __attribute__((vector_size(32), may_alias));

/* The greater of two vectors' elements; of the second where one is no number. */
#ifdef __AVX512F__
static inline __attribute__((always_inline)) Lanes16 greatest_sixteen(Lanes16 a, Lanes16 b) {
#ifdef __clang__
  return __builtin_ia32_maxps512(a, b, 4);
#else
  return __builtin_ia32_maxps512_mask(a, b, (Lanes16){}, -1, 4);
#endif
}
#define GREATER_OF_16(a, b) greatest_sixteen((Lanes16)(a), (Lanes16)(b))
#endif
#ifdef __AVX__
static inline __attribute__((always_inline)) Lanes8 greatest_eight(Lanes8 a, Lanes8 b) {
  return __builtin_ia32_maxps256(a, b);
}
#define GREATER_OF_8(a, b) greatest_eight((Lanes8)(a), (Lanes8)(b))
#endif
