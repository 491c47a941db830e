// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <type_traits>

#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/decode/sampling_kernel.h"

namespace skein::ops {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kRun = 8;           // tokens behind each other that a thread reads at once
constexpr int kTile = 1024;       // tokens whose weights one warp adds up
constexpr int kMostTiles = 1024;  // vocabularies of a million
constexpr int kShare = 8;         // tokens whose weights a lane adds up in search of one

// As they are stored, but that half precision is widened.
template <typename T>
struct StoredOf {
  using Type = float;
};
template <>
struct StoredOf<double> {
  using Type = double;
};
template <typename T>
using Stored = typename StoredOf<T>::Type;

// A row, and which of its tokens weigh what.
template <typename T>
struct Row {
  const SampleCall& call;
  const T* logits;
  bool aligned;         // to what a thread reads at once
  const uint8_t* seen;  // null: the penalty does not count
  double largest = 0;   // weighs one
  uint32_t last = 0;    // tokens of lower sort keys weigh nothing
  uint64_t least = 0;   // nor do those that weigh less

  __device__ double raw(int64_t i) const { return static_cast<Stored<T>>(logits[i]); }
  __device__ double value_of(int64_t i, double own) const {
    return seen && seen[i] ? penalised(own, call.penalty) : own;
  }
  __device__ uint64_t weight(int64_t i, Stored<T> raw) const {
    const double value = value_of(i, raw);
    if (last > 0 && sort_key_of(static_cast<float>(value)) < last) return 0;
    const uint64_t own = weight_of(value, largest, call.inverse);
    return own >= least ? own : 0;
  }
  __device__ uint64_t weight(int64_t i) const {
    return i < call.vocabulary ? weight(i, static_cast<Stored<T>>(logits[i])) : 0;
  }
  // Calls f(i, raw value) for the tokens of a run that begins at `begin`, a multiple of kRun.
  template <typename F>
  __device__ void each(int64_t begin, F f) const {
    constexpr int kSize = Vector<T>::kSize;
    if (aligned && begin + kRun <= call.vocabulary) {
      Vector<T> run[kRun / kSize];
#pragma unroll
      for (int v = 0; v < kRun / kSize; ++v) {
        run[v] = reinterpret_cast<const Vector<T>*>(logits + begin)[v];
      }
#pragma unroll
      for (int j = 0; j < kRun; ++j) {
        f(begin + j, static_cast<Stored<T>>(run[j / kSize].values[j % kSize]));
      }
    } else {
      for (int j = 0; j < kRun && begin + j < call.vocabulary; ++j) {
        f(begin + j, static_cast<Stored<T>>(logits[begin + j]));
      }
    }
  }
};

__device__ inline uint64_t warp_sum(uint64_t value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0U, value, offset);
  return value;
}

// The largest number and, of those as large, the first token.
template <typename W>
struct Best {
  W value;
  int64_t token;
};

template <typename W>
__device__ inline Best<W> better(Best<W> a, Best<W> b) {
  // Not a number wins, so that it is seen.
  if (a.value != a.value) return a;
  if (b.value != b.value) return b;
  if (a.value != b.value) return a.value > b.value ? a : b;
  return a.token < b.token ? a : b;
}

// Of value(i, raw value).
template <typename W, typename T, typename Value>
__device__ Best<W> block_best(const Row<T>& row, Value value, Best<W>* shared) {
  Best<W> best{static_cast<W>(-HUGE_VAL), row.call.vocabulary};
  for (int64_t begin = static_cast<int64_t>(threadIdx.x) * kRun; begin < row.call.vocabulary;
       begin += static_cast<int64_t>(kThreads) * kRun) {
    row.each(begin,
             [&](int64_t i, Stored<T> raw) { best = better(best, Best<W>{value(i, raw), i}); });
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    best = better(best, Best<W>{__shfl_xor_sync(~0U, best.value, offset),
                                __shfl_xor_sync(~0U, best.token, offset)});
  }
  __syncthreads();  // `shared` may still be read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = best;
  __syncthreads();
  best = shared[0];
  for (int warp = 1; warp < kWarps; ++warp) best = better(best, shared[warp]);
  return best;
}

