// Convolution as an implicit matrix multiplication for Hopper. tvmconv/lowering/cuda/wgmma.py writes the constants of a problem, its
// phases, the instruction `tvmconv_multiply` and its epilogue `tvmconv_finish` before this.
//
// The outputs of a transposed convolution are of phases, which sum other taps (wgmma_phases.py); a convolution has one. Each
// has a map of its own, whose neighbours are outputs of the phase.
// A tile of the output is a box of pixels of a phase, a row each, times kColumns channels. Its depth goes by steps: a tap, and 64
// channels of data. One thread, the producer, fills a ring of stages: for each step a box of data, which is the output's
// box moved by the tap (what lies outside of data arrives as zeros: padding, and channels beyond the last), and 64 x
// kColumns of the filter. Two groups of 128 threads, the consumers, multiply: each has half of the rows. A stage has a
// barrier `full`, at which its bytes arrive, and a barrier `empty`, at which the consumers' warps do.
// A block computes tile after tile, and the ring runs on while the consumers store: boxes by copies, or, of outputs that these
// cannot write, vectors by threads.
//
// Rows of 128 bytes lie swizzled, as copies and multiplications agree: of their address, bits 4-6 are exclusive-ored with
// bits 7-9. So every tile begins at a multiple of 1024 bytes.

constexpr int kGroup = 128;                    // threads that multiply together
constexpr int kSpan = 64;                      // elements of 128 bytes
constexpr int kFragments = kRows / kGroup;     // of a consumer, 64 rows each
constexpr int kDataBytes = kRows * 128, kFilterBytes = kColumns * 128, kStageBytes = kDataBytes + kFilterBytes;
constexpr int kFilterBox = kSpan * 128;        // 64 channels of data times 64 of the output
constexpr int kOutBox = kRows * 128;
constexpr int kLoadedBytes = kBoxW * kBoxH * kBoxD * kBoxN * 128 + kFilterBytes;
constexpr int kChannelSteps = (kChannels + kSpan - 1) / kSpan;
constexpr int kTilesO = (kOutputs + kColumns - 1) / kColumns;
// As many in each phase, by the largest.
constexpr int kTilesW = (kPhaseW + kBoxW - 1) / kBoxW, kTilesH = (kPhaseH + kBoxH - 1) / kBoxH;
constexpr int kTilesD = (kPhaseD + kBoxD - 1) / kBoxD, kTilesN = (kBatch + kBoxN - 1) / kBoxN;
constexpr int kTiles = kPhases * kTilesO * kTilesW * kTilesH * kTilesD * kTilesN;

// Where a tile begins among the outputs of its phase. Neighbours in time share their pixels.
struct TileStart {
  int o, w, h, d, n, phase;
};

// The tile that a block computes in a round, if there are so many. The first ones have the most taps: blocks take turns
// forwards and backwards, so that who had more than others gets less.
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

