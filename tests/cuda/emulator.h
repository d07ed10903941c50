// What generated CUDA C++ needs to run on a CPU: its types, threads and barriers, and asynchronous copies.
//
// A block's threads are fibers of one thread. Each runs to its next barrier before another one starts, so that a
// missing barrier shows as a wrong result, in ascending order or in descending order; both are run. Shared memory is
// NaN until it is written, and what an asynchronous copy writes is NaN until it is waited for.

#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#define __device__
#define __host__
#define __global__
#define __restrict__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
// Static arrays in a section of their own, so that all of them can be made NaN before each block.
#define __shared__ static __attribute__((section("shared_memory")))
#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short

// ---- Types ----

struct half {
  _Float16 value;
  half() = default;
  half(float x) : value(static_cast<_Float16>(x)) {}
  operator float() const { return static_cast<float>(value); }
};

struct nv_bfloat16 {
  uint16_t bits;
  nv_bfloat16() = default;
  nv_bfloat16(float x) {
    uint32_t word;
    memcpy(&word, &x, 4);
    bits = x != x ? 0x7FFF : (word + 0x7FFF + (word >> 16 & 1)) >> 16;  // to nearest even
  }
  operator float() const {
    uint32_t word = static_cast<uint32_t>(bits) << 16;
    float x;
    memcpy(&x, &word, 4);
    return x;
  }
};

using __half = half;
using __nv_bfloat16 = nv_bfloat16;

template <typename T>
struct alignas(2 * sizeof(T)) Vector2 {
  T x, y;
};
template <typename T, size_t alignment = 4 * sizeof(T)>
struct alignas(alignment) Vector4 {
  T x, y, z, w;
};

#define VECTORS(T, name)                                       \
  using name##2 = Vector2<T>;                                  \
  using name##4 = Vector4<T>;                                  \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }   \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(float, float)
VECTORS(int, int)
VECTORS(unsigned, uint)
VECTORS(half, half)
VECTORS(uint16_t, ushort)
VECTORS(int16_t, short)
// TVM's own names.
using nv_bfloat162 = Vector2<nv_bfloat16>;
using nv_bfloat164 = Vector4<nv_bfloat16>;
inline nv_bfloat162 make_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return {x, y}; }
inline nv_bfloat164 make_nv_bfloat164(nv_bfloat16 x, nv_bfloat16 y, nv_bfloat16 z, nv_bfloat16 w) { return {x, y, z, w}; }
template <typename T>
unsigned packed_pair(T x, T y) {
  unsigned low = 0, high = 0;
  memcpy(&low, &x, 2);
  memcpy(&high, &y, 2);
  return high << 16 | low;
}
inline unsigned __pack_half2(half x, half y) { return packed_pair(x, y); }
inline unsigned __pack_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return packed_pair(x, y); }
inline half __float2half_rn(float x) { return x; }
inline nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline nv_bfloat16 __float2bfloat16(float x) { return x; }
inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __int_as_float(int bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
#define CUDART_INF_F INFINITY
inline float __ldg(const float* p) { return *p; }

// Eight f32, as TVM names them.
struct alignas(16) ulonglong4 {
  unsigned long long x, y, z, w;
};

// ---- Threads ----

struct Dim3 {
  unsigned x, y, z;
};

constexpr int kMostThreads = 1024, kWarp = 32;
constexpr size_t kStackBytes = 64 * 1024;
constexpr size_t kMostShared = 227 * 1024;  // of one block, on any architecture
// Dynamic shared memory begins at a multiple of this; kernels that need more round up.
constexpr size_t kSharedAlignment = 16;

[[noreturn]] inline void fail(const char* what, int line = 0) {
  fprintf(stderr, line ? "%s (line %d)\n" : "%s\n", what, line);
  exit(1);
}

struct Copy {
  void* target;
  char bytes[16];
  size_t size;
  int group;
};

struct Fiber {
  enum State { kReady, kAtWarpBarrier, kAtBarrier, kWaiting, kDone } state;
  int line;  // of the barrier
  Dim3 index;
  ucontext_t context;  // to begin with
  bool begun;
  jmp_buf place;  // to go on from
  char* stack;
  const void* shown;  // to the other lanes of the warp
  Copy copies[1024];
  int copy_count, groups;
  std::function<bool()> comes;  // what a waiting thread waits for
};

// What a block does beside its threads, for emulator_hopper.h: `advance` does one thing and returns whether there was one.
struct Beside {
  void (*begin)() = [] {};
  bool (*advance)() = [] { return false; };
  void (*end)() = [] {};
};

inline Beside beside;
inline bool descending;
inline Fiber fibers[kMostThreads];
inline Fiber* current;
inline jmp_buf scheduler;
inline Dim3 blockIdx, blockDim, gridDim;
inline void (*entry_point)();
alignas(1024) inline unsigned char shared_window[kSharedAlignment + kMostShared];
inline unsigned char* const dynamic_shared = shared_window + kSharedAlignment;
extern "C" char __start_shared_memory[] __attribute__((weak));
extern "C" char __stop_shared_memory[] __attribute__((weak));

#define threadIdx (current->index)

// Jumps from thread to thread ask the system for nothing, unlike swapcontext, which saves signal masks.
inline void resume(Fiber& fiber) {
  if (_setjmp(scheduler)) return;
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  setcontext(&fiber.context);
}
inline void leave() {
  if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}

inline void wait(Fiber::State state, int line) {
  current->state = state;
  current->line = line;
  leave();
}
inline void wait_until(std::function<bool()> comes, int line) {
  if (comes()) return;
  current->comes = comes;
  wait(Fiber::kWaiting, line);
}
#define __syncthreads() wait(Fiber::kAtBarrier, __LINE__)
#define __syncwarp() wait(Fiber::kAtWarpBarrier, __LINE__)

inline int thread_number() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }

