/* Vectors of NEON: their size, and what neither GCC's vectors nor lowering/native/vectors.h have. */
#pragma once

#define BYTES 16

static inline __attribute__((always_inline)) float SQUARE_ROOT(float value) {
  float root;
  __asm__("fsqrt %s0, %s1" : "=w"(root) : "w"(value));
  return root;
}