// What all tokens weigh, in every thread; tile by tile in `tiles`.
template <typename T>
__device__ __noinline__ uint64_t block_mass(const Row<T>& row, uint64_t* tiles, uint64_t* shared) {
  const int num_tiles = static_cast<int>((row.call.vocabulary + kTile - 1) / kTile);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Row<T> own = row;
  uint64_t total = 0;
  __syncthreads();
  for (int tile = warp; tile < num_tiles; tile += kWarps) {
    uint64_t sum = 0;
    for (int run = 0; run < kTile / (32 * kRun); ++run) {
      const int64_t begin = static_cast<int64_t>(tile) * kTile + (run * 32 + lane) * kRun;
      own.each(begin, [&](int64_t i, Stored<T> raw) { sum += own.weight(i, raw); });
    }
    sum = warp_sum(sum);
    if (lane == 0) tiles[tile] = sum;
    total += sum;
  }
  if (lane == 0) shared[warp] = total;
  __syncthreads();
  return warp_sum(shared[lane]);
}

// As RowSampler::last_of(): the sort key at which tokens, counted or weighed, reach the goal.
template <typename T>
__device__ __noinline__ uint32_t last_of(const Row<T>& given, uint64_t goal, bool weighs,
                                         unsigned long long* bins, uint32_t* found,
                                         uint64_t* found_above) {
  const Row<T> row = given;
  uint32_t prefix = 0;
  uint64_t above = 0;
  for (int digit = 0; digit < kKeyDigits; ++digit) {
    const int shift = digit == 0 ? 21 : digit == 1 ? 10 : 0, bits = digit == 2 ? 10 : 11;
    __syncthreads();
    for (int i = threadIdx.x; i < kMostDigits; i += kThreads) bins[i] = 0;
    __syncthreads();
    for (int64_t begin = static_cast<int64_t>(threadIdx.x) * kRun; begin < row.call.vocabulary;
         begin += static_cast<int64_t>(kThreads) * kRun) {
      row.each(begin, [&](int64_t i, Stored<T> raw) {
        const double value = row.value_of(i, raw);
        const uint32_t own = sort_key_of(static_cast<float>(value));
        if (digit > 0 && own >> (shift + bits) != prefix) return;
        const unsigned long long amount =
            weighs ? weight_of(value, row.largest, row.call.inverse) : 1;
        if (amount > 0) atomicAdd(&bins[own >> shift & ((1U << bits) - 1)], amount);
      });
    }
    __syncthreads();
    // From the last bin down, each lane 32 of a run of 1024, then the next.
    if (threadIdx.x < 32) {
      const int lane = threadIdx.x;
      bool done = false;
      for (int top = (1 << bits) - 1; top >= 0 && !done; top -= 32) {
        const uint64_t own = bins[top - lane];
        uint64_t upto = own;  // with the bins above it in this run
        for (int offset = 1; offset < 32; offset *= 2) {
          const uint64_t other = __shfl_up_sync(~0U, upto, offset);
          if (lane >= offset) upto += other;
        }
        const bool last_run = top < 32;
        const unsigned reached =
            __ballot_sync(~0U, above + upto >= goal || (last_run && lane == top));
        if (reached != 0) {
          const int first = __ffs(reached) - 1;
          if (lane == first) {
            *found = static_cast<uint32_t>(top - lane);
            *found_above = above + upto - own;
          }
          done = true;
        } else {
          above += __shfl_sync(~0U, upto, 31);
        }
      }
    }
    __syncthreads();
    prefix = prefix << bits | *found;
    above = *found_above;
  }
  return prefix;
}

// The first token whose weight, and that of all before it, reaches beyond the point. By one warp.
template <typename T>
__device__ int64_t token_at(const Row<T>& row, uint64_t point, const uint64_t* tiles) {
  const int lane = threadIdx.x;
  const int num_tiles = static_cast<int>((row.call.vocabulary + kTile - 1) / kTile);
  uint64_t before = 0;
  // In runs of 32, then the one that it lies in.
  const auto find = [&](int count, auto&& amount) {
    for (int base = 0; base < count; base += 32) {
      const uint64_t own = base + lane < count ? amount(base + lane) : 0;
      uint64_t upto = own;
      for (int offset = 1; offset < 32; offset *= 2) {
        const uint64_t other = __shfl_up_sync(~0U, upto, offset);
        if (lane >= offset) upto += other;
      }
      const unsigned reached = __ballot_sync(~0U, before + upto > point);
      if (reached != 0) {
        const int first = __ffs(reached) - 1;
        before += __shfl_sync(~0U, upto - own, first);
        return base + first;
      }
      before += __shfl_sync(~0U, upto, 31);
    }
    return count - 1;
  };
  const int64_t tile = find(num_tiles, [&](int i) { return tiles[i]; });
  const int64_t share = find(kTile / kShare, [&](int i) {
    uint64_t sum = 0;
    for (int j = 0; j < kShare; ++j) sum += row.weight(tile * kTile + i * kShare + j);
    return sum;
  });
  const int64_t begin = tile * kTile + share * kShare;
  return begin + find(kShare, [&](int i) { return row.weight(begin + i); });
}

