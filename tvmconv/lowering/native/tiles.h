/* Products in tiles of sums that stay in registers, by vectors V of LANES: included once for each width, with NAME(x) as the name of x,
 * MOST_ROWS as the most rows of a tile, and MOST_TWO as those of one of two vectors. */
typedef float V __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* to[r][v] = to[r][v] * factor[v] + the sum over steps of a[r * row + k * step] * b[k][v]; without factor the sum alone. Rows of b and of
 * `to` lie so far apart. */
INLINE void NAME(tile)(int rows, int vectors, const float* a, int64_t row, int64_t step, const float* b,
                       int64_t b_row, int64_t steps, const V* factor, float* to, int64_t to_row) {
  V sums[MOST_ROWS][2];
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++)
      if (factor)
        sums[r][v] = *(const V*)(to + r * to_row + v * LANES) * factor[v];
      else
        sums[r][v] = (V){};
  const float* from[4] = {a, a + 3 * row, a + 6 * row, a + 9 * row}; /* of three rows each, which x86 addresses by one register */
  for (int64_t k = 0; k < steps; k++) {
    V by[2];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) by[v] = *(const V*)(b + v * LANES);
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
      const float one = from[r / 3][r % 3 * row];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; v++) sums[r][v] += one * by[v];
    }
#pragma GCC unroll 4
    for (int i = 0; i < (rows + 2) / 3; i++) from[i] += step;
    b += b_row;
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) *(V*)(to + r * to_row + v * LANES) = sums[r][v];
}

/* The same of any number of rows, in tiles of like heights. */
INLINE void NAME(product)(int vectors, const float* a, int64_t row, int64_t step, const float* b,
                          int64_t b_row, int64_t steps, int64_t rows, const V* factor, float* to, int64_t to_row) {
  const int64_t most = vectors == 2 ? MOST_TWO : MOST_ROWS;
  for (int64_t tiles = (rows + most - 1) / most, height; tiles; tiles--, rows -= height) {
    height = (rows + tiles - 1) / tiles;
#define ROWS(n)                                                                        \
  case n:                                                                              \
    if (n <= (vectors == 2 ? MOST_TWO : MOST_ROWS))                                    \
      NAME(tile)(n, vectors, a, row, step, b, b_row, steps, factor, to, to_row);       \
    break;
    switch (height) {
      ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12)
    }
#undef ROWS
    a += height * row;
    to += height * to_row;
  }
}
