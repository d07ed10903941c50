/* The limits of this machine that a convolution can meet, measured with all threads; and how far these are apart.
 *
 * Compiled with -O3 -march=... -ffp-contract=fast -fopenmp where it runs (tvmconv/measuring/peak.py). */

#include <omp.h>
#include <stdatomic.h>
#include <stdint.h>
#if defined(__AVX512BF16__) || defined(__AMX_BF16__)
#include <immintrin.h>
#endif
#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16 /* SSE, NEON */
#endif
#define LANES (VECTOR_BYTES / 4)

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

/* Independent sums: more than latency x throughput of any fused multiply-add (4 to 5 cycles, 2 a cycle) and bf16 dot
 * product (Zen 5 does 2 a cycle, of twelve sums 1.85), and few enough to stay in registers beside the two operands: 16,
 * or AVX-512's 32. Named one by one, because an array of them is kept in memory. */
#define TWELVE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#if defined(__AVX512F__)
#define SUMS 20
#define EACH_SUM(DO) TWELVE(DO) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19)
#else
#define SUMS 12
#define EACH_SUM(DO) TWELVE(DO)
#endif
#define START(i) vector sum##i = (vector){0} + numbers[2 + i];
#define MULTIPLY_ADD(i) sum##i = sum##i * factor + addend;
#define DOT_PRODUCT(i) sum##i = (vector)_mm512_dpbf16_ps((__m512)sum##i, left, right);
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

/* How much of the first thread's speed while the others wait, each of `threads` threads has at the least while all
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
 * are the bits of `numbers`, whatever they are as bf16: they stay what they are, only the sums change. */
double tvmconv_bf16_operations_per_second(int threads, int64_t steps, const float* numbers, float* sink) {
#if defined(__AVX512BF16__)
  float total = 0;
  double start = omp_get_wtime();
#pragma omp parallel num_threads(threads) reduction(+ : total)
  {
    __m512bh left = (__m512bh)_mm512_set1_ps(numbers[0]), right = (__m512bh)_mm512_set1_ps(numbers[1]);
    EACH_SUM(START)
    for (int64_t step = 0; step < steps; step++) {
      EACH_SUM(DOT_PRODUCT)
    }
    EACH_SUM(READ)
  }
  double seconds = omp_get_wtime() - start;
  *sink = total;
  return 4.0 * SUMS * LANES * (double)steps * threads / seconds;
#else
  (void)threads, (void)steps, (void)numbers, (void)sink;
  return 0;
#endif
}

/* The same of AMX's tiles, two by two full ones whose operands stay in registers; 0 where there are none, or Linux lets this
 * process use none (Documentation/arch/x86/xstate.rst). An eighth of `steps`,
 * each of which takes some eight times as long as one of multiply-adds. */
double tvmconv_tile_operations_per_second(int threads, int64_t steps, const float* numbers, float* sink) {
#if defined(__AMX_BF16__)
  if (syscall(SYS_arch_prctl, 0x1023, 18) != 0) return 0;
  struct {
    uint8_t palette, start, reserved[14];
    uint16_t columns[16];
    uint8_t rows[16];
  } shapes = {1};
  for (int i = 0; i < 8; i++) shapes.columns[i] = 64, shapes.rows[i] = 16;
  float sums[256], operands[256];
  for (int i = 0; i < 256; i++) operands[i] = numbers[1];
  double start = omp_get_wtime();
#pragma omp parallel num_threads(threads)
  {
    float mine[256];
    _tile_loadconfig(&shapes);
    _tile_loadd(4, operands, 64);
    _tile_loadd(5, operands, 64);
    _tile_loadd(6, operands, 64);
    _tile_loadd(7, operands, 64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t step = 0; step < steps / 8; step++) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, mine, 64);
    _tile_release();
#pragma omp critical
    for (int i = 0; i < 256; i++) sums[i] = mine[i];
  }
  double seconds = omp_get_wtime() - start;
  *sink = sums[0];
  return 4 * 16384.0 * (double)(steps / 8) * threads / seconds;
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

/* Round trips that are timed together: the clock counts in steps of 10 ns or more. And when to stop, where other processes
 * take the processor of one of the two. */
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
