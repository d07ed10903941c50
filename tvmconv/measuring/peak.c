/* Limits of this machine that a convolution can meet, measured with all threads; and the distance between the threads.
 *
 * Compiled with -O3 -march=... -ffp-contract=fast -fopenmp where it runs (tvmconv/measuring/peak.py). */

#include <omp.h>
#include <stdatomic.h>
#include <stdint.h>

#include "peak.h"

#define LANES (VECTOR_BYTES / 4)

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

/* Independent sums: more than latency x throughput of any fused multiply-add (4 to 5 cycles, 2 a cycle) and bf16 dot
 * product (Zen 5 does 2 a cycle, of twelve sums 1.85; ARM up to 4), and few enough to stay in registers beside the two operands.
 * Named one by one, because an array of them is kept in memory. */
#define TWELVE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#if SUMS == 20
#define EACH_SUM(DO) TWELVE(DO) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19)
#else
#define EACH_SUM(DO) TWELVE(DO)
#endif
#define START(i) vector sum##i = (vector){0} + numbers[2 + i];
#if defined(ADD_PRODUCT)
#define MULTIPLY_ADD(i) sum##i = ADD_PRODUCT(sum##i, factor, addend);
#else
#define MULTIPLY_ADD(i) sum##i = sum##i * factor + addend;
#endif
#define ADD_PAIR(i) sum##i = ADD_PRODUCTS(sum##i, left, right);
#define ADD_FOUR(i) sum##i = ADD_BYTES(sum##i, left, right);
/* Times dot products whose operands stay the same: a function's body. */
#define TIME_PRODUCTS(OPERANDS, AS_OPERANDS, ADD, TERMS)                      \
  float total = 0;                                                            \
  double start = omp_get_wtime();                                             \
  _Pragma("omp parallel num_threads(threads) reduction(+ : total)") {         \
    OPERANDS left = AS_OPERANDS(numbers[0]), right = AS_OPERANDS(numbers[1]); \
    EACH_SUM(START)                                                           \
    for (int64_t step = 0; step < steps; step++) {                            \
      EACH_SUM(ADD)                                                           \
    }                                                                         \
    EACH_SUM(READ)                                                            \
  }                                                                           \
  double seconds = omp_get_wtime() - start;                                   \
  *sink = total;                                                              \
  return 2.0 * TERMS * SUMS * LANES * (double)steps * threads / seconds;
#define READ(i) total += sum##i[0];

/* `steps` rounds of SUMS multiply-adds; returns a number made of all sums. `numbers` holds the factor, the addend and
 * where each sum starts: all from outside and all different, so that the compiler cannot compute or merge the sums. */
static float multiply_add(int64_t steps, const float* numbers) {
  float total = 0;
  vector factor = (vector){0} + numbers[0], addend = (vector){0} + numbers[1];
  EACH_SUM(START)
  for (int64_t step = 0; step < steps; step++) {
    EACH_SUM(MULTIPLY_ADD)
  }
  EACH_SUM(READ)
  return total;
}

/* Operations per second of `threads` threads that do `steps` rounds each. */
double tvmconv_operations_per_second(int threads, int64_t steps, const float* numbers, float* sink) {
  float total = 0;
  double start = omp_get_wtime();
#pragma omp parallel num_threads(threads) reduction(+ : total)
  total += multiply_add(steps, numbers);
  double seconds = omp_get_wtime() - start;
  *sink = total;
  return 2.0 * SUMS * LANES * (double)steps * threads / seconds;
}

/* Returns the least share of the first thread's speed, as it is while the others wait, that each of `threads` threads has while all
 * compute. */
double tvmconv_share(int threads, int64_t steps, const float* numbers, float* sink) {
  float total = 0;
  double alone = 0, together = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total) reduction(max : alone, together)
  {
    double start;
#pragma omp barrier
    if (omp_get_thread_num() == 0) {
      start = omp_get_wtime();
      total += multiply_add(steps, numbers);
      alone = omp_get_wtime() - start;
    }
#pragma omp barrier
    start = omp_get_wtime();
    total += multiply_add(steps, numbers);
    together = omp_get_wtime() - start;
  }
  *sink = total;
  return alone / together;
}

