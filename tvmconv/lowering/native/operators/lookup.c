/* Maps of bytes by a table of 256. Compiled for the widest vectors of the CPU that the network is for. */
#include <stdint.h>

#include "parallel.h"
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

typedef struct {
  const uint8_t *table, *from;
  uint8_t* to;
  int64_t count;
} Lookup;

#define AT_ONCE 16384 /* bytes that a thread takes */

#if defined(__AVX512VBMI__)
#define STEP 64
/* Each instruction looks up in 128 bytes, and ignores an index's first bit, which chooses the half. */
static void look_up_vectors(const uint8_t* table, const uint8_t* from, uint8_t* to, int64_t count) {
  __m512i parts[4];
  for (int part = 0; part < 4; part++) parts[part] = _mm512_loadu_si512(table + 64 * part);
  for (int64_t at = 0; at < count; at += STEP) {
    const __m512i x = _mm512_loadu_si512(from + at);
    const __m512i low = _mm512_permutex2var_epi8(parts[0], x, parts[1]), high = _mm512_permutex2var_epi8(parts[2], x, parts[3]);
    _mm512_storeu_si512(to + at, _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high));
  }
}
#elif defined(__AVX2__)
#define STEP 64
/* Rows of 16, chosen by a byte's first four bits. vpshufb gives 0 where an index is negative, so that each row's difference (xor) to
 * the one before is applied where the byte, less 16 for each row before, is not. Bytes from 128 on are negative: they have rows of their own. */
static void rows_of(const uint8_t* table, __m256i* rows) {
  for (int row = 0; row < 16; row++) {
    const __m128i own = _mm_loadu_si128((const __m128i*)(table + 16 * row));
    const __m128i before = row % 8 ? _mm_loadu_si128((const __m128i*)(table + 16 * row - 16)) : _mm_setzero_si128();
    rows[row] = _mm256_broadcastsi128_si256(_mm_xor_si128(own, before));
  }
}

static void look_up_vectors(const uint8_t* table, const uint8_t* from, uint8_t* to, int64_t count) {
  const __m256i row = _mm256_set1_epi8(16), half = _mm256_set1_epi8(-128);
  __m256i rows[16];
  rows_of(table, rows);
  for (int64_t at = 0; at < count; at += STEP) {
    __m256i x[2], y[2], made[2];
    for (int each = 0; each < 2; each++) {
      x[each] = _mm256_loadu_si256((const __m256i*)(from + at) + each);
      y[each] = _mm256_xor_si256(x[each], half);
      made[each] = _mm256_setzero_si256();
    }
#pragma GCC unroll 8
    for (int which = 0; which < 8; which++)
      for (int each = 0; each < 2; each++) {
        made[each] = _mm256_xor_si256(made[each], _mm256_xor_si256(_mm256_shuffle_epi8(rows[which], x[each]),
                                                                   _mm256_shuffle_epi8(rows[which + 8], y[each])));
        x[each] = _mm256_subs_epi8(x[each], row);
        y[each] = _mm256_subs_epi8(y[each], row);
      }
    for (int each = 0; each < 2; each++) _mm256_storeu_si256((__m256i*)(to + at) + each, made[each]);
  }
}
#elif defined(__ARM_NEON) && defined(__aarch64__)
#define STEP 16
/* Each instruction looks up in 64 bytes, and ignores larger indices. */
static void look_up_vectors(const uint8_t* table, const uint8_t* from, uint8_t* to, int64_t count) {
  uint8x16x4_t parts[4];
  for (int part = 0; part < 4; part++)
    for (int row = 0; row < 4; row++) parts[part].val[row] = vld1q_u8(table + 64 * part + 16 * row);
  for (int64_t at = 0; at < count; at += STEP) {
    const uint8x16_t x = vld1q_u8(from + at);
    uint8x16_t made = vqtbl4q_u8(parts[0], x);
    for (int part = 1; part < 4; part++) made = vqtbx4q_u8(made, parts[part], vsubq_u8(x, vdupq_n_u8(64 * part)));
    vst1q_u8(to + at, made);
  }
}
#else
#define STEP 1
static void look_up_vectors(const uint8_t* table, const uint8_t* from, uint8_t* to, int64_t count) {
  for (int64_t at = 0; at < count; at++) to[at] = table[from[at]];
}
#endif

static int look_up(void* context, int64_t task) {
  const Lookup* lookup = context;
  const int64_t first = task * AT_ONCE, left = lookup->count - first, count = left < AT_ONCE ? left : AT_ONCE;
  const int64_t whole = count / STEP * STEP;
  const uint8_t* from = lookup->from + first;
  uint8_t* to = lookup->to + first;
  look_up_vectors(lookup->table, from, to, whole);
  for (int64_t at = whole; at < count; at++) to[at] = lookup->table[from[at]];
  return 0;
}

/* to[i] = table[from[i]]. Of few elements, which take some microseconds, by the caller's thread alone. */
#define FEW 32768

void tvmconv_network_lookup(const void* from, const void* table, void* to, int64_t count) {
  Lookup lookup = {table, from, to, count};
  const int64_t tasks = (count + AT_ONCE - 1) / AT_ONCE;
  if (count >= FEW)
    tvmconv_share(tasks, look_up, &lookup);
  else
    for (int64_t task = 0; task < tasks; task++) look_up(&lookup, task);
}
