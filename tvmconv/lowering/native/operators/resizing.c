/* Tables of resizes whose extents calls give: equal to those of `tvmconv/network/operators/resize.py` for fixed extents.
 *
 * Compiled without contraction of products and sums, to round as NumPy does.
 */
#include <math.h>
#include <stdint.h>

enum { HALF_PIXEL, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC };
enum { ROUND, PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL, TRUNCATE };
/* Distance by which coordinates are moved off whole numbers before they are rounded down, or up. */
static const float EPSILON = 1e-5f;

/* Returns the coordinate of an output; a factor of 0 stands for the quotient of the sizes. */
static float place(int64_t at, int64_t extent, int64_t size, int64_t mode, float factor) {
  const float x = (float)at, scale = (float)extent / (float)size;
  if (mode == ALIGN_CORNERS) return (float)(extent - 1) / (float)(size > 1 ? size - 1 : 1) * x;
  if (mode == ASYMMETRIC) return factor != 0 ? x / factor : scale * x;
  if (mode == PYTORCH_HALF_PIXEL && size == 1) return 0;
  return (factor != 0 ? (x + 0.5f) / factor : (x + 0.5f) * scale) - 0.5f;
}

/* Rounds a coordinate, moved off whole numbers unless a factor is given. */
static float whole(float x, int64_t rounding, float factor) {
  const float moved = factor != 0 ? 0 : EPSILON;
  switch (rounding) {
    case ROUND: return rintf(x);
    case PREFER_FLOOR: return ceilf(x - 0.5f);
    case PREFER_CEIL: return floorf(x + 0.5f);
    case FLOOR: return floorf(x + moved);
    default: return ceilf(x - moved);
  }
}

static int32_t within(float x, int64_t extent) { return (int32_t)(x < 0 ? 0 : x > (float)(extent - 1) ? (float)(extent - 1) : x); }

/* Writes elements by PyTorch's arithmetic; `scale` is the distance of outputs, 0: the quotient of the sizes. */
static void truncate_places(int32_t* table, int64_t extent, int64_t size, int64_t mode, float scale) {
  const float begin = mode == HALF_PIXEL ? 0.5f : 0, step = scale != 0 ? scale : (float)extent / (float)size;
  for (int64_t at = 0; at < size; at++) table[at] = within(floorf(((float)at + begin) * step), extent);
}

/* Writes for each of `size` outputs the nearest of `extent` elements. */
void tvmconv_network_nearest(int32_t* table, int64_t extent, int64_t size, int64_t mode, float factor, int64_t rounding) {
  if (rounding == TRUNCATE) {
    truncate_places(table, extent, size, mode, factor);
    return;
  }
  for (int64_t at = 0; at < size; at++)
    table[at] = mode == ASYMMETRIC && rounding == FLOOR && size % extent == 0
                    ? (int32_t)(at / (size / extent))
                    : within(whole(place(at, extent, size, mode, factor), rounding, factor), extent);
}

/* Writes for each output the element `after` places behind the one before it. */
void tvmconv_network_before(int32_t* table, int64_t extent, int64_t size, int64_t mode, float factor, int64_t after) {
  for (int64_t at = 0; at < size; at++) table[at] = within(floorf(place(at, extent, size, mode, factor)) + (float)after, extent);
}

/* Writes for each output the weight of the element after it. */
void tvmconv_network_share(float* table, int64_t extent, int64_t size, int64_t mode, float factor) {
  for (int64_t at = 0; at < size; at++) {
    const float x = place(at, extent, size, mode, factor);
    table[at] = x - floorf(x);
  }
}

/* A weight of cubic convolution at a distance of 0 to 2 (Keys, 1981). */
static float keys(float x, float alpha) {
  return x <= 1 ? ((alpha + 2) * x - (alpha + 3)) * x * x + 1 : ((alpha * x - 5 * alpha) * x + 8 * alpha) * x - 4 * alpha;
}

/* Writes for each output the weight of the element `after`, -1 to 2, places behind the one before it; if it `excludes`, elements outside have none. */
void tvmconv_network_cubic(float* table, int64_t extent, int64_t size, int64_t mode, float factor, int64_t after, float alpha,
                           int64_t excludes) {
  for (int64_t at = 0; at < size; at++) {
    const float x = place(at, extent, size, mode, factor), first = floorf(x);
    float own = 0, sum = 0;
    for (int tap = -1; tap <= 2; tap++) {
      const int is_within = first + (float)tap >= 0 && first + (float)tap < (float)extent;
      const float weight = excludes && !is_within ? 0 : keys(fabsf(x - first - (float)tap), alpha);
      sum += weight;
      if (tap == after) own = weight;
    }
    table[at] = excludes ? own / sum : own;
  }
}
