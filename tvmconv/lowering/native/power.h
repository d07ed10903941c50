/* Exponentials of vectors of f32. */
#pragma once

/* 1.5 * 2**23, so that a sum with it is rounded to a whole number, plus 127, which makes that a biased exponent. */
#define EXPONENT 12583039.0f

/* Defines e**x of vectors V from -88 to 88, within 2e-7 of it, of not a number that; I are vectors of as many integers. */
#define DEFINE_POWER(name, V, I)                                                            \
  INLINE V name(V x) {                                                                      \
    const V shifted = x * 1.44269504f + EXPONENT; /* n + 127 in its last bits */            \
    const V n = shifted - EXPONENT;                                                         \
    const V r = x - n * 0.693147182f;                                                       \
    V sum = r * 8.37312452e-3f + 4.16695364e-2f;                                            \
    sum = sum * r + 1.66664720e-1f;                                                         \
    sum = sum * r + 4.99999851e-1f;                                                         \
    sum = sum * r + 1.0f;                                                                   \
    sum = sum * r + 1.0f;                                                                   \
    return sum * (V)((I)shifted << 23);                                                     \
  }
