/* Vectors of AVX2 and of AVX-512: their size, and what GCC's vectors lack. The types are those of lowering/native/vectors.h. */
#pragma once
#include <immintrin.h>

#ifdef __AVX512BW__
#define BYTES 64
#define GREATEST(a, b) ((I16)_mm512_max_epi16((__m512i)(a), (__m512i)(b)))
#define LEAST(a, b) ((I16)_mm512_min_epi16((__m512i)(a), (__m512i)(b)))
#define GREATEST_UNSIGNED(a, b) ((I16)_mm512_max_epu16((__m512i)(a), (__m512i)(b)))
#define WIDEN(row) ((U32)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(row))))
#define NARROW(row, bits) _mm256_storeu_si256((__m256i*)(row), _mm512_cvtepi32_epi16((__m512i)(bits)))
#else
#define BYTES 32
#define GREATEST(a, b) ((I16)_mm256_max_epi16((__m256i)(a), (__m256i)(b)))
#define LEAST(a, b) ((I16)_mm256_min_epi16((__m256i)(a), (__m256i)(b)))
#define GREATEST_UNSIGNED(a, b) ((I16)_mm256_max_epu16((__m256i)(a), (__m256i)(b)))
#define WIDEN(row) ((U32)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)(row))))
#define HALF(bits, half) _mm256_extracti128_si256((__m256i)(bits), half)
#define NARROW(row, bits) _mm_storeu_si128((__m128i*)(row), _mm_packus_epi32(HALF(bits, 0), HALF(bits, 1)))
#endif

/* Of four rows of four: columns become rows. */
#define TRANSPOSE4(rows) _MM_TRANSPOSE4_PS((rows)[0], (rows)[1], (rows)[2], (rows)[3])
#define SQUARE_ROOT(value) _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(value)))
