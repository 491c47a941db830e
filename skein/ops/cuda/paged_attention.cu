// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <algorithm>
#include <type_traits>

#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/decode/paged_attention_kernel.h"

namespace skein::ops {
namespace {

constexpr int kChannels = 8;  // of a lane
constexpr double kLowest = -1e30;
constexpr double kLog2E = 1.4426950408889634;
constexpr int kFullDevice = 264;  // blocks that keep a large GPU busy
constexpr int kMostSplits = 16;
constexpr int kLeastPositions = 256;  // that are worth a block
constexpr int kKnownPages = 1024;     // of a split, at most

// What is computed in.
template <typename T>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};
template <typename T>
using Wide = typename WideOf<T>::Type;

constexpr int kThreads = 128;  // two blocks of the largest kernel fit beside each other
// Keys that a lane waits for together.
template <typename T>
constexpr int kAtOnce = sizeof(T) == 2   ? 4
                        : sizeof(T) == 4 ? 2
                                         : 1;

__device__ inline int64_t row_at(const PagedPlace& place, int64_t text, int64_t position) {
  const int64_t in_page = (int64_t{1} << place.page_shift) - 1;
  const int64_t page = place.pages[text * place.pages_per_row + (position >> place.page_shift)];
  return (page << place.page_shift) + (position & in_page);
}

// One thread per element of k and of v.
template <typename T>
__global__ void store(StoreKeysCall call) {
  const PagedPlace& place = call.place;
  const int width = place.key_heads * place.head_dim;
  const int64_t count = place.tokens * width;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const int64_t token = i / width, channel = i % width;
    const int64_t text = place.rows ? place.rows[token] : token;
    const int64_t to = row_at(place, text, place.positions[token]) * width + channel;
    reinterpret_cast<T*>(place.addresses[0])[to] =
        static_cast<const T*>(call.k)[token * call.k_stride + channel];
    reinterpret_cast<T*>(place.addresses[1])[to] =
        static_cast<const T*>(call.v)[token * call.v_stride + channel];
  }
}

// Channels of a lane, as they are stored.
template <typename T>
struct alignas(16) Raw {
  T values[kChannels];
};

template <typename T>
__device__ inline Raw<T> load(const T* from) {
  using V = Vector<T>;
  Raw<T> raw;
#pragma unroll
  for (int i = 0; i < kChannels / V::kSize; ++i) {
    const V vector = reinterpret_cast<const V*>(from)[i];
#pragma unroll
    for (int j = 0; j < V::kSize; ++j) raw.values[i * V::kSize + j] = vector.values[j];
  }
  return raw;
}

// The sums over kLanes neighbours of each of kCount numbers. Lane l of them has that of number
// owned_by(l), which others of them may have too.
template <int kLanes, int kCount, typename W>
__device__ inline W sum_over_lanes(const W (&values)[kCount]) {
  constexpr int kOffset = kLanes / 2;
  if constexpr (kLanes == 1) {
    return values[0];
  } else if constexpr (kCount == 1) {
    const W sum[1] = {values[0] + __shfl_xor_sync(~0U, values[0], kOffset)};
    return sum_over_lanes<kOffset>(sum);
  } else {
    // Half of the numbers go to the neighbour, which sends its part of the others.
    const bool upper = threadIdx.x & kOffset;
    W rest[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const W sent = upper ? values[i] : values[i + kCount / 2];
      const W kept = upper ? values[i + kCount / 2] : values[i];
      rest[i] = kept + __shfl_xor_sync(~0U, sent, kOffset);
    }
    return sum_over_lanes<kOffset>(rest);
  }
}

template <int kLanes, int kCount>
__device__ inline int owned_by(int lane) {
  return lane / (kLanes / kCount);
}

