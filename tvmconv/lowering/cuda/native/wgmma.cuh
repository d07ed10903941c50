// Convolution as an implicit matrix multiplication for Hopper. tvmconv/lowering/cuda/wgmma.py writes the constants of a problem, its
// phases, the instruction `tvmconv_multiply` and its epilogue `tvmconv_finish` before this.
//
// The outputs of a transposed convolution form phases, each of which sums taps of its own (wgmma_phases.py); a convolution has one
// phase. Each phase has a map of its own outputs.
// A tile of the output is a box of pixels of a phase, a row each, times kColumns channels. Its depth goes by steps: kSpan
// channels of data and a tap, or kTogether taps that follow one another. One thread, the producer, fills two rings of stages:
// one with boxes of data (what lies outside of data arrives as zeros: padding, and channels beyond the last), one with kSpan x
// kColumns of the filter for each tap. Two groups of 128 threads, the consumers, multiply: each has half of the rows. A stage
// has a barrier `full`, at which its bytes arrive, and a barrier `empty`, at which the consumers' warps do. A block computes
// tile after tile, and the rings run on while the consumers store: boxes by copies, or, of outputs that these
// cannot write, vectors by threads.
//
// Data with channels first are read where rows of pixels can be: then boxes are of 64 pixels of a row times kSpan channels, and
// pixels, not channels, lie together in shared memory.
//
// With kAlternate, each consumer has all rows of every other tile: one multiplies while the other stores. They multiply in
// turns, since a consumer that waits for a full stage must not be a whole ring ahead of the producer.
//
// The box of data is the output's box moved by the tap; or, with kHalo, it has what all taps of the last two axes read. Rows
// of the product are then the pixels of that box from the tap's first one on, so some are no pixels of the output.
//
// With several groups, a tile's data are the channels of its outputs' groups, equally many in all tiles; the filter has zeros
// where an output's group has no channel.
//
// Rows of 128, 64 or 32 bytes lie swizzled, as copies and multiplications agree: of their address, bits 4-6, 4-5 or 4 are
// exclusive-ored with as many from bit 7 on. So every stage begins at a multiple of 1024 bytes.

constexpr int kGroup = 128;                                 // threads that multiply together
constexpr int kStorers = kAlternate ? kGroup : 2 * kGroup;  // threads of a tile
constexpr int kFragments = kRows * kGroup / kStorers / 64;  // of a consumer, 64 rows each
constexpr int kRowBytes = kSpan * 2;
constexpr int kDataBytes = (kDataRows * kRowBytes + 1023) / 1024 * 1024;
constexpr int kBoxO = kColumns < 64 ? kColumns : 64;  // output channels of a box of the filter or the output
constexpr int kOutRowBytes = kBoxO * 2, kOutBox = kRows * kOutRowBytes;
constexpr int kOutBytes = kColumns / kBoxO * kOutBox;
constexpr int kTapBox = kSpan * kBoxO * 2, kFilterBox = kTogether * kTapBox;
constexpr int kFilterBytes = kTogether * kSpan * kColumns * 2;
constexpr int kDataW = kBoxW + kHaloW, kDataH = kBoxH + kHaloH;
constexpr int kLoadedBytes = kDataW * kDataH * kBoxD * kBoxN * kRowBytes;
constexpr int kChannelSteps = (kDepth + kSpan - 1) / kSpan;
constexpr int kTilesO = (kOutputs + kColumns - 1) / kColumns;
// Tiles of each phase, as many as of the largest.
constexpr int kTilesW = (kPhaseW + kBoxW - 1) / kBoxW, kTilesH = (kPhaseH + kBoxH - 1) / kBoxH;
constexpr int kTilesD = (kPhaseD + kBoxD - 1) / kBoxD, kTilesN = (kBatch + kBoxN - 1) / kBoxN;
constexpr int kTiles = kPhases * kTilesO * kTilesW * kTilesH * kTilesD * kTilesN;

// First output of a tile in its phase. Neighbours in time share their pixels.
struct TileStart {
  int o, w, h, d, n, phase;
};

