// PTX instructions of Hopper, of which ptx.py makes calls, written after the PTX ISA: barriers with announced bytes
// ("mbarrier"), copies of boxes ("cp.async.bulk.tensor", "Tensors"; CUDA Driver API, "cuTensorMapEncodeTiled") and
// multiplication by groups of four warps ("Asynchronous Warpgroup Level Matrix Instructions").
//
// What is asynchronous happens at any time between its start and the wait for it. In ascending order, multiplications and
// stores happen as soon as they start, and boxes arrive in order; in descending order, as late as they may, and the last
// box arrives first. Boxes arrive only when all threads wait; what they will overwrite is NaN before.

#pragma once
#include <array>
#include <deque>
#include <type_traits>
#include <vector>

#include "emulator_arrays.h"

inline uint64_t __cvta_generic_to_shared(const void* pointer) { return static_cast<const unsigned char*>(pointer) - shared_window; }

// ---- Barriers ----

// In the 8 bytes of shared memory: what overwrites them shows.
struct Barrier {
  static constexpr unsigned kMark = 0x5A;
  uint32_t mark : 7, phase : 1, pending : 12, arrivals : 12;
  int32_t bytes;  // announced, less those that came
  void change() {
    if (pending == 0 && bytes == 0) {
      phase ^= 1;
      pending = arrivals;
    }
  }
};
static_assert(sizeof(Barrier) == 8);

inline bool barriers_ready;  // for other threads and for copies

inline unsigned char* shared_at(uint64_t address) {
  if (address < kSharedAlignment || address >= sizeof(shared_window)) fail("an address is outside of shared memory");
  return shared_window + address;
}

inline Barrier& barrier_at(uint64_t address) {
  if (address % 8) fail("a barrier is not aligned to 8 bytes");
  Barrier& barrier = *reinterpret_cast<Barrier*>(shared_at(address));
  if (barrier.mark != Barrier::kMark) fail("there is no barrier, or it was overwritten");
  if (!barriers_ready) fail("a barrier is used before its initialisation is made known");
  return barrier;
}

inline void mbarrier_init(uint64_t address, int arrivals) {
  if (arrivals < 1 || arrivals >= 1 << 12) fail("so many arrivals at a barrier are not emulated");
  Barrier barrier{Barrier::kMark, 0, static_cast<unsigned>(arrivals), static_cast<unsigned>(arrivals), 0};
  memcpy(shared_at(address), &barrier, sizeof(barrier));
}

inline void fence_mbarrier_init() { barriers_ready = true; }

inline void mbarrier_arrive_expect_tx(uint64_t address, int bytes) {
  Barrier& barrier = barrier_at(address);
  if (barrier.pending == 0) fail("more threads arrive at a barrier than it is for");
  barrier.bytes += bytes;
  if (barrier.bytes >= 1 << 20) fail("a barrier counts less than 2^20 bytes");
  --barrier.pending;
  barrier.change();
}

inline void mbarrier_arrive(uint64_t address) { mbarrier_arrive_expect_tx(address, 0); }

inline void mbarrier_wait_parity(uint64_t address, int parity) {
  barrier_at(address);
  wait_until([=] { return static_cast<int>(barrier_at(address).phase) != parity; }, __LINE__);
}

// ---- Barriers of some of the block's warps ----

struct NamedBarrier {
  int there, met;
  int publishing;      // of those that are there
  bool all_published;  // by the time they last met
};

inline NamedBarrier named[16];
// What a thread wrote to shared memory is known to copies once it says so and then meets the thread that starts them.
inline bool published[kMostThreads];
inline NamedBarrier* last_met[kMostThreads];

inline void fence_proxy_async() { published[thread_number()] = true; }

inline void bar_sync(int number, int threads) {
  NamedBarrier& barrier = named[number];
  int met = barrier.met;
  last_met[thread_number()] = &barrier;
  barrier.publishing += published[thread_number()];
  published[thread_number()] = false;
  if (++barrier.there == threads) {
    barrier.all_published = barrier.publishing == threads;
    barrier.there = barrier.publishing = 0;
    ++barrier.met;
  }
  wait_until([=] { return named[number].met != met; }, __LINE__);
}

// ---- Boxes ----

// Of an address in shared memory that bytes would have if they lay in order in rows of 128, 64 or 32 bytes: of bits 4-6,
// 4-5 or 4 the exclusive-or with as many from bit 7 on.
inline unsigned char* swizzled(uint64_t address, int row_bytes) {
  return shared_at(address ^ (address >> 7 & (row_bytes / 16 - 1)) << 4);
}

struct Map {
  char* array;
  size_t element_bytes;
  std::vector<int64_t> extents, distances, box, steps;  // distances in elements, of the axes after the first