// The stage of a step, and the parity of the phase of its barriers that the step is.
struct Ring {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

__device__ __forceinline__ void tvmconv_produce(unsigned char *stages, uint64_t *full, uint64_t *empty,
                                                const tvmconv_tensor_map *data, const tvmconv_tensor_map *filter) {
  Ring ring;
  for (int round = 0, number; (number = tvmconv_number(round)) < kTiles; ++round) {
    const TileStart tile = tvmconv_tile(number);
    const Phase phase = tvmconv_phase(tile.phase);
    for (int tap_d = 0; tap_d < phase.taps_d; ++tap_d)
      for (int tap_h = 0; tap_h < phase.taps_h; ++tap_h)
        for (int tap_w = 0; tap_w < phase.taps_w; ++tap_w) {
          const int w = tile.w * kStrideW + tap_w * kDilationW + phase.data_w;
          const int h = tile.h * kStrideH + tap_h * kDilationH + phase.data_h;
          const int d = tile.d * kStrideD + tap_d * kDilationD + phase.data_d;
          const int tap = phase.first_tap + tap_d * kTapStepD + tap_h * kTapStepH + tap_w * kTapStepW;
          for (int c = 0; c < kChannels; c += kSpan) {
            unsigned char *at = stages + ring.stage * kStageBytes;
            uint64_t *arrived = full + ring.stage;
            tvmconv_wait(empty + ring.stage, ring.parity ^ 1);
            tvmconv_arrive_expecting(arrived, kLoadedBytes);
            tvmconv_load_box(at, data, arrived, c, w, h, d, tile.n);
            if (kFilterByDepth)
              tvmconv_load_box(at + kDataBytes, filter, arrived, c, tile.o, tap);
            else
              for (int o = 0; o < kColumns; o += kSpan)
                tvmconv_load_box(at + kDataBytes + o / kSpan * kFilterBox, filter, arrived, tile.o + o, c, tap);
            ring.next();
          }
        }
  }
}

// A matrix in shared memory, in rows of 128 swizzled bytes. Every 8 rows lie `stride` bytes after those before; where the
// rows are of depth and more than 64 elements wide, every further 64 elements lie `leading` bytes after those before.
__device__ __forceinline__ uint64_t tvmconv_matrix(const void *start, int leading, int stride) {
  const uint64_t address = tvmconv_shared_address(start), swizzle_128 = 1;
  return (address & 0x3FFFF) >> 4 | static_cast<uint64_t>(leading >> 4) << 16 | static_cast<uint64_t>(stride >> 4) << 32 |
         swizzle_128 << 62;
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

// Where the first channel of a tile's row is in the output; -1 if the output has no pixel there.
__device__ __forceinline__ int64_t tvmconv_pixel(const TileStart &tile, int row) {
  const Phase phase = tvmconv_phase(tile.phase);
  const int w = (tile.w + row % kBoxW) * kStepW + phase.out_w, h = (tile.h + row / kBoxW % kBoxH) * kStepH + phase.out_h;
  const int d = (tile.d + row / (kBoxW * kBoxH) % kBoxD) * kStepD + phase.out_d;
  const int box_n = row / (kBoxW * kBoxH * kBoxD), n = tile.n + box_n;
  const bool inside = w < kOutW && h < kOutH && d < kOutD && box_n < kBoxN && n < kBatch;
  return inside ? n * kPixels * kOutputs + (static_cast<int64_t>(d * kOutH + h) * kOutW + w) * kPixelStep : -1;
}

// Of two channels from o on, which is even.
__device__ __forceinline__ Pair tvmconv_residual(const Element *residual, int64_t pixel, int o) {
  const Element *at = residual + pixel + o * kChannelStep;
  if (!kPlanes && kOutputs % 2 == 0) return *reinterpret_cast<const Pair *>(at);
  return Pair{at[0], o + 1 < kOutputs ? at[kChannelStep] : at[0]};
}

// Where a tile's element is in shared memory: as a copy of boxes reads it, or by channels, of which 16 bytes are exclusive-ored
// so that a warp's elements lie in different banks.
__device__ __forceinline__ int tvmconv_place(int row, int column) {
  if (kPlanes) return column * kRows * 2 + (row / 8 ^ column / 2 % 8) * 16 + row % 8 * 2;
  return column / kSpan * kOutBox + row * 128 + (column % kSpan * 2 ^ row % 8 * 16);
}

__device__ __forceinline__ void tvmconv_store(const tvmconv_output_maps &output, const unsigned char *out, const TileStart &tile) {
  if (threadIdx.x != 0) return;
  for (int o = 0; o < kColumns && tile.o + o < kOutputs; o += kSpan)
    tvmconv_store_box(output.phases + tile.phase, out + o / kSpan * kOutBox, tile.o + o, tile.w, tile.h, tile.d, tile.n);
  tvmconv_stores_commit();
}

// Vectors that lie together are neighbouring threads'.
__device__ __forceinline__ void tvmconv_store(Element *output, const unsigned char *out, const TileStart &tile) {
  constexpr int kElements = sizeof(Vector) / sizeof(Element);
  constexpr int kTogether = (kPlanes ? kRows : kColumns) / kElements, kApart = kPlanes ? kColumns : kRows;
  const int along = threadIdx.x % kTogether * kElements;
  for (int across = threadIdx.x / kTogether; across < kApart; across += 2 * kGroup / kTogether) {
    const int row = kPlanes ? along : across, column = kPlanes ? across : along;
    const int64_t pixel = tvmconv_pixel(tile, row);
    if (pixel >= 0 && tile.o + column < kOutputs)
      *reinterpret_cast<Vector *>(output + pixel + (tile.o + column) * kChannelStep) =
          *reinterpret_cast<const Vector *>(out + tvmconv_place(row, column));
  }
}

__device__ __forceinline__ void tvmconv_consume(int group, const unsigned char *stages, unsigned char *out, uint64_t *full,
                                                uint64_t *empty, const tvmconv_operands &operands, const Output &output) {
  const int thread = threadIdx.x % kGroup, warp = thread / 32, lane = thread % 32;
  const int first_row = group * kFragments * 64;
  Ring ring;
  for (int round = 0, number; (number = tvmconv_number(round)) < kTiles; ++round) {
    const TileStart tile = tvmconv_tile(number);
    const Phase phase = tvmconv_phase(tile.phase);
    const int steps = phase.taps_d * phase.taps_h * phase.taps_w * kChannelSteps;
    float sums[kFragments][kColumns / 2];
    uint64_t *last = nullptr;
    for (int step = 0; step < steps; ++step) {
      const unsigned char *data = stages + ring.stage * kStageBytes, *filter = data + kDataBytes;
      tvmconv_wait(full + ring.stage, ring.parity);
      tvmconv_multiplies_begin();
#pragma unroll
      for (int k = 0; k < kSpan / 16; ++k)
#pragma unroll
        for (int f = 0; f < kFragments; ++f)
          tvmconv_multiply(sums[f], tvmconv_matrix(data + (first_row + f * 64) * 128 + k * 32, 16, 1024),
                           kFilterByDepth ? tvmconv_matrix(filter + k * 32, 16, 1024)
                                          : tvmconv_matrix(filter + k * 2048, kFilterBox, 1024),
                           step + k > 0);
      tvmconv_multiplies_commit();
      // One step stays under way; that before it is done with its stage.
      tvmconv_multiplies_wait<1>();
      if (last != nullptr && lane == 0) tvmconv_arrive(last);
      last = empty + ring.stage;
      ring.next();
    }
    tvmconv_multiplies_wait<0>();
#pragma unroll
    for (int f = 0; f < kFragments; ++f) tvmconv_settle(sums[f]);
    if (last != nullptr && lane == 0) tvmconv_arrive(last);
    if (kOutputsWithoutTaps && steps == 0)
#pragma unroll
      for (int i = 0; i < kFragments * kColumns / 2; ++i) sums[i / (kColumns / 2)][i % (kColumns / 2)] = 0.0f;

    // The stores of the tile before have read what is overwritten now.
    if (threadIdx.x == 0) tvmconv_stores_read();
    tvmconv_consumers_meet();
    int64_t pixels[kFragments][2];
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        pixels[f][half] = kResidual ? tvmconv_pixel(tile, first_row + f * 64 + warp * 16 + half * 8 + lane / 4) : -1;
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
          const int row = first_row + f * 64 + warp * 16 + half * 8 + lane / 4;
          const float *sum = sums[f] + j * 4 + half * 2;
          const Pair residual = residuals[f][half];
          const Pair pair{static_cast<Element>(tvmconv_finish(sum[0], channels[0], static_cast<float>(residual.x))),
                          static_cast<Element>(tvmconv_finish(sum[1], channels[1], static_cast<float>(residual.y)))};
          unsigned char *at = out + tvmconv_place(row, column);
          if (kPlanes) {
            *reinterpret_cast<Element *>(at) = pair.x;
            *reinterpret_cast<Element *>(at + kRows * 2) = pair.y;
          } else {
            *reinterpret_cast<Pair *>(at) = pair;
          }
        }
    }
    tvmconv_publish();
    tvmconv_consumers_meet();
    tvmconv_store(output, out, tile);
  }
  if (threadIdx.x == 0) tvmconv_stores_done();
}

