// Copies of arrays for wgmma.cuh, to the workspace: one launch before the multiplication. tvmconv/lowering/cuda/packing.py
// writes the constants of each array before this.
//
// An array is a batch of [outer, inner, x], by whatever distances; its copy has x as the fastest index, by 16 bytes. Zeros are
// added: up to kPaddedX, and from kLeft elements before the inner index up to kPaddedInner of it, and up to kPaddedOuter.

constexpr int kPackThreads = 256;
constexpr int kTileElements = 4096;  // of a block that transposes
using Bits = unsigned short;         // an element, of whichever type

// Returns the index in the array of an element of the copy, in 32 bits (tvmconv/checks.py); -1 if it is a zero. Every kGroup of x
// are of a group; every kTogether of x have the channels of their groups, kGroupChannels each, from a multiple of 8 channels on.
template <class Array>
__device__ __forceinline__ int tvmconv_source(int batch, int outer, int inner, int x) {
  const int group = Array::kFromGroup ? x / Array::kGroup : 0;
  const int first = Array::kFromGroup ? x / Array::kTogether * Array::kTogether / Array::kGroup : 0;
  (Array::kInnerChannels ? inner : outer) -= group * Array::kGroupChannels - first * Array::kGroupChannels / 8 * 8;
  inner -= Array::kLeft;
  const bool inside = outer >= 0 && outer < Array::kOuter && inner >= 0 && inner < Array::kInner && x < Array::kX;
  const int element = batch * Array::kFromBatch + outer * Array::kFromOuter + inner * Array::kFromInner;
  return inside ? element + group * Array::kFromGroup + (x - group * Array::kGroup) * Array::kFromX : -1;
}

// Copies arrays whose order is that of the copy, or with so few x that neighbouring threads still read neighbouring pixels: each
// thread fills 16 bytes.
template <class Array>
__device__ __forceinline__ void tvmconv_gather(const Bits *from, Bits *to, unsigned block) {
  constexpr unsigned kAll = Array::kBatch * Array::kPaddedOuter * Array::kPaddedInner * Array::kPaddedX;
  const unsigned first = (block * kPackThreads + threadIdx.x) * 8;
  if (first >= kAll) return;
  alignas(16) Bits elements[8];
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) {
    // Most often all are of the same pixel.
    const unsigned pixel = Array::kPaddedX % 8 ? (first + i) / Array::kPaddedX : first / Array::kPaddedX;
    const unsigned x = first + i - pixel * Array::kPaddedX, row = pixel / Array::kPaddedInner;
    const int source = tvmconv_source<Array>(row / Array::kPaddedOuter, row % Array::kPaddedOuter, pixel % Array::kPaddedInner, x);
    elements[i] = source < 0 || first + i >= kAll ? 0 : from[source];
  }
  *reinterpret_cast<uint4 *>(to + first) = *reinterpret_cast<uint4 *>(elements);
}

// Copies arrays with (outer, inner) as the fastest index: by tiles in shared memory, whose rows are odd numbers of words.
template <class Array>
__device__ __forceinline__ void tvmconv_transpose(const Bits *from, Bits *to, unsigned block, unsigned *shared) {
  constexpr int kTileX = Array::kTileX, kTileY = kTileElements / kTileX, kPitch = kTileX + 2;
  constexpr int kRows = Array::kPaddedOuter * Array::kPaddedInner;
  constexpr int kTilesX = (Array::kPaddedX + kTileX - 1) / kTileX, kTilesY = (kRows + kTileY - 1) / kTileY;
  Bits *tile = reinterpret_cast<Bits *>(shared);
  const int first_x = block % kTilesX * kTileX, first_y = block / kTilesX % kTilesY * kTileY;
  const int batch = block / (kTilesX * kTilesY);
#pragma unroll
  for (int i = threadIdx.x; i < kTileElements; i += kPackThreads) {
    const int x = i / kTileY, y = first_y + i % kTileY;
    const int source = tvmconv_source<Array>(batch, y / Array::kPaddedInner, y % Array::kPaddedInner, first_x + x);
    tile[i % kTileY * kPitch + x] = source < 0 ? 0 : from[source];
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < kTileElements / 8; i += kPackThreads) {
    const int x = i % (kTileX / 8) * 8, y = i / (kTileX / 8);
    const int row = first_y + y, outer = row / Array::kPaddedInner, inner = row % Array::kPaddedInner;
    if (row >= kRows || first_x + x >= Array::kPaddedX) continue;
    const unsigned *words = shared + (y * kPitch + x) / 2;
    const int pixel = batch * kRows + outer * Array::kToOuter + inner * Array::kToInner;
    *reinterpret_cast<uint4 *>(to + pixel * Array::kPaddedX + first_x + x) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

template <class Array>
__device__ __forceinline__ void tvmconv_copy(const Bits *from, Bits *to, unsigned block, unsigned *shared) {
  if constexpr (Array::kTransposes)
    tvmconv_transpose<Array>(from, to, block, shared);
  else
    tvmconv_gather<Array>(from, to, block);
}

extern "C" __global__ void __launch_bounds__(kPackThreads)
    tvmconv_pack(const Bits *__restrict__ first, Bits *__restrict__ to_first, const Bits *__restrict__ second,
                 Bits *__restrict__ to_second) {
  extern __shared__ unsigned char tvmconv_shared[];
  unsigned *shared = reinterpret_cast<unsigned *>(tvmconv_shared);
  if (blockIdx.x < First::kBlocks)
    tvmconv_copy<First>(first, to_first, blockIdx.x, shared);
  else
    tvmconv_copy<Second>(second, to_second, blockIdx.x - First::kBlocks, shared);
}