// One block for each row.
template <typename T>
__global__ void __launch_bounds__(kThreads) sample(SampleCall call) {
  __shared__ unsigned long long bins[kMostDigits];
  __shared__ uint64_t tiles[kMostTiles], sums[32], found_above;
  __shared__ Best<Stored<T>> raw_bests[kWarps];
  __shared__ Best<double> bests[kWarps];
  __shared__ uint32_t found;
  const int64_t index = blockIdx.x, count = call.vocabulary;
  const T* logits = static_cast<const T*>(call.logits) + index * call.stride;
  Row<T> row{call, logits, reinterpret_cast<uintptr_t>(logits) % 16 == 0, nullptr};
  const auto raw_best = block_best(row, [](int64_t, Stored<T> raw) { return raw; }, raw_bests);
  const double raw_largest = raw_best.value;
  row.largest = raw_largest;
  uint64_t mass = 0;  // of all tokens, without the penalty
  if (call.wants_log_probs || !call.greedy) mass = block_mass(row, tiles, sums);
  const uint64_t raw_mass = mass;
  int64_t token = raw_best.token;
  if (call.seen) {
    row.seen = call.seen + index * count;
    const auto best =
        block_best(row, [&](int64_t i, Stored<T> raw) { return row.value_of(i, raw); }, bests);
    row.largest = best.value;
    token = best.token;
  }
  if (!call.greedy) {
    if (call.top_k > 0 && call.top_k < count) {
      row.last = last_of(row, static_cast<uint64_t>(call.top_k), false, bins, &found, &found_above);
    }
    if (call.top_p < 1) {
      const auto kept = block_mass(row, tiles, sums);
      const auto goal = static_cast<uint64_t>(call.top_p * static_cast<double>(kept));
      const uint32_t last = last_of(row, goal > 0 ? goal : 1, true, bins, &found, &found_above);
      row.last = last > row.last ? last : row.last;
    }
    row.least = call.least_weight;
    if (row.seen || row.last > 0 || row.least > 0) mass = block_mass(row, tiles, sums);
    if (threadIdx.x < 32) {
      const uint64_t bits = draw_bits(
          static_cast<uint64_t>(call.keys[index]), static_cast<uint64_t>(call.samples[index]),
          static_cast<uint64_t>(call.positions[index] + call.position_offset));
      token = token_at(row, point_of(bits, mass), tiles);
    }
  }
  if (threadIdx.x != 0) return;
  const bool bad = !(fabs(raw_largest) < HUGE_VAL);  // not a number, or an infinity
  if (bad || token >= count) token = 0;
  call.tokens[index] = token;
  double log_prob = bad ? nan("") : 0;
  if (!bad && call.wants_log_probs) {
    log_prob = (row.raw(token) - raw_largest) * call.inverse -
               log(static_cast<double>(raw_mass) / kWeightOne);
  }
  call.log_probs[index] = log_prob;
  if (call.seen) call.seen[index * count + token] = 1;
}

}  // namespace

void sample_on_cuda(const SampleCall& call) {
  if (call.rows == 0) return;
  const auto rows = static_cast<unsigned>(call.rows);
  if (call.type == DType::kF64) {
    sample<double><<<rows, kThreads, 0, current_stream()>>>(call);
  } else {
    with_type(call.type, [&](auto type) {
      if constexpr (!std::is_same_v<decltype(type), __half>) {
        sample<decltype(type)><<<rows, kThreads, 0, current_stream()>>>(call);
      }
    });
  }
  check_launch();
}

}  // namespace skein::ops
