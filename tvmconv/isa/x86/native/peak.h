/* Vectors, dot products of bf16 and of 8-bit integers, and tiles of x86-64, for the machine's peak (tvmconv/measuring/peak.c). */
#pragma once
#if defined(__AVX512BF16__) || defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__AMX_BF16__)
#include <immintrin.h>
#endif
#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Sums that stay in registers beside the two operands: 16, or AVX-512's 32. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define SUMS 20
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define SUMS 12
#else
#define VECTOR_BYTES 16
#define SUMS 12
#endif

#if defined(__AVX512BF16__)
#define PAIRS __m512bh
#define AS_PAIRS(number) ((__m512bh)_mm512_set1_ps(number))
#define ADD_PRODUCTS(sum, left, right) ((vector)_mm512_dpbf16_ps((__m512)(sum), left, right))
#endif

#if defined(__AVX512VNNI__)
#define BYTES __m512i
#define AS_BYTES(number) ((__m512i)_mm512_set1_ps(number))
#define ADD_BYTES(sum, left, right) ((vector)_mm512_dpbusd_epi32((__m512i)(sum), left, right))
#elif defined(__AVXVNNI__)
#define BYTES __m256i
#define AS_BYTES(number) ((__m256i)_mm256_set1_ps(number))
#define ADD_BYTES(sum, left, right) ((vector)_mm256_dpbusd_avx_epi32((__m256i)(sum), left, right))
#endif

#if defined(__AMX_BF16__)
#define TILES 8
#define TILE_PRODUCTS 8192 /* of two full ones */

/* Returns whether Linux lets this process use tiles (Documentation/arch/x86/xstate.rst). */
static int allow_tiles(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

/* `steps` times four products of full tiles, two by two, whose operands stay in registers; the last sums go to `mine`. */
static void multiply_tiles(int64_t steps, const float *operands, float *mine) {
  struct {
    uint8_t palette, start, reserved[14];
    uint16_t columns[16];
    uint8_t rows[16];
  } shapes = {1};
  for (int i = 0; i < TILES; i++) shapes.columns[i] = 64, shapes.rows[i] = 16;
  _tile_loadconfig(&shapes);
  _tile_loadd(4, operands, 64);
  _tile_loadd(5, operands, 64);
  _tile_loadd(6, operands, 64);
  _tile_loadd(7, operands, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < steps; step++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, mine, 64);
  _tile_release();
}
#endif
