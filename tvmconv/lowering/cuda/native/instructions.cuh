// Instructions that CUDA C++ has no syntax for, as functions that generated kernels call.
//
// Fragments are arrays of 32-bit registers, as mma.sync lays them over a warp (PTX ISA, "Matrix Fragments for mma"):
// with group = lane / 4 and member = lane % 4, a 16x16 accumulator is two 16x8 tiles of 4 registers each, which hold
// rows group and group + 8, columns 2*member and 2*member + 1. An operand has 4 registers: the left one's are its
// quarters (rows 0-7, 8-15; then the same of the second half of its depth), the right one's are the two halves of its
// depth for columns 0-7, then for columns 8-15.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ uint32_t tvmconv_shared_address(const void *pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
// Asynchronous copies of 4, 8 or 16 bytes to shared memory; zeros where nothing is inside. 16 bytes bypass L1.
__device__ __forceinline__ void tvmconv_copy_4(void *target, const void *source, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(tvmconv_shared_address(target)), "l"(source),
               "r"(inside ? 4 : 0)
               : "memory");
}

__device__ __forceinline__ void tvmconv_copy_8(void *target, const void *source, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(tvmconv_shared_address(target)), "l"(source),
               "r"(inside ? 8 : 0)
               : "memory");
}

__device__ __forceinline__ void tvmconv_copy_16(void *target, const void *source, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(tvmconv_shared_address(target)), "l"(source),
               "r"(inside ? 16 : 0)
               : "memory");
}

// Make a group of the copies since the last commit.
__device__ __forceinline__ void tvmconv_copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until at most `pending` of the latest groups are still under way. An immediate: a constant once inlined.
#define tvmconv_copies_wait(pending) asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory")

// Four 8x8 matrices of 16 bits; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void tvmconv_load_matrices(uint32_t *to, const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(tvmconv_shared_address(row))
               : "memory");
}

__device__ __forceinline__ void tvmconv_load_matrices_transposed(uint32_t *to, const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(tvmconv_shared_address(row))
               : "memory");
}

// Loads of 16-bit operands; `stride` is the elements from row to row in shared memory, of either 16-bit type.
// The left operand, [m, k] in shared memory: matrices (m 0-7, k 0-7), (m 8-15, k 0-7), (m 0-7, k 8-15), (m 8-15, k 8-15).
template <typename T>
__device__ __forceinline__ void tvmconv_load_a_16(uint32_t *fragments, int index, const T *from, int stride) {
  int lane = threadIdx.x;
  tvmconv_load_matrices(fragments + 4 * index, from + lane % 16 * stride + lane / 16 * 8);
}

// The left operand, [k, m] in shared memory.
template <typename T>
__device__ __forceinline__ void tvmconv_load_a_transposed_16(uint32_t *fragments, int index, const T *from, int stride) {
  int lane = threadIdx.x;
  int k = lane / 16 * 8 + lane % 8, m = lane / 8 % 2 * 8;
  tvmconv_load_matrices_transposed(fragments + 4 * index, from + k * stride + m);
}

// The right operand, [k, n] in shared memory: matrices (k 0-7, n 0-7), (k 8-15, n 0-7), (k 0-7, n 8-15), (k 8-15, n 8-15).
template <typename T>
__device__ __forceinline__ void tvmconv_load_b_16(uint32_t *fragments, int index, const T *from, int stride) {
  int lane = threadIdx.x;
  tvmconv_load_matrices_transposed(fragments + 4 * index, from + lane % 16 * stride + lane / 16 * 8);
}

// The right operand, [n, k] in shared memory.
template <typename T>
__device__ __forceinline__ void tvmconv_load_b_transposed_16(uint32_t *fragments, int index, const T *from, int stride) {
  int lane = threadIdx.x;
  int n = lane / 16 * 8 + lane % 8, k = lane / 8 % 2 * 8;
  tvmconv_load_matrices(fragments + 4 * index, from + n * stride + k);
}

__device__ __forceinline__ uint32_t tvmconv_round_tf32(uint32_t value) {
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(value)));
  return rounded;
}