// The number of the tile that a block computes in a round, if there are so many. The first tiles have the most taps: blocks take
// them forwards and backwards in turn, so that a block that had more taps than others gets fewer next.
__device__ __forceinline__ int tvmconv_number(int round) {
  return round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

__device__ __forceinline__ TileStart tvmconv_tile(int number) {
  TileStart tile;
  tile.o = number % kTilesO * kColumns;
  number /= kTilesO;
  tile.w = number % kTilesW * kBoxW;
  number /= kTilesW;
  tile.h = number % kTilesH * kBoxH;
  number /= kTilesH;
  tile.d = number % kTilesD * kBoxD;
  number /= kTilesD;
  tile.n = number % kTilesN * kBoxN;
  tile.phase = number / kTilesN;
  return tile;
}

// The next stage, and the parity of the present phase of its barriers.
template <int kCount>
struct Ring {
  uint64_t *full;
  int stage = 0, parity = 0;
  __device__ __forceinline__ uint64_t *empty() const { return full + kCount + stage; }
  __device__ __forceinline__ uint64_t *arrived() const { return full + stage; }
  __device__ __forceinline__ void next() {
    if (++stage == kCount) stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void skip(int count) {
    parity ^= (stage + count) / kCount % 2;
    stage = (stage + count) % kCount;
  }
};
using DataRing = Ring<kDataStages>;
using FilterRing = Ring<kStages>;

// Steps of a phase: boxes of data along each axis, and taps of each.
struct Depth {
  int boxes_d, boxes_h, boxes_w, taps;
};

__device__ __forceinline__ Depth tvmconv_depth(const Phase &phase) {
  if (kHalo) return {phase.taps_d, phase.taps_h > 0, phase.taps_w > 0, phase.taps_h * phase.taps_w};
  return {phase.taps_d, phase.taps_h, phase.taps_w, 1};
}

// Loads the data of a step: a box; or of planes a box for each 64 pixels, in rows of pixels.
__device__ __forceinline__ void tvmconv_load_data(unsigned char *to, const tvmconv_tensor_map *data, uint64_t *arrived, int c,
                                                  int w, int h, int d, int n) {
  if (!kDataPlanes) return tvmconv_load_box(to, data, arrived, c, w, h, d, n);
  for (int row = 0; row < kBoxW * kBoxH * kBoxD * kBoxN; row += 64)
    tvmconv_load_box(to + row * kRowBytes, data, arrived, w + row % kBoxW, h + row / kBoxW % kBoxH * kStrideH,
                     d + row / (kBoxW * kBoxH) % kBoxD * kStrideD, c, n + row / (kBoxW * kBoxH * kBoxD));
}

__device__ __forceinline__ void tvmconv_produce(unsigned char *data_stages, unsigned char *filter_stages, DataRing data_ring,
                                                FilterRing filter_ring, const tvmconv_tensor_map *data,
                                                const tvmconv_tensor_map *filter) {
  for (int round = 0, number; (number = tvmconv_number(round)) < kTiles; ++round) {
    const TileStart tile = tvmconv_tile(number);
    const Phase phase = tvmconv_phase(tile.phase);
    const Depth depth = tvmconv_depth(phase);
    const int channel = tile.o / kGroupOutputs * kGroupChannels / 8 * 8;  // boxes begin at multiples of 16 bytes
    for (int tap_d = 0; tap_d < depth.boxes_d; ++tap_d)
      for (int tap_h = 0; tap_h < depth.boxes_h; ++tap_h)
        for (int tap_w = 0; tap_w < depth.boxes_w; ++tap_w) {
          const int w = tile.w * kStrideW + tap_w * kDilationW + phase.data_w;
          const int h = tile.h * kStrideH + tap_h * kDilationH + phase.data_h;
          const int d = tile.d * kStrideD + tap_d * kDilationD + phase.data_d;
          const int first = phase.first_tap + tap_d * kTapStepD + tap_h * kTapStepH + tap_w * kTapStepW;
          for (int c = 0; c < kDepth; c += kSpan) {
            tvmconv_wait(data_ring.empty(), data_ring.parity ^ 1);
            tvmconv_arrive_expecting(data_ring.arrived(), kLoadedBytes);
            tvmconv_load_data(data_stages + data_ring.stage * kDataBytes, data, data_ring.arrived(), channel + c, w, h, d, tile.n);
            data_ring.next();
            for (int t = 0; t < depth.taps; t += kTogether) {
              const int tap = first + (kHalo ? t / phase.taps_w * kTapStepH + t % phase.taps_w * kTapStepW : 0);
              unsigned char *at = filter_stages + filter_ring.stage * kFilterBytes;
              tvmconv_wait(filter_ring.empty(), filter_ring.parity ^ 1);
              tvmconv_arrive_expecting(filter_ring.arrived(), kFilterBytes);
              if (kFilterByDepth)
                tvmconv_load_box(at, filter, filter_ring.arrived(), c, tile.o, tap);
              else
                for (int o = 0; o < kColumns; o += kBoxO)
                  tvmconv_load_box(at + o / kBoxO * kFilterBox, filter, filter_ring.arrived(), tile.o + o, c, tap);
              filter_ring.next();
            }
          }
        }
  }
}

// The descriptor of a matrix in shared memory, in swizzled rows of so many bytes. Every 8 rows follow the 8 before; where rows are
// of columns, and one has not all columns, the next columns are `leading` bytes further.
template <int kBytes>
__device__ __forceinline__ uint64_t tvmconv_matrix(const void *start, int leading) {
  constexpr uint64_t swizzle = kBytes == 128 ? 1 : kBytes == 64 ? 2 : 3;
  const uint64_t address = tvmconv_shared_address(start);
  return (address & 0x3FFFF) >> 4 | static_cast<uint64_t>(leading >> 4) << 16 | static_cast<uint64_t>(8 * kBytes >> 4) << 32 |
         swizzle << 62;
}

__device__ __forceinline__ Channel tvmconv_channel(const tvmconv_operands &operands, int o) {
  Channel channel{0.0f, 1.0f, 1.0f};
  if (o >= kOutputs) return channel;
  const int original = tvmconv_original(o);
  if (kBias) channel.bias = static_cast<float>(operands.bias[original]);
  if (kScale) channel.scale = operands.scale[original];
  if (kSlope) channel.slope = operands.slope[original];
  return channel;
}

constexpr int64_t kPixels = static_cast<int64_t>(kOutD) * kOutH * kOutW;  // of an image
constexpr int64_t kPixelStep = kPlanes ? 1 : kOutputs, kChannelStep = kPlanes ? kPixels : 1;

// The pixel of the box that a row of the product is, a number in the box; -1 if it is of the halo.
__device__ __forceinline__ int tvmconv_row(int row) {
  if (!kHalo) return row;
  const int w = row % kDataW, h = row / kDataW;
  return w < kBoxW && h < kBoxH ? h * kBoxW + w : -1;
}

// Returns the index in the output of the first channel of a pixel of a tile's box; -1 if the output has no pixel there.
__device__ __forceinline__ int64_t tvmconv_pixel(const TileStart &tile, int row) {
  if (kHalo && row < 0) return -1;
  const Phase phase = tvmconv_phase(tile.phase);
  const int w = (tile.w + row % kBoxW) * kStepW + phase.out_w, h = (tile.h + row / kBoxW % kBoxH) * kStepH + phase.out_h;
  const int d = (tile.d + row / (kBoxW * kBoxH) % kBoxD) * kStepD + phase.out_d;
  const int box_n = row / (kBoxW * kBoxH * kBoxD), n = tile.n + box_n;
  const bool inside = w < kOutW && h < kOutH && d < kOutD && box_n < kBoxN && n < kBatch;
  return inside ? n * kPixels * kOutputs + (static_cast<int64_t>(d * kOutH + h) * kOutW + w) * kPixelStep : -1;
}

// Returns the residuals of two channels from o on, which is even.
__device__ __forceinline__ Pair tvmconv_residual(const Element *residual, int64_t pixel, int o) {
  const Element *at = residual + pixel + o * kChannelStep;
  if (!kPlanes && kOutputs % 2 == 0) return *reinterpret_cast<const Pair *>(at);
  return Pair{at[0], o + 1 < kOutputs ? at[kChannelStep] : at[0]};
}

// Returns the place of a tile's element in shared memory: as a copy of boxes reads it, or by channels, whose 16 bytes are xor-ed
// so that a warp's elements lie in different banks.
__device__ __forceinline__ int tvmconv_place(int row, int column) {
  if (kPlanes) return column * kRows * 2 + (row / 8 ^ column / 2 % 8) * 16 + row % 8 * 2;
  const int offset = row * kOutRowBytes + column % kBoxO * 2;
  return column / kBoxO * kOutBox + (offset ^ (offset >> 7 & (kOutRowBytes / 16 - 1)) << 4);
}

__device__ __forceinline__ void tvmconv_store(const tvmconv_output_maps &output, const unsigned char *out, const TileStart &tile) {
  if (threadIdx.x % kStorers != 0) return;
  for (int o = 0; o < kColumns && tile.o + o < kOutputs; o += kBoxO)
    tvmconv_store_box(output.phases + tile.phase, out + o / kBoxO * kOutBox, tile.o + o, tile.w, tile.h, tile.d, tile.n);
  tvmconv_stores_commit();
}

// Neighbouring threads store neighbouring vectors.
__device__ __forceinline__ void tvmconv_store(Element *output, const unsigned char *out, const TileStart &tile) {
  constexpr int kElements = sizeof(Vector) / sizeof(Element);
  constexpr int kVectors = (kPlanes ? kRows : kColumns) / kElements, kApart = kPlanes ? kColumns : kRows;
  constexpr int kRowsTogether = kStorers > kVectors ? kStorers / kVectors : 1;
  const int thread = threadIdx.x % kStorers;
  for (int along = thread % kVectors; along < kVectors; along += kStorers)
    for (int across = thread / kVectors; across < kApart; across += kRowsTogether) {
      const int row = kPlanes ? along * kElements : across, column = kPlanes ? across : along * kElements;
      const int64_t pixel = tvmconv_pixel(tile, row);
      if (pixel >= 0 && tile.o + column < kOutputs)
        *reinterpret_cast<Vector *>(output + pixel + (tile.o + column) * kChannelStep) =
            *reinterpret_cast<const Vector *>(out + tvmconv_place(row, column));
    }
}

__device__ __forceinline__ void tvmconv_consume(int group, const unsigned char *data_stages, const unsigned char *filter_stages,
                                                unsigned char *out, DataRing data_ring, FilterRing filter_ring, uint64_t *turns,
                                                const tvmconv_operands &operands, const Output &output) {
  const int thread = threadIdx.x % kGroup, warp = thread / 32, lane = thread % 32;
  const int first_row = kAlternate ? 0 : group * kFragments * 64, barrier = kAlternate ? 1 + group : 1;
  const bool leads = threadIdx.x % kStorers == 0;
  if (kAlternate) out += group * kOutBytes;
  for (int round = 0, number; (number = tvmconv_number(round)) < kTiles; ++round) {
    const TileStart tile = tvmconv_tile(number);
    const Phase phase = tvmconv_phase(tile.phase);
    const Depth depth = tvmconv_depth(phase);
    const int boxes = depth.boxes_d * depth.boxes_h * depth.boxes_w * kChannelSteps;
    if (kAlternate && round % 2 != group) {
      data_ring.skip(boxes), filter_ring.skip(boxes * (depth.taps / kTogether));
      continue;
    }
    if (kAlternate) tvmconv_wait(turns + group, (round / 2 + 1 - group) % 2);
    float sums[kFragments][kColumns / 2];
    uint64_t *last_filter = nullptr, *last_data = nullptr;
    for (int box = 0; box < boxes; ++box) {
      const unsigned char *data = data_stages + data_ring.stage * kDataBytes + first_row * kRowBytes;
      tvmconv_wait(data_ring.arrived(), data_ring.parity);
      for (int t = 0; t < depth.taps; t += kTogether) {
        const unsigned char *filter = filter_stages + filter_ring.stage * kFilterBytes;
        tvmconv_wait(filter_ring.arrived(), filter_ring.parity);
        tvmconv_multiplies_begin();
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int tap = t + i;
          const unsigned char *moved = data;
          if (kHalo) moved += (tap / phase.taps_w * kDilationH * kDataW + tap % phase.taps_w * kDilationW) * kRowBytes;
#pragma unroll
          for (int k = 0; k < kSpan / 16; ++k)
#pragma unroll
            for (int f = 0; f < kFragments; ++f)
              tvmconv_multiply(sums[f],
                               kDataPlanes ? tvmconv_matrix<128>(moved + f * 64 * kRowBytes + k * 16 * 128, 16)
                                           : tvmconv_matrix<kRowBytes>(moved + f * 64 * kRowBytes + k * 32, 16),
                               kFilterByDepth ? tvmconv_matrix<kRowBytes>(filter + i * kSpan * kColumns * 2 + k * 32, 16)
                                              : tvmconv_matrix<kOutRowBytes>(filter + i * kTapBox + k * 16 * kOutRowBytes, kFilterBox),
                               box + tap + k > 0);
        }
        tvmconv_multiplies_commit();
        // One step stays under way; that before it is done with its stages.
        tvmconv_multiplies_wait<1>();
        if (last_filter != nullptr && lane == 0) tvmconv_arrive(last_filter);
        if (last_data != nullptr && lane == 0) tvmconv_arrive(last_data);
        last_filter = filter_ring.empty();
        last_data = nullptr;
        filter_ring.next();
      }
      last_data = data_ring.empty();
      data_ring.next();
    }
    if (kAlternate) {
      __syncwarp();  // all have seen their turn
      if (lane == 0) tvmconv_arrive(turns + 1 - group);
    }
    tvmconv_multiplies_wait<0>();
#pragma unroll
    for (int f = 0; f < kFragments; ++f) tvmconv_settle(sums[f]);
    if (boxes > 0 && lane == 0) tvmconv_arrive(last_filter), tvmconv_arrive(last_data);
    if (kOutputsWithoutTaps && boxes == 0)
#pragma unroll
      for (int i = 0; i < kFragments * kColumns / 2; ++i) sums[i / (kColumns / 2)][i % (kColumns / 2)] = 0.0f;

    // The stores of the tile before have read what is overwritten now.
    if (leads) tvmconv_stores_read();
    tvmconv_meet(barrier, kStorers);
    int rows[kFragments][2];
    int64_t pixels[kFragments][2];
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rows[f][half] = tvmconv_row(first_row + f * 64 + warp * 16 + half * 8 + lane / 4);
        pixels[f][half] = kResidual ? tvmconv_pixel(tile, rows[f][half]) : -1;
      }
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const int column = j * 8 + lane % 4 * 2;
      const int o = tile.o + column;
      const Channel channels[2] = {tvmconv_channel(operands, o), tvmconv_channel(operands, o + 1)};
      Pair residuals[kFragments][2] = {};  // all are under way before the first is waited for
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (kResidual && pixels[f][half] >= 0 && o < kOutputs)
            residuals[f][half] = tvmconv_residual(operands.residual, pixels[f][half], o);
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (kHalo && rows[f][half] < 0) continue;
          const float *sum = sums[f] + j * 4 + half * 2;
          const Pair residual = residuals[f][half];
          const Pair pair{static_cast<Element>(tvmconv_finish(sum[0], channels[0], static_cast<float>(residual.x))),
                          static_cast<Element>(tvmconv_finish(sum[1], channels[1], static_cast<float>(residual.y)))};
          unsigned char *at = out + tvmconv_place(rows[f][half], column);
          if (kPlanes) {
            *reinterpret_cast<Element *>(at) = pair.x;
            *reinterpret_cast<Element *>(at + kRows * 2) = pair.y;
          } else {
            *reinterpret_cast<Pair *>(at) = pair;
          }
        }
    }
    tvmconv_publish();
    tvmconv_meet(barrier, kStorers);
    tvmconv_store(output, out, tile);
  }
  if (leads) tvmconv_stores_done();
}

