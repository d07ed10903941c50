/* Vectors, and dot products of bf16 and of 8-bit integers, of 64-bit ARM, for the machine's peak (tvmconv/measuring/peak.c). */
#pragma once
#include <arm_neon.h>

#define VECTOR_BYTES 16
#define SUMS 20 /* as many as stay in the 32 registers beside the two operands */
/* An instruction adds to a register that it overwrites: the factor times the sum would be copied each time. */
#define ADD_PRODUCT(sum, factor, addend) ((vector)vfmaq_f32((float32x4_t)(sum), (float32x4_t)(factor), (float32x4_t)(addend)))

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define PAIRS bfloat16x8_t
#define AS_PAIRS(number) vreinterpretq_bf16_f32(vdupq_n_f32(number))
#define ADD_PRODUCTS(sum, left, right) ((vector)vbfdotq_f32((float32x4_t)(sum), left, right))
#endif

#if defined(__ARM_FEATURE_DOTPROD)
#define BYTES int8x16_t
#define AS_BYTES(number) vreinterpretq_s8_f32(vdupq_n_f32(number))
#define ADD_BYTES(sum, left, right) ((vector)vdotq_s32((int32x4_t)(sum), left, right))
#endif