// Reads one split of a token's text for up to kGroup heads that share keys. kLanes lanes hold the
// channels of a key; a tile is what all of a block's lanes read at once. Of a tile all scores are
// formed, then their exponentials, each once, then the values are added up.
template <typename T, int kLanes, int kGroup>
__global__ void __launch_bounds__(kThreads) attend(PagedAttentionCall call) {
  using W = Wide<T>;
  constexpr int kReaders = kThreads / kLanes, kWarps = kThreads / 32;
  constexpr int kTile = kReaders * kAtOnce<T>;
  constexpr int kPerHead = kThreads / kGroup < 32 ? kThreads / kGroup : 32;  // of a tile's scores
  __shared__ int known[kKnownPages];
  __shared__ W scores[2][kTile][kGroup];
  __shared__ W bests[kGroup], totals[kGroup], shrinks[kGroup];
  __shared__ W joined[kWarps][kGroup][kLanes * kChannels];

  const PagedPlace& place = call.place;
  const int group = call.heads / place.key_heads;
  const int chunks = (group + kGroup - 1) / kGroup;
  const int64_t token = blockIdx.x;
  const int key_head = blockIdx.y / chunks;
  const int first = blockIdx.y % chunks * kGroup;  // of the group
  const int heads = min(kGroup, group - first);
  const int width = place.head_dim, page_shift = place.page_shift;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % kLanes;
  const int reader = threadIdx.x / kLanes;
  // Lanes behind a head's last channel read its first ones, and count for nothing.
  const bool has_channels = lane * kChannels < width;
  const int column = has_channels ? lane * kChannels : 0;
  const int64_t head = token * call.heads + key_head * group + first;

  const int64_t text = place.rows ? place.rows[token] : token;
  const int end = static_cast<int>(place.positions[token]) + 1;
  const int begin = call.window > 0 && end > call.window ? end - static_cast<int>(call.window) : 0;
  const int share = (end - begin + call.splits - 1) / call.splits;
  const int from = begin + static_cast<int>(blockIdx.z) * share;
  const int to = min(from + share, end);

  const int* pages = place.pages + text * place.pages_per_row;
  const int first_page = from >> page_shift;
  for (int i = threadIdx.x; i <= ((to - 1) >> page_shift) - first_page; i += kThreads) {
    known[i] = pages[first_page + i];
  }
  if (threadIdx.x < kGroup) {
    bests[threadIdx.x] = static_cast<W>(kLowest);
    totals[threadIdx.x] = 0;
  }
  const T* keys = reinterpret_cast<const T*>(place.addresses[0]) + key_head * width + column;
  const T* values = reinterpret_cast<const T*>(place.addresses[1]) + key_head * width + column;
  const int row_width = place.key_heads * width, in_page = (1 << page_shift) - 1;
  W q[kGroup][kChannels];
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
    const int own = key_head * group + first + (h < heads ? h : 0);
    const T* row = static_cast<const T*>(call.q) + token * call.q_stride + own * width;
    const Raw<T> raw = load(row + column);
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      q[h][c] = has_channels ? static_cast<W>(raw.values[c]) : W{0};
    }
  }
  __syncthreads();

  const auto load_tile = [&](int base, Raw<T>(&k)[kAtOnce<T>], Raw<T>(&v)[kAtOnce<T>]) {
#pragma unroll
    for (int i = 0; i < kAtOnce<T>; ++i) {
      const int wanted = base + i * kReaders + reader;
      const int position = wanted < to ? wanted : from;
      const int64_t page = known[(position >> page_shift) - first_page];
      const int64_t offset = ((page << page_shift) + (position & in_page)) * row_width;
      k[i] = load(keys + offset);
      v[i] = load(values + offset);
    }
  };

  const W scale = static_cast<W>(call.scale), cap = static_cast<W>(call.cap);
  const W log2e = static_cast<W>(kLog2E);
  W sum[kGroup][kChannels] = {};
  Raw<T> k[kAtOnce<T>], v[kAtOnce<T>];
  if (from < to) load_tile(from, k, v);
  int buffer = 0;
  for (int base = from; base < to; base += kTile, buffer ^= 1) {
    Raw<T> next_k[kAtOnce<T>], next_v[kAtOnce<T>];
    if (base + kTile < to) load_tile(base + kTile, next_k, next_v);

#pragma unroll
    for (int i = 0; i < kAtOnce<T>; ++i) {
      W parts[kGroup];
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        W part = 0;
#pragma unroll
        for (int c = 0; c < kChannels; ++c) part += q[h][c] * static_cast<W>(k[i].values[c]);
        parts[h] = part;
      }
      W score = sum_over_lanes<kLanes>(parts) * scale;
      score = cap > 0 ? tanh(score / cap) * cap * log2e : score * log2e;
      const int row = i * kReaders + reader;
      if (base + row >= to) score = static_cast<W>(kLowest);
      scores[buffer][row][owned_by<kLanes, kGroup>(lane)] = score;
    }
    __syncthreads();

    if (const int h = threadIdx.x / kPerHead, lane = threadIdx.x % kPerHead; h < kGroup) {
      constexpr int kOwn = (kTile + kPerHead - 1) / kPerHead;
      W own[kOwn], best = bests[h];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int row = i * kPerHead + lane;
        own[i] = row < kTile ? scores[buffer][row][h] : static_cast<W>(kLowest);
        best = max(best, own[i]);
      }
