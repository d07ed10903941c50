// Instructions of sm_90a, one a function, for wgmma.cuh: barriers in shared memory, copies of boxes of arrays, and
// multiplication by groups of four warps. Names and semantics: PTX ISA, "mbarrier", "cp.async.bulk.tensor" and
// "Asynchronous Warpgroup Level Matrix Instructions".

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

// A CUtensorMap, which the driver encodes: an array, and the elements of its boxes.
struct alignas(64) tvmconv_tensor_map {
  uint64_t words[16];
};

__device__ __forceinline__ uint32_t tvmconv_shared_address(const void *pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- Barriers: a phase ends when so many threads and all announced bytes have arrived ----

__device__ __forceinline__ void tvmconv_barrier_init(uint64_t *barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(tvmconv_shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to other threads, and to copies: in the thread that initialised them, before __syncthreads.
__device__ __forceinline__ void tvmconv_barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void tvmconv_arrive(uint64_t *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(tvmconv_shared_address(barrier)) : "memory");
}

// Arrive, and announce bytes of the same phase.
__device__ __forceinline__ void tvmconv_arrive_expecting(uint64_t *barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(tvmconv_shared_address(barrier)), "r"(bytes)
               : "memory");
}

// Wait for the end of the phase of this parity: 0 is the first phase, 1 the one before it, which has ended.
__device__ __forceinline__ void tvmconv_wait(uint64_t *barrier, int parity) {
  asm volatile(
      "{\n\t"
      ".reg .pred ended;\n"
      "again:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n\t"
      "@!ended bra again;\n\t"
      "}" ::"r"(tvmconv_shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Wait for so many threads at a named barrier of the block; 0 is that of __syncthreads.
__device__ __forceinline__ void tvmconv_meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- Copies of boxes, by one thread; coordinates begin with the contiguous axis ----

__device__ __forceinline__ void tvmconv_load_box(void *to, const tvmconv_tensor_map *map, uint64_t *barrier, int c, int w,
                                                 int h, int d, int n) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
      ::"r"(tvmconv_shared_address(to)), "l"(map), "r"(tvmconv_shared_address(barrier)), "r"(c), "r"(w), "r"(h), "r"(d), "r"(n)
      : "memory");
}

__device__ __forceinline__ void tvmconv_load_box(void *to, const tvmconv_tensor_map *map, uint64_t *barrier, int o, int c,
                                                 int tap) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
      ::"r"(tvmconv_shared_address(to)), "l"(map), "r"(tvmconv_shared_address(barrier)), "r"(o), "r"(c), "r"(tap)
      : "memory");
}

__device__ __forceinline__ void tvmconv_store_box(const tvmconv_tensor_map *map, const void *from, int o, int w, int h,
                                                  int d, int n) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
               "r"(tvmconv_shared_address(from)), "r"(o), "r"(w), "r"(h), "r"(d), "r"(n)
               : "memory");
}

__device__ __forceinline__ void tvmconv_stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Wait until all stores of this thread have read shared memory.
__device__ __forceinline__ void tvmconv_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

// Wait until all stores of this thread are done.
__device__ __forceinline__ void tvmconv_stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Make this thread's writes to shared memory seen by copies that begin after a barrier.
__device__ __forceinline__ void tvmconv_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Multiplication, by all threads of a group ----

__device__ __forceinline__ void tvmconv_multiplies_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void tvmconv_multiplies_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most `pending` of the latest committed groups are under way.
template <int pending>
__device__ __forceinline__ void tvmconv_multiplies_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Keeps the compiler from moving reads of the sums before the wait, whose effect on them it does not know.
template <int count>
__device__ __forceinline__ void tvmconv_settle(float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// ---- Registers of a warp, for the rest of its life ----

template <int registers>
__device__ __forceinline__ void tvmconv_keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
__device__ __forceinline__ void tvmconv_take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
