// Twins of the functions in tvmconv/lowering/cuda/native/instructions.cuh that consist of a PTX instruction; the others, which say
// what each lane holds, are compiled as they are.

#pragma once
#include "emulator.h"

#define __float_as_uint(value) bits_of(value)
#define __uint_as_float(value) float_of(value)

inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

inline void tvmconv_copy_4(void* target, const void* source, bool inside) { copy_async(target, source, 4, inside); }
inline void tvmconv_copy_8(void* target, const void* source, bool inside) { copy_async(target, source, 8, inside); }
inline void tvmconv_copy_16(void* target, const void* source, bool inside) { copy_async(target, source, 16, inside); }
inline void tvmconv_copies_commit() { commit_copies(); }
inline void tvmconv_copies_wait(int pending) { wait_copies(pending); }

// ldmatrix.x4: lane i gets elements 2*(i % 4) and the next of row i / 4 of each matrix; transposed, of column i / 4.
inline void load_matrices(uint32_t* to, const void* row, bool transposed) {
  if (reinterpret_cast<uintptr_t>(row) % 16) fail("a row of a matrix is not aligned to 16 bytes");
  uint32_t loaded[4];
  exchange(static_cast<const uint16_t*>(row), [&](auto shown) {
    int lane = thread_number() % kWarp, group = lane / 4, member = 2 * (lane % 4);
    for (int matrix = 0; matrix < 4; ++matrix) {
      auto at = [&](int i, int j) { return static_cast<uint32_t>(shown(8 * matrix + i)[j]); };
      loaded[matrix] = transposed ? at(member + 1, group) << 16 | at(member, group)
                                  : at(group, member + 1) << 16 | at(group, member);
    }
  });
  memcpy(to, loaded, sizeof(loaded));
}
inline void tvmconv_load_matrices(uint32_t* to, const void* row) { load_matrices(to, row, false); }
inline void tvmconv_load_matrices_transposed(uint32_t* to, const void* row) { load_matrices(to, row, true); }

// To nearest, ties away from zero: 10 bits of fraction stay.
inline uint32_t tvmconv_round_tf32(uint32_t value) { return (value + 0x1000) & 0xFFFFE000; }

template <typename T>
float element(const uint32_t* registers, int number) {
  if (sizeof(T) == 4) {
    if (registers[number] & 0x1FFF) fail("an operand is not rounded to TF32");
    return float_of(registers[number]);
  }
  T value;
  memcpy(&value, reinterpret_cast<const char*>(registers) + 2 * number, 2);
  return value;
}

struct Operands {
  const uint32_t *a, *b;
};

// mma.m16n8k16 of 16-bit types and mma.m16n8k8 of TF32 (T is float), twice: columns 0-7 and 8-15.
template <typename T>
void multiply(float* c, const uint32_t* a, const uint32_t* b) {
  // Elements that lie together in a register, and depth.
  constexpr int packed = 4 / sizeof(T), depth = 8 * packed;
  Operands mine{a, b};
  exchange(&mine, [&](auto shown) {
    int lane = thread_number() % kWarp;
    for (int i = 0; i < 8; ++i) {
      int row = lane / 4 + i / 2 % 2 * 8, column = lane % 4 * 2 + i % 2 + i / 4 * 8;
      for (int k = 0; k < depth; ++k) {
        int member = k % (depth / 2) / packed, half = k / (depth / 2);
        const Operands* left = shown(row % 8 * 4 + member);
        const Operands* right = shown(column % 8 * 4 + member);
        c[i] += element<T>(left->a, (row / 8 + 2 * half) * packed + k % packed) *
                element<T>(right->b, (column / 8 * 2 + half) * packed + k % packed);
      }
    }
  });
}
#define TVMCONV_TWIN(name, T)                                                                            \
  inline void name(float* c, int ci, const uint32_t* a, int ai, const uint32_t* b, int bi) {             \
    multiply<T>(c + 8 * ci, a + 4 * ai, b + 4 * bi);                                                     \
  }
TVMCONV_TWIN(tvmconv_multiply_f16, half)
TVMCONV_TWIN(tvmconv_multiply_bf16, nv_bfloat16)
TVMCONV_TWIN(tvmconv_multiply_tf32, float)