#pragma unroll
      for (int offset = kPerHead / 2; offset > 0; offset /= 2) {
        best = max(best, __shfl_xor_sync(~0U, best, offset));
      }
      W total = 0;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const W weight = exp2(own[i] - best);
        if (i * kPerHead + lane < kTile) scores[buffer][i * kPerHead + lane][h] = weight;
        total += weight;
      }
#pragma unroll
      for (int offset = kPerHead / 2; offset > 0; offset /= 2) {
        total += __shfl_xor_sync(~0U, total, offset);
      }
      if (lane == 0) {
        const W shrink = exp2(bests[h] - best);
        shrinks[h] = shrink;
        totals[h] = totals[h] * shrink + total;
        bests[h] = best;
      }
    }
    __syncthreads();

#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      const W shrink = shrinks[h];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sum[h][c] *= shrink;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce<T>; ++i) {
      const int row = i * kReaders + reader;
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        const W weight = scores[buffer][row][h];
#pragma unroll
        for (int c = 0; c < kChannels; ++c) sum[h][c] += weight * static_cast<W>(v[i].values[c]);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce<T>; ++i) {
      k[i] = next_k[i];
      v[i] = next_v[i];
    }
  }

  // All readers' sums become one: within each warp, then over the warps.
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
#pragma unroll
      for (int offset = 16; offset >= kLanes; offset /= 2) {
        sum[h][c] += __shfl_xor_sync(~0U, sum[h][c], offset);
      }
      if (threadIdx.x % 32 < kLanes) joined[warp][h][lane * kChannels + c] = sum[h][c];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < heads * width; i += kThreads) {
    const int h = i / width, c = i % width;
    W all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) all += joined[w][h][c];
    if (call.splits == 1) {
      static_cast<T*>(call.y)[(head + h) * width + c] = static_cast<T>(all / totals[h]);
      continue;
    }
    W* out = static_cast<W*>(call.parts) + ((head + h) * call.splits + blockIdx.z) * (width + 2);
    out[c] = all;
    if (c == 0) {
      out[width] = bests[h];
      out[width + 1] = totals[h];
    }
  }
}

// The same for bf16 heads of kChunks · 32 channels, on tensor cores: up to eight heads are the rows
// of a matrix (the other eight are nobody's), 16 keys the columns. Each warp reads tiles of its own
// and keeps its own maximum; nothing is shared before the end.
//
// A thread reads sixteen bytes of a key, eight channels, where products expect two: which channels
// stand in which column is the same for both factors, and undone where results are written.
constexpr int kTileKeys = 16, kTensorHeads = 8, kTensorWarps = kThreads / 32;

#if __CUDA_ARCH__ >= 800
struct Accumulator {
  float row[2];    // of this thread's head, two columns
  float other[2];  // of the head that nobody has
};