// Shows `mine` to the other lanes of the warp, and calls use(lane -> what that lane shows).
template <typename T, typename Use>
void exchange(T* mine, Use use) {
  current->shown = mine;
  __syncwarp();
  Fiber* first = current - thread_number() % kWarp;
  use([=](int lane) { return static_cast<const T*>(first[lane].shown); });
  __syncwarp();
}

inline void enter() {
  entry_point();
  if (current->copy_count) fail("a thread ends without waiting for its asynchronous copies");
  current->state = Fiber::kDone;
  leave();
}

// Releases the threads that are all at one barrier, or whose wait is over; false if there are none.
inline bool release(int threads) {
  bool released = false;
  for (int first = 0; first < threads; first += kWarp) {
    int last = first + kWarp < threads ? first + kWarp : threads, at = 0;
    for (int i = first; i < last; ++i) at += fibers[i].state == Fiber::kAtWarpBarrier && fibers[i].line == fibers[first].line;
    for (int i = first; at == last - first && i < last; ++i) fibers[i].state = Fiber::kReady;
    released |= at == last - first;
  }
  for (int i = 0; i < threads; ++i)
    if (fibers[i].state == Fiber::kWaiting && fibers[i].comes()) {
      fibers[i].state = Fiber::kReady;
      released = true;
    }
  if (released || beside.advance()) return true;
  for (int i = 0; i < threads; ++i)
    if (fibers[i].state != Fiber::kAtBarrier || fibers[i].line != fibers[0].line) return false;
  for (int i = 0; i < threads; ++i) fibers[i].state = Fiber::kReady;
  return true;
}

inline void run_block(int threads, size_t shared_bytes) {
  memset(__start_shared_memory, 0xFF, __stop_shared_memory - __start_shared_memory);
  memset(dynamic_shared, 0xFF, kMostShared);
  beside.begin();
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    if (!fiber.stack) fiber.stack = static_cast<char*>(malloc(kStackBytes));
    fiber.state = Fiber::kReady;
    fiber.begun = false;
    fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    fiber.copy_count = fiber.groups = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = kStackBytes;
    makecontext(&fiber.context, enter, 0);
  }
  do {
    for (int i = 0; i < threads; ++i) {
      current = &fibers[descending ? threads - 1 - i : i];
      if (current->state == Fiber::kReady) resume(*current);
    }
  } while (release(threads));
  for (int i = 0; i < threads; ++i) {
    if (fibers[i].state == Fiber::kWaiting) fail("a thread waits for what never comes", fibers[i].line);
    if (fibers[i].state != Fiber::kDone) fail("not all threads reach this barrier", fibers[i].line);
  }
  beside.end();
  for (size_t i = shared_bytes; i < kMostShared; ++i)
    if (dynamic_shared[i] != 0xFF) fail("shared memory is written beyond what the launch asks for");
}

inline void launch(void (*function)(), Dim3 grid, Dim3 block, size_t shared_bytes) {
  entry_point = function;
  gridDim = grid;
  blockDim = block;
  int threads = block.x * block.y * block.z;
  if (threads > kMostThreads || shared_bytes > kMostShared) fail("the launch asks for more than a block can have");
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) run_block(threads, shared_bytes);
}

// ---- Asynchronous copies ----

// Data is read now, as the source does not change, and arrives only when it is waited for.
inline void copy_async(void* target, const void* source, size_t size, bool valid = true) {
  if (current->copy_count == sizeof(current->copies) / sizeof(Copy)) fail("too many asynchronous copies at once");
  if (reinterpret_cast<uintptr_t>(target) % size || (valid && reinterpret_cast<uintptr_t>(source) % size))
    fail("an asynchronous copy is not aligned to its size");
  if (size != 4 && size != 8 && size != 16) fail("an asynchronous copy takes 4, 8 or 16 bytes");
  Copy& copy = current->copies[current->copy_count++];
  copy.target = target;
  copy.size = size;
  copy.group = current->groups;
  memset(copy.bytes, 0, size);
  if (valid) memcpy(copy.bytes, source, size);
  memset(target, 0xFF, size);
}

inline void commit_copies() { ++current->groups; }

// Waits for all groups but the newest `pending`.
inline void wait_copies(int pending) {
  int kept = 0;
  for (int i = 0; i < current->copy_count; ++i) {
    Copy& copy = current->copies[i];
    if (copy.group < current->groups - pending)
      memcpy(copy.target, copy.bytes, copy.size);
    else
      current->copies[kept++] = copy;
  }
  current->copy_count = kept;
}