extern "C" __global__ void __launch_bounds__(3 * kGroup, 1)
    tvmconv_kernel(const __grid_constant__ tvmconv_tensor_map data, const __grid_constant__ tvmconv_tensor_map filter,
                   const Element *__restrict__ bias, const float *__restrict__ scale, const float *__restrict__ slope,
                   const Element *__restrict__ residual, const __grid_constant__ Output output) {
  extern __shared__ unsigned char tvmconv_shared[];
  unsigned char *stages = tvmconv_shared + (-tvmconv_shared_address(tvmconv_shared) & 1023);
  unsigned char *out = stages + kStages * kStageBytes;
  uint64_t *full = reinterpret_cast<uint64_t *>(out + kColumns / kSpan * kOutBox), *empty = full + kStages;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      tvmconv_barrier_init(full + stage, 1);
      tvmconv_barrier_init(empty + stage, 2 * kGroup / 32);
    }
    tvmconv_barriers_ready();
  }
  __syncthreads();
  // 168 registers a thread at launch: 40 + 2 * 232 = 3 * 168.
  const int group = threadIdx.x / kGroup;
  if (group == 2) {
    tvmconv_keep_registers<40>();
    if (threadIdx.x == 2 * kGroup) tvmconv_produce(stages, full, empty, &data, &filter);
  } else {
    tvmconv_take_registers<232>();
    tvmconv_consume(group, stages, out, full, empty, {bias, scale, slope, residual}, output);
  }
}
