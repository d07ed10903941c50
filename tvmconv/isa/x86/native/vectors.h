/* Operations that GCC's vectors lack, as instructions of x86-64; of another number of lanes there is none. */
#pragma once

#include <immintrin.h>

/* The greater of two vectors' elements; of the second where one is no number. */
#define GREATER_OF_16(a, b) _mm512_max_ps((__m512)(a), (__m512)(b))
#define GREATER_OF_8(a, b) _mm256_max_ps((__m256)(a), (__m256)(b))