  Map(Pointer pointer, size_t element_bytes, std::vector<int64_t> extents, std::vector<int64_t> distances,
      std::vector<int64_t> box, std::vector<int64_t> steps)
      : array(pointer.address), element_bytes(element_bytes), extents(extents), distances(distances), box(box), steps(steps) {
    size_t rank = extents.size();
    if (rank < 1 || rank > 5 || distances.size() != rank - 1 || box.size() != rank || steps.size() != rank)
      fail("a map has 1 to 5 axes");
    if (reinterpret_cast<uintptr_t>(array) % 16) fail("a map's array is not aligned to 16 bytes");
    for (size_t axis = 0; axis < rank; ++axis) {
      if (extents[axis] < 1 || extents[axis] > 1ll << 32) fail("a map's extent is not from 1 to 2^32");
      if (box[axis] < 1 || box[axis] > 256) fail("a box spans 1 to 256 elements");
      if (steps[axis] < 1 || steps[axis] > 8) fail("a step is of 1 to 8 elements");
    }
    for (size_t distance : distances)
      if (distance * element_bytes % 16 || distance * element_bytes >= 1ull << 40) fail("a distance is not a multiple of 16 bytes");
    if (steps[0] != 1) fail("the first axis has no steps");
    if (box[0] * element_bytes % 16 || box[0] * element_bytes > 128) fail("the first axis of a box has 16 to 128 bytes");
  }

  static const Map& of(const void* parameter) {
    if (reinterpret_cast<uintptr_t>(parameter) % 64) fail("a map is not aligned to 64 bytes");
    const Map* self;
    memcpy(&self, parameter, sizeof(self));
    return *self;
  }

  int64_t count(size_t axis) const { return (box[axis] + steps[axis] - 1) / steps[axis]; }

  int64_t bytes() const {
    int64_t total = element_bytes;
    for (size_t axis = 0; axis < box.size(); ++axis) total *= count(axis);
    return total;
  }

  // Calls use(where an element is in the array, nullptr if outside; its number in the box), in order.
  template <typename Use>
  void each(const std::vector<int>& start, Use use) const {
    if (start.size() != box.size()) fail("a box has another number of coordinates than its map");
    // An H200 calls it an illegal instruction.
    if (start[0] * static_cast<int64_t>(element_bytes) % 16) fail("a box does not begin at a multiple of 16 bytes");
    int64_t elements = bytes() / element_bytes;
    for (int64_t number = 0; number < elements; ++number) {
      int64_t rest = number, offset = 0;
      bool inside = true;
      for (size_t axis = 0; axis < box.size(); ++axis) {
        int64_t at = start[axis] + rest % count(axis) * steps[axis];
        rest /= count(axis);
        inside &= at >= 0 && at < extents[axis];
        offset += at * (axis ? distances[axis - 1] : 1);
      }
      use(inside ? array + offset * element_bytes : nullptr, number);
    }
  }

  // An element of a box in shared memory.
  unsigned char* shared(uint64_t start, int64_t number) const { return swizzled(start + number * element_bytes, box[0] * element_bytes); }
};

// As a kernel's parameter of 128 bytes each.
struct Maps {
  std::vector<Map> all;

  template <typename T>
  operator T() const {
    T parameter{};
    if (sizeof(T) != all.size() * 128) fail("a parameter has another number of maps than it is given");
    for (size_t i = 0; i < all.size(); ++i) {
      const Map* one = &all[i];
      memcpy(reinterpret_cast<char*>(&parameter) + i * 128, &one, sizeof(one));
    }
    return parameter;
  }
};

struct Box {
  const Map* map;
  uint64_t shared;
  std::vector<int> start;
  uint64_t barrier;
};

inline std::deque<Box> arriving;
inline std::vector<Box> leaving[kMostThreads];
inline bool uncommitted[kMostThreads];

inline void load(Box box) {
  if (box.shared % 128) fail("a box does not begin at a multiple of 128 bytes");
  int64_t row = box.map->box[0] * box.map->element_bytes;
  if (row != 128 && row != 64 && row != 32) fail("rows of another length than 128, 64 or 32 bytes are not emulated");
  barrier_at(box.barrier);
  box.map->each(box.start, [&](char*, int64_t number) { memset(box.map->shared(box.shared, number), 0xFF, box.map->element_bytes); });
  arriving.push_back(box);
}

inline bool arrive_one() {
  if (arriving.empty()) return false;
  Box box = descending ? arriving.back() : arriving.front();
  descending ? arriving.pop_back() : arriving.pop_front();
  size_t size = box.map->element_bytes;
  box.map->each(box.start, [&](char* from, int64_t number) {
    unsigned char* to = box.map->shared(box.shared, number);
    from ? memcpy(to, from, size) : memset(to, 0, size);
  });
  Barrier& barrier = barrier_at(box.barrier);
  barrier.bytes -= box.map->bytes();
  barrier.change();
  return true;
}

inline void store_now(const Box& box) {
  box.map->each(box.start, [&](char* to, int64_t number) {
    if (to) memcpy(to, box.map->shared(box.shared, number), box.map->element_bytes);
  });
}

inline void tensor_load(size_t rank, uint64_t to, const void* map, std::vector<int> start, uint64_t barrier) {
  if (Map::of(map).box.size() != rank) fail("a box has another number of axes than its map");
  load({&Map::of(map), to, start, barrier});
}

