/* What 64-bit ARM has for the machine's peak (tvmconv/measuring/peak.c): vectors. */
#pragma once

#define VECTOR_BYTES 16
#define SUMS 20 /* as many as stay in the 32 registers beside the two operands */
