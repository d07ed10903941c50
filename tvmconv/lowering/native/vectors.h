/* The widest vectors of the CPU that this is compiled for, as GCC's: what those lack, by intrinsics of x86, and in plain C. */
#pragma once
#include <stdint.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#ifdef __AVX512BW__
#define BYTES 64
#elif defined __AVX2__
#define BYTES 32
#else
#define BYTES 16
#endif
#define LANES (BYTES / 4)

typedef float F32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef float F32x4 __attribute__((vector_size(16)));
typedef int32_t I32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef uint32_t U32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef int16_t I16 __attribute__((vector_size(BYTES), aligned(2), may_alias));
typedef uint16_t U16 __attribute__((vector_size(BYTES / 2), aligned(2), may_alias));
typedef uint16_t WholeU16 __attribute__((vector_size(BYTES), aligned(2), may_alias));

#ifdef __AVX512BW__
#define GREATEST(a, b) ((I16)_mm512_max_epi16((__m512i)(a), (__m512i)(b)))
#define LEAST(a, b) ((I16)_mm512_min_epi16((__m512i)(a), (__m512i)(b)))
#define GREATEST_UNSIGNED(a, b) ((I16)_mm512_max_epu16((__m512i)(a), (__m512i)(b)))
#define WIDEN(row) ((U32)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(row))))
#define NARROW(row, bits) _mm256_storeu_si256((__m256i*)(row), _mm512_cvtepi32_epi16((__m512i)(bits)))
#elif defined __AVX2__
#define GREATEST(a, b) ((I16)_mm256_max_epi16((__m256i)(a), (__m256i)(b)))
#define LEAST(a, b) ((I16)_mm256_min_epi16((__m256i)(a), (__m256i)(b)))
#define GREATEST_UNSIGNED(a, b) ((I16)_mm256_max_epu16((__m256i)(a), (__m256i)(b)))
#define WIDEN(row) ((U32)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)(row))))
#define HALF(bits, half) _mm256_extracti128_si256((__m256i)(bits), half)
#define NARROW(row, bits) _mm_storeu_si128((__m128i*)(row), _mm_packus_epi32(HALF(bits, 0), HALF(bits, 1)))
#else
#define TAKES(a, b, first) (((a) & (I16)(first)) | ((b) & ~(I16)(first)))
#define GREATEST(a, b) TAKES(a, b, (a) > (b))
#define LEAST(a, b) TAKES(a, b, (a) < (b))
#define GREATEST_UNSIGNED(a, b) TAKES(a, b, (WholeU16)(a) > (WholeU16)(b))
#define WIDEN(row) __builtin_convertvector(*(const U16*)(row), U32)
#define NARROW(row, bits) (*(U16*)(row) = __builtin_convertvector(bits, U16))
#endif

/* Of four rows of four: columns become rows. */
INLINE void transpose4(F32x4* rows) {
#ifdef __x86_64__
  _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
#else
  typedef int32_t Order __attribute__((vector_size(16)));
  const Order low = {0, 4, 1, 5}, high = {2, 6, 3, 7};
  F32x4 even = __builtin_shuffle(rows[0], rows[2], low), even_high = __builtin_shuffle(rows[0], rows[2], high);
  F32x4 odd = __builtin_shuffle(rows[1], rows[3], low), odd_high = __builtin_shuffle(rows[1], rows[3], high);
  rows[0] = __builtin_shuffle(even, odd, low);
  rows[1] = __builtin_shuffle(even, odd, high);
  rows[2] = __builtin_shuffle(even_high, odd_high, low);
  rows[3] = __builtin_shuffle(even_high, odd_high, high);
#endif
}

/* By an instruction: the mathematical library is not linked. */
INLINE float square_root(float value) {
#ifdef __x86_64__
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(value)));
#else
  float root;
  __asm__("fsqrt %s0, %s1" : "=w"(root) : "w"(value));
  return root;
#endif
}