__device__ inline void multiply(Accumulator& sum, uint32_t a_low, uint32_t a_high, uint32_t b_low,
                                uint32_t b_high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum.row[0]), "+f"(sum.row[1]), "+f"(sum.other[0]), "+f"(sum.other[1])
      : "r"(a_low), "r"(0), "r"(a_high), "r"(0), "r"(b_low), "r"(b_high));
}

// Rows of eight by eight become columns.
__device__ inline uint32_t transposed(uint32_t pair) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

__device__ inline uint32_t packed(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
#endif

template <int kChunks>
__global__ void __launch_bounds__(kThreads) attend_in_tiles(PagedAttentionCall call) {
#if __CUDA_ARCH__ >= 800
  constexpr int kWidth = kChunks * 32;
  __shared__ int known[kKnownPages];
  __shared__ float joined[kTensorWarps][kTensorHeads][kWidth];
  __shared__ float bests[kTensorWarps][kTensorHeads], totals[kTensorWarps][kTensorHeads];

  const PagedPlace& place = call.place;
  const int group = call.heads / place.key_heads;
  const int chunks = (group + kTensorHeads - 1) / kTensorHeads;
  const int64_t token = blockIdx.x;
  const int key_head = blockIdx.y / chunks;
  const int first = blockIdx.y % chunks * kTensorHeads;  // of the group
  const int heads = min(kTensorHeads, group - first);
  const int page_shift = place.page_shift, in_page = (1 << page_shift) - 1;
  const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, quarter = threadIdx.x % 4;

  const int64_t text = place.rows ? place.rows[token] : token;
  const int end = static_cast<int>(place.positions[token]) + 1;
  const int begin = call.window > 0 && end > call.window ? end - static_cast<int>(call.window) : 0;
  const int share = (end - begin + call.splits - 1) / call.splits;
  const int from = begin + static_cast<int>(blockIdx.z) * share;
  const int to = min(from + share, end);
  const int* pages = place.pages + text * place.pages_per_row;
  const int first_page = from >> page_shift;
  for (int i = threadIdx.x; i <= ((to - 1) >> page_shift) - first_page; i += kThreads) {
    known[i] = pages[first_page + i];
  }

  // Of this thread's head: channels 8 · quarter … of every 32.
  uint4 q[kChunks];
  {
    const int own = key_head * group + first + (row < heads ? row : 0);
    const auto* channels = static_cast<const __nv_bfloat16*>(call.q) + token * call.q_stride +
                           own * kWidth + quarter * 8;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) q[c] = *reinterpret_cast<const uint4*>(channels + c * 32);
  }
  const auto* keys =
      reinterpret_cast<const __nv_bfloat16*>(place.addresses[0]) + key_head * kWidth + quarter * 8;
  const auto* values =
      reinterpret_cast<const __nv_bfloat16*>(place.addresses[1]) + key_head * kWidth + quarter * 8;
  const int row_width = place.key_heads * kWidth;
  __syncthreads();

  // Keys row and row + 8 of a tile.
  const auto load_tile = [&](int base, uint4(&k)[2][kChunks], uint4(&v)[2][kChunks]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int wanted = base + half * 8 + row;
      const int position = wanted < to ? wanted : to - 1;
      const int64_t page = known[(position >> page_shift) - first_page];
      const int64_t offset = ((page << page_shift) + (position & in_page)) * row_width;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        k[half][c] = *reinterpret_cast<const uint4*>(keys + offset + c * 32);
        v[half][c] = *reinterpret_cast<const uint4*>(values + offset + c * 32);
      }
    }
  };

  const float cap = static_cast<float>(call.cap);
  const float scale = static_cast<float>(cap > 0 ? call.scale / call.cap : call.scale * kLog2E);
  const float after = static_cast<float>(call.cap * kLog2E);
  Accumulator sum[kChunks][4] = {};
  float best = static_cast<float>(kLowest), total = 0;
  uint4 k[2][kChunks], v[2][kChunks];
  constexpr int kStride = kTensorWarps * kTileKeys;
  int base = from + warp * kTileKeys;
  if (base < to) load_tile(base, k, v);
  for (; base < to; base += kStride) {
    uint4 next_k[2][kChunks], next_v[2][kChunks];
    if (base + kStride < to) load_tile(base + kStride, next_k, next_v);

    Accumulator scores[2] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply(scores[half], q[c].x, q[c].y, k[half][c].x, k[half][c].y);
        multiply(scores[half], q[c].z, q[c].w, k[half][c].z, k[half][c].w);
      }
    }
    float weights[4];
    float next = best;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float score = scores[i / 2].row[i % 2] * scale;
      if (cap > 0) score = tanhf(score) * after;
      const int position = base + i / 2 * 8 + quarter * 2 + i % 2;
      weights[i] = position < to ? score : static_cast<float>(kLowest);
      next = fmaxf(next, weights[i]);
    }
    next = fmaxf(next, __shfl_xor_sync(~0U, next, 1));
    next = fmaxf(next, __shfl_xor_sync(~0U, next, 2));
    const float shrink = exp2f(best - next);
    best = next;
    total *= shrink;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weights[i] = exp2f(weights[i] - best);
      total += weights[i];
    }
    const uint32_t low = packed(weights[0], weights[1]), high = packed(weights[2], weights[3]);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const uint32_t* near = reinterpret_cast<const uint32_t*>(&v[0][c]);
      const uint32_t* far = reinterpret_cast<const uint32_t*>(&v[1][c]);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        sum[c][r].row[0] *= shrink;
        sum[c][r].row[1] *= shrink;
        multiply(sum[c][r], low, high, transposed(near[r]), transposed(far[r]));
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        k[half][c] = next_k[half][c];
        v[half][c] = next_v[half][c];
      }
    }
  }

  total += __shfl_xor_sync(~0U, total, 1);
  total += __shfl_xor_sync(~0U, total, 2);
  if (quarter == 0) {
    bests[warp][row] = best;
    totals[warp][row] = total;
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float* out = &joined[warp][row][c * 32 + quarter * 8 + r * 2];
      out[0] = sum[c][r].row[0];
      out[1] = sum[c][r].row[1];
    }
  }
  __syncthreads();
  const int64_t head = token * call.heads + key_head * group + first;
  for (int i = threadIdx.x; i < heads * kWidth; i += kThreads) {
    const int h = i / kWidth, c = i % kWidth;
    float largest = bests[0][h], all = 0, mass = 0;
#pragma unroll
    for (int w = 1; w < kTensorWarps; ++w) largest = fmaxf(largest, bests[w][h]);
#pragma unroll
    for (int w = 0; w < kTensorWarps; ++w) {
      const float weight = exp2f(bests[w][h] - largest);
      all += weight * joined[w][h][c];
      mass += weight * totals[w][h];
    }
    if (call.splits == 1) {
      static_cast<__nv_bfloat16*>(call.y)[(head + h) * kWidth + c] = __float2bfloat16(all / mass);
      continue;
    }
    float* out =
        static_cast<float*>(call.parts) + ((head + h) * call.splits + blockIdx.z) * (kWidth + 2);
    out[c] = all;
    if (c == 0) {
      out[kWidth] = largest;
      out[kWidth + 1] = mass;
    }
  }