inline void tensor_store(size_t rank, const void* map, std::vector<int> start, uint64_t from) {
  int thread = thread_number();
  Box box{&Map::of(map), from, start, 0};
  if (box.map->box.size() != rank) fail("a box has another number of axes than its map");
  if (from % 128) fail("a box does not begin at a multiple of 128 bytes");
  for (int64_t step : box.map->steps)
    if (step != 1) fail("stores have no steps");
  if (!last_met[thread] || !last_met[thread]->all_published) fail("a store reads what threads have not made known to it");
  uncommitted[thread] = true;
  if (descending)
    leaving[thread].push_back(box);
  else
    store_now(box);
}

inline void bulk_commit_group() { uncommitted[thread_number()] = false; }

inline void bulk_wait_group(int pending) {
  if (pending || uncommitted[thread_number()]) fail("only waits for all stores, after a commit, are emulated");
  for (const Box& box : leaving[thread_number()]) store_now(box);
  leaving[thread_number()].clear();
}

// ---- Multiplication ----

struct Multiplication {
  std::function<void()> work;
  int group;
};

struct Multiplier {
  std::deque<Multiplication> pending;
  int committed = 0;
  bool fenced = false;
};

inline Multiplier multipliers[kMostThreads];

// Where an element of a matrix is that a descriptor tells of; `along` counts rows of the left or columns of the right one.
// "Canonical Layouts", in 16-bit elements, T = 8, of rows of 128 bytes: by depth ((8,m),(T,2k)):((8T,SBO),(1,T)), else
// ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO)). A matrix may start at any row: an H200 swizzles by the whole address then.
inline const void* matrix_element(uint64_t descriptor, bool transposed, int along, int k) {
  auto field = [&](int bit) { return (descriptor >> bit & 0x3FFF) << 4; };
  if (descriptor >> 62 == 0 || (descriptor >> 49 & 7)) fail("rows that are not swizzled, or by a base offset, are not emulated");
  int row = 256 >> (descriptor >> 62);  // bytes: modes 1, 2 and 3 are of 128, 64 and 32
  uint64_t start = field(0), leading = field(16), stride = field(32);
  uint64_t offset = transposed ? along % (row / 2) * 2 + along / (row / 2) * leading + k % 8 * row + k / 8 * stride
                               : along % 8 * row + along / 8 * stride + k * 2;
  return swizzled(start + offset, row);
}

// wgmma.m64nNk16: the sums of a thread, "Register Fragments and Shared Memory Matrix Layouts".
template <typename T, typename Same, int columns, bool left_transposed, bool right_transposed>
void wgmma_mma_async(std::array<std::reference_wrapper<float>, columns / 2> sums, uint64_t left, uint64_t right, bool adds) {
  static_assert(std::is_same_v<T, Same>);
  Multiplier& mine = multipliers[thread_number()];
  if (!mine.fenced) fail("registers are used by a multiplication without a fence");
  int thread = thread_number() % 128, first_row = thread / 32 * 16 + thread % 32 / 4, first_column = thread % 4 * 2;
  auto element = [](uint64_t descriptor, bool transposed, int along, int k) {
    T value;
    memcpy(&value, matrix_element(descriptor, transposed, along, k), sizeof(T));
    return static_cast<float>(value);
  };
  auto work = [=] {
    float row[2][16];
    for (int i = 0; i < 32; ++i) row[i / 16][i % 16] = element(left, left_transposed, first_row + i / 16 * 8, i % 16);
    for (int i = 0; i < columns / 2; ++i) {
      float sum = adds ? sums[i].get() : 0;
      for (int k = 0; k < 16; ++k)
        sum += row[i / 2 % 2][k] * element(right, right_transposed, first_column + i % 2 + i / 4 * 8, k);
      sums[i].get() = sum;
    }
  };
  __syncwarp();
  if (descending)
    mine.pending.push_back({work, mine.committed});
  else
    work();
}

inline void wgmma_fence() {
  __syncwarp();
  multipliers[thread_number()].fenced = true;
}

inline void wgmma_commit_group() {
  __syncwarp();
  ++multipliers[thread_number()].committed;
}

inline void wgmma_wait_group(int pending) {
  Multiplier& mine = multipliers[thread_number()];
  while (!mine.pending.empty() && mine.pending.front().group < mine.committed - pending) {
    mine.pending.front().work();
    mine.pending.pop_front();
  }
  mine.fenced = false;  // the thread may use its registers now
  __syncwarp();
}

inline void setmaxnreg(int registers) {
  if (registers % 8 || registers < 24 || registers > 256) fail("a thread has 24 to 256 registers, a multiple of 8");
  __syncwarp();
}

// ---- Blocks ----

inline void begin_block() {
  barriers_ready = false;
  for (NamedBarrier& each : named) each = {};
  for (NamedBarrier*& each : last_met) each = nullptr;
  for (Multiplier& each : multipliers) each = {};
}

inline void end_block() {
  if (!arriving.empty()) fail("a block ends while boxes are on their way to it");
  for (int i = 0; i < kMostThreads; ++i)
    if (!leaving[i].empty() || !multipliers[i].pending.empty()) fail("a block ends while its work is under way");
}

inline const bool installed = [] {
  beside = {begin_block, arrive_one, end_block};
  return true;
}();