__device__ __forceinline__ void tvmconv_round_fragment(uint32_t *fragment) {
  for (int i = 0; i < 4; ++i) fragment[i] = tvmconv_round_tf32(fragment[i]);
}

// TF32 operands, 16x8 and 8x16, rounded from f32. Where depth is the faster index in shared memory, a row of four f32
// travels as a row of eight 16-bit elements.
__device__ __forceinline__ void tvmconv_load_a_tf32(uint32_t *fragments, int index, const float *from, int stride) {
  int lane = threadIdx.x;
  tvmconv_load_matrices(fragments + 4 * index, from + lane % 16 * stride + lane / 16 * 4);
  tvmconv_round_fragment(fragments + 4 * index);
}

__device__ __forceinline__ void tvmconv_load_a_transposed_tf32(uint32_t *fragments, int index, const float *from,
                                                               int stride) {
  int group = threadIdx.x / 4, member = threadIdx.x % 4;
  for (int i = 0; i < 4; ++i) {
    int m = group + i % 2 * 8, k = member + i / 2 * 4;
    fragments[4 * index + i] = __float_as_uint(from[k * stride + m]);
  }
  tvmconv_round_fragment(fragments + 4 * index);
}

__device__ __forceinline__ void tvmconv_load_b_tf32(uint32_t *fragments, int index, const float *from, int stride) {
  int group = threadIdx.x / 4, member = threadIdx.x % 4;
  for (int i = 0; i < 4; ++i) {
    int k = member + i % 2 * 4, n = group + i / 2 * 8;
    fragments[4 * index + i] = __float_as_uint(from[k * stride + n]);
  }
  tvmconv_round_fragment(fragments + 4 * index);
}

__device__ __forceinline__ void tvmconv_load_b_transposed_tf32(uint32_t *fragments, int index, const float *from,
                                                               int stride) {
  int lane = threadIdx.x;
  int n = lane / 16 * 8 + lane % 8, k = lane / 8 % 2 * 4;
  tvmconv_load_matrices(fragments + 4 * index, from + n * stride + k);
  tvmconv_round_fragment(fragments + 4 * index);
}

__device__ __forceinline__ void tvmconv_zero(float *fragments, int index) {
  for (int i = 0; i < 8; ++i) fragments[8 * index + i] = 0.0f;
}

// c += a * b, two 16x8 tiles.
#define TVMCONV_MULTIPLY(name, instruction)                                                                           \
  __device__ __forceinline__ void name(float *c, int ci, const uint32_t *a, int ai, const uint32_t *b, int bi) {      \
    c += 8 * ci;                                                                                                      \
    a += 4 * ai;                                                                                                      \
    b += 4 * bi;                                                                                                      \
    for (int half = 0; half < 2; ++half)                                                                              \
      asm volatile(instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                     \
                   : "+f"(c[4 * half]), "+f"(c[4 * half + 1]), "+f"(c[4 * half + 2]), "+f"(c[4 * half + 3])           \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));             \
  }
TVMCONV_MULTIPLY(tvmconv_multiply_f16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
TVMCONV_MULTIPLY(tvmconv_multiply_bf16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
TVMCONV_MULTIPLY(tvmconv_multiply_tf32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")

// An accumulator to shared memory, [m, n] or [n, m].
__device__ __forceinline__ void tvmconv_store(const float *fragments, int index, float *to, int stride) {
  int group = threadIdx.x / 4, member = threadIdx.x % 4;
  const float *c = fragments + 8 * index;
  for (int i = 0; i < 4; ++i) {
    float *at = to + (group + i % 2 * 8) * stride + i / 2 * 8 + member * 2;
    *reinterpret_cast<float2 *>(at) = make_float2(c[2 * i], c[2 * i + 1]);
  }
}

__device__ __forceinline__ void tvmconv_store_transposed(const float *fragments, int index, float *to, int stride) {
  int group = threadIdx.x / 4, member = threadIdx.x % 4;
  const float *c = fragments + 8 * index;
  for (int i = 0; i < 8; ++i) {
    int m = group + i / 2 % 2 * 8, n = i / 4 * 8 + member * 2 + i % 2;
    to[n * stride + m] = c[i];
  }
}