#endif
}

// One block for each token and head.
template <typename T>
__global__ void join(PagedAttentionCall call) {
  const int width = call.place.head_dim;
  const int64_t head = blockIdx.x;
  using W = Wide<T>;
  const W* parts = static_cast<const W*>(call.parts) + head * call.splits * (width + 2);
  W best = static_cast<W>(kLowest);
  for (int s = 0; s < call.splits; ++s) {
    const W own = parts[s * (width + 2) + width];
    best = own > best ? own : best;
  }
  for (int c = threadIdx.x; c < width; c += blockDim.x) {
    W total = 0, sum = 0;
    for (int s = 0; s < call.splits; ++s) {
      const W* part = parts + s * (width + 2);
      const W weight = exp2(part[width] - best);
      total += weight * part[width + 1];
      sum += weight * part[c];
    }
    static_cast<T*>(call.y)[head * width + c] = static_cast<T>(sum / total);
  }
}

template <typename T, int kLanes, int kGroup>
void launch(const PagedAttentionCall& call) {
  const int group = call.heads / call.place.key_heads;
  const dim3 grid(static_cast<unsigned>(call.place.tokens),
                  static_cast<unsigned>(call.place.key_heads * ((group + kGroup - 1) / kGroup)),
                  static_cast<unsigned>(call.splits));
  attend<T, kLanes, kGroup><<<grid, kThreads, 0, current_stream()>>>(call);
}