/* The same of dot products of bf16 pairs, two multiply-adds a lane; 0 where there is no such instruction. Its operands
 * are the bits of `numbers`, whatever these are as bf16: operands are constant, only the sums change. */
double tvmconv_bf16_operations_per_second(int threads, int64_t steps, const float* numbers, float* sink) {
#ifdef ADD_PRODUCTS
  TIME_PRODUCTS(PAIRS, AS_PAIRS, ADD_PAIR, 2)
#else
  (void)threads, (void)steps, (void)numbers, (void)sink;
  return 0;
#endif
}

/* The same of 8-bit integers, four multiply-adds a lane. */
double tvmconv_integer_operations_per_second(int threads, int64_t steps, const float* numbers, float* sink) {
#ifdef ADD_BYTES
  TIME_PRODUCTS(BYTES, AS_BYTES, ADD_FOUR, 4)
#else
  (void)threads, (void)steps, (void)numbers, (void)sink;
  return 0;
#endif
}

/* The same of tiles, two by two full ones whose operands stay in registers; 0 where there are none, or the system lets this
 * process use none. An eighth of `steps`, each of which takes some eight times as long as one of multiply-adds. */
double tvmconv_tile_operations_per_second(int threads, int64_t steps, const float* numbers, float* sink) {
#ifdef TILES
  if (!allow_tiles()) return 0;
  float sums[256], operands[256];
  for (int i = 0; i < 256; i++) operands[i] = numbers[1];
  double start = omp_get_wtime();
#pragma omp parallel num_threads(threads)
  {
    float mine[256];
    multiply_tiles(steps / 8, operands, mine);
#pragma omp critical
    for (int i = 0; i < 256; i++) sums[i] = mine[i];
  }
  double seconds = omp_get_wtime() - start;
  *sink = sums[0];
  return 4 * 2.0 * TILE_PRODUCTS * (double)(steps / 8) * threads / seconds;
#else
  (void)threads, (void)steps, (void)numbers, (void)sink;
  return 0;
#endif
}

/* Bytes per second of `threads` threads that together read `count` floats once. */
double tvmconv_bytes_per_second(int threads, const float* data, int64_t count, float* sink) {
  float total = 0;
  double start = omp_get_wtime();
#pragma omp parallel for simd num_threads(threads) schedule(static) reduction(+ : total)
  for (int64_t i = 0; i < count; i++) total += data[i];
  double seconds = omp_get_wtime() - start;
  *sink = total;
  return (double)count * sizeof(float) / seconds;
}

/* Round trips that are timed together: the clock counts in steps of 10 ns or more. And the time to stop, where other processes
 * take the processor of one of the two threads. */
#define TRIPS 16
#define MOST_SECONDS 2e-3

/* Seconds that a cache line takes from the first thread to another and back, of the farthest one: the least of `times`
 * measurements, so that what interrupts one does not count. */
double tvmconv_round_trip(int threads, int times) {
  static _Alignas(128) atomic_int ball; /* odd: the other one's turn; negative: the end */
  double farthest = 0;
#pragma omp parallel num_threads(threads)
  for (int other = 1; other < omp_get_num_threads(); other++) {
    if (omp_get_thread_num() == 0) atomic_store(&ball, 0);
#pragma omp barrier
    if (omp_get_thread_num() == 0) {
      double begin = omp_get_wtime(), least = 1;
      for (int time = 0; time < times && omp_get_wtime() - begin < MOST_SECONDS; time++) {
        double start = omp_get_wtime();
        for (int trip = 0; trip < TRIPS; trip++) {
          atomic_fetch_add(&ball, 1);
          while (atomic_load(&ball) & 1);
        }
        double seconds = (omp_get_wtime() - start) / TRIPS;
        if (seconds < least) least = seconds;
      }
      atomic_store(&ball, -2);
      if (least > farthest) farthest = least;
    } else if (omp_get_thread_num() == other) {
      for (int now = 0; now >= 0; now = atomic_load(&ball)) {
        if (now & 1) atomic_fetch_add(&ball, 1);
      }
    }
#pragma omp barrier
  }
  return farthest;
}