extern "C" __global__ void __launch_bounds__(3 * kGroup, 1)
    tvmconv_kernel(const __grid_constant__ tvmconv_tensor_map data, const __grid_constant__ tvmconv_tensor_map filter,
                   const Element *__restrict__ bias, const float *__restrict__ scale, const float *__restrict__ slope,
                   const Element *__restrict__ residual, const __grid_constant__ Output output) {
  extern __shared__ unsigned char tvmconv_shared[];
  unsigned char *data_stages = tvmconv_shared + (-tvmconv_shared_address(tvmconv_shared) & 1023);
  unsigned char *filter_stages = data_stages + kDataStages * kDataBytes;
  unsigned char *out = filter_stages + kStages * kFilterBytes;
  uint64_t *barriers = reinterpret_cast<uint64_t *>(out + (kAlternate ? 2 : 1) * kOutBytes);
  const DataRing data_ring{barriers};
  const FilterRing filter_ring{barriers + 2 * kDataStages};
  uint64_t *turns = barriers + 2 * (kDataStages + kStages);  // one a consumer, at which the other one arrives
  if (threadIdx.x == 0) {
    for (int i = 0; i < kDataStages + kStages; ++i) {
      uint64_t *full = i < kDataStages ? data_ring.full + i : filter_ring.full + i - kDataStages;
      tvmconv_barrier_init(full, 1);
      tvmconv_barrier_init(full + (i < kDataStages ? kDataStages : kStages), kStorers / 32);
    }
    for (int i = 0; i < 2; ++i) tvmconv_barrier_init(turns + i, kGroup / 32);
    tvmconv_barriers_ready();
  }
  __syncthreads();
  // 168 registers a thread at launch: 40 + 2 * 232 = 3 * 168.
  const int group = threadIdx.x / kGroup;
  if (group == 2) {
    tvmconv_keep_registers<40>();
    if (threadIdx.x == 2 * kGroup) tvmconv_produce(data_stages, filter_stages, data_ring, filter_ring, &data, &filter);
  } else {
    tvmconv_take_registers<232>();
    tvmconv_consume(group, data_stages, filter_stages, out, data_ring, filter_ring, turns, {bias, scale, slope, residual}, output);
  }
}