template <int kChunks>
void launch_in_tiles(const PagedAttentionCall& call) {
  const int group = call.heads / call.place.key_heads;
  const int chunks = (group + kTensorHeads - 1) / kTensorHeads;
  const dim3 grid(static_cast<unsigned>(call.place.tokens),
                  static_cast<unsigned>(call.place.key_heads * chunks),
                  static_cast<unsigned>(call.splits));
  attend_in_tiles<kChunks><<<grid, kThreads, 0, current_stream()>>>(call);
}

bool has_bfloat16_products() {
  static const bool has = [] {
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major >= 8;
  }();
  return has;
}

// What answers are mostly written in has kernels of its own.
bool launch_in_tiles_where_that_fits(const PagedAttentionCall& call) {
  if (call.place.type != DType::kBF16 || !has_bfloat16_products()) return false;
  if (call.place.head_dim == 64) {
    launch_in_tiles<2>(call);
  } else if (call.place.head_dim == 128) {
    launch_in_tiles<4>(call);
  } else {
    return false;
  }
  return true;
}

// Wide types, which tests ask for more than people do, have fewer kernels: programs should not
// grow.
template <typename T>
void launch_for_width(const PagedAttentionCall& call) {
  if constexpr (sizeof(T) <= 4) {
    if (call.place.head_dim <= 8 * kChannels) return launch<T, 8, 4>(call);
  }
  if constexpr (sizeof(T) == 2) {
    if (call.place.head_dim <= 16 * kChannels) return launch<T, 16, 4>(call);
  }
  launch<T, 32, 4>(call);
}

template <typename Launch>
void with_any_type(DType type, Launch launch) {
  if (type == DType::kF64) return launch(double{});
  with_type(type, launch);
}

}  // namespace

int paged_splits(const PagedPlace& place) {
  const int64_t positions = place.pages_per_row << place.page_shift;
  const int64_t blocks = std::max<int64_t>(1, place.tokens * place.key_heads);
  const int64_t wanted = (kFullDevice + blocks - 1) / blocks;
  const int64_t useful = std::max<int64_t>(1, positions / kLeastPositions);
  const int64_t needed = place.pages_per_row / (kKnownPages - 1) + 1;
  return static_cast<int>(std::max(needed, std::min<int64_t>({wanted, useful, kMostSplits})));
}

void store_keys_on_cuda(const StoreKeysCall& call) {
  const int64_t count = call.place.tokens * call.place.key_heads * call.place.head_dim;
  if (count == 0) return;
  with_any_type(call.place.type, [&](auto type) {
    store<decltype(type)><<<blocks_for(count, 256), 256, 0, current_stream()>>>(call);
  });
  check_launch();
}

void paged_attention_on_cuda(const PagedAttentionCall& call) {
  if (call.place.tokens == 0) return;
  with_any_type(call.place.type, [&](auto type) {
    using T = decltype(type);
    if (!launch_in_tiles_where_that_fits(call)) launch_for_width<T>(call);
    if (call.splits > 1) {
      const auto heads = static_cast<unsigned>(call.place.tokens * call.heads);
      join<T><<<heads, 64, 0, current_stream()>>>(call);
    }
  });
  check_launch();
}

}  // namespace skein::ops
