// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// A team of threads has a row in its registers: a warp, or for long rows a block. Each thread has
// the same columns in every row, so that the sums over rows stay in registers too.

#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/layer_norm_kernel.h"

namespace skein::ops {
namespace {

constexpr int kWarpTeams = 4;  // of a block, when a team is a warp

// The most threads that a team may have: 32 is a warp, all else a block. Fewer threads, more
// registers for each.
constexpr int threads_of(int team) { return team == 32 ? kWarpTeams * 32 : team; }

template <int kMost>
struct Team {
  static constexpr bool kWarp = kMost == 32;
  __device__ int size() const { return kWarp ? 32 : blockDim.x; }
  __device__ int rank() const { return kWarp ? threadIdx.x % 32 : threadIdx.x; }
  __device__ int in_block() const { return kWarp ? threadIdx.x / 32 : 0; }
  __device__ int64_t index() const {
    return static_cast<int64_t>(blockIdx.x) * (kWarp ? kWarpTeams : 1) + in_block();
  }
  __device__ int64_t count() const {
    return static_cast<int64_t>(gridDim.x) * (kWarp ? kWarpTeams : 1);
  }
  // The sum over the team, in every thread. All teams of the grid that have a row make the call.
  __device__ float sum(float value, float* shared) const {
    return kWarp ? warp_sum(value) : block_sum(value, shared);
  }
};

// The sums over rows that a thread forms for its columns.
template <int kVectors, int kSize>
struct RowSums {
  float weight[kVectors][kSize] = {};
  float bias[kVectors][kSize] = {};
};

// The columns of a thread: kVectors vectors, the i-th one at index first + i · step.
template <typename T, int kElements, int kTeam>
struct Columns {
  using V = Vector<T>;
  static constexpr int kVectors = kElements / V::kSize;
  int first, step, vectors;
  __device__ Columns(const Team<kTeam>& team, int channels)
      : first(team.rank()), step(team.size()), vectors(channels / V::kSize) {}
  __device__ int index(int i) const { return first + i * step; }
  __device__ bool has(int i) const { return index(i) < vectors; }
  // Zeros where the row has ended.
  __device__ V load(const void* row, int i) const {
    return has(i) ? static_cast<const V*>(row)[index(i)] : V{};
  }
  // Into (2, channels).
  __device__ void store(const RowSums<kVectors, V::kSize>& sums, float* out, int channels) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!has(i)) continue;
      for (int j = 0; j < V::kSize; ++j) {
        out[index(i) * V::kSize + j] = sums.weight[i][j];
        out[channels + index(i) * V::kSize + j] = sums.bias[i][j];
      }
    }
  }
};

template <typename T>
__device__ const T* row_of(const void* array, int64_t row, int channels) {
  return static_cast<const T*>(array) + row * channels;
}

template <typename T, int kElements, int kTeam>
__global__ void __launch_bounds__(threads_of(kTeam)) forward(LayerNormForward call) {
  using Own = Columns<T, kElements, kTeam>;
  using V = typename Own::V;
  __shared__ float shared[32];
  const Team<kTeam> team{};
  const Own own(team, call.channels);
  const int64_t row = team.index();
  if (row >= call.rows) return;
  float x[Own::kVectors][V::kSize];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Own::kVectors; ++i) {
    V v = own.load(row_of<T>(call.x, row, call.channels), i);
    if (call.delta != nullptr && own.has(i)) {
      const V more = own.load(row_of<T>(call.delta, row, call.channels), i);
      for (int j = 0; j < V::kSize; ++j) {
        v.values[j] = narrow<T>(widen(v.values[j]) + widen(more.values[j]));
      }
      static_cast<V*>(call.sum)[row * own.vectors + own.index(i)] = v;
    }
    for (int j = 0; j < V::kSize; ++j) {
      x[i][j] = widen(v.values[j]);
      sum += x[i][j];
    }
  }
  const float mean = team.sum(sum, shared) / call.channels;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < Own::kVectors; ++i) {
    if (!own.has(i)) continue;
    for (int j = 0; j < V::kSize; ++j) squares += (x[i][j] - mean) * (x[i][j] - mean);
  }
  const float inverse = rsqrtf(team.sum(squares, shared) / call.channels + call.epsilon);
  if (team.rank() == 0) {
    call.mean[row] = mean;
    call.inverse[row] = inverse;
  }
#pragma unroll
  for (int i = 0; i < Own::kVectors; ++i) {
    if (!own.has(i)) continue;
    const V weight = own.load(call.weight, i), bias = own.load(call.bias, i);
    V y;
    for (int j = 0; j < V::kSize; ++j) {
      const float normalised = (x[i][j] - mean) * inverse;
      y.values[j] = narrow<T>(normalised * widen(weight.values[j]) + widen(bias.values[j]));
    }
    static_cast<V*>(call.y)[row * own.vectors + own.index(i)] = y;
  }
}

// One row: d_x is written, the sums grow.
template <typename T, int kElements, int kTeam, typename Sums>
__device__ __forceinline__ void backward_row(const LayerNormBackward& call, int64_t row, Sums& sums,
                                             float* shared) {
  using Own = Columns<T, kElements, kTeam>;
  using V = typename Own::V;
  const Team<kTeam> team{};
  const Own own(team, call.channels);
  const float mean = call.mean[row], inverse = call.inverse[row];
  V x[Own::kVectors], d_y[Own::kVectors], more[Own::kVectors];
#pragma unroll
  for (int i = 0; i < Own::kVectors; ++i) {
    x[i] = own.load(row_of<T>(call.x, row, call.channels), i);
    d_y[i] = own.load(row_of<T>(call.d_y, row, call.channels), i);
    more[i] = call.d_sum != nullptr ? own.load(row_of<T>(call.d_sum, row, call.channels), i) : V{};
  }
  float sum = 0, dot = 0;  // of weight · d_y: alone, and with the normalised row
#pragma unroll
  for (int i = 0; i < Own::kVectors; ++i) {
    const V weight = own.load(call.weight, i);
    for (int j = 0; j < V::kSize; ++j) {
      const float d = widen(d_y[i].values[j]), g = d * widen(weight.values[j]);
      const float normalised = (widen(x[i].values[j]) - mean) * inverse;
      sum += g;
      dot += g * normalised;
      sums.weight[i][j] += d * normalised;
      sums.bias[i][j] += d;
    }
  }
  const float mean_g = team.sum(sum, shared) / call.channels;
  const float mean_dot = team.sum(dot, shared) / call.channels;
#pragma unroll
  for (int i = 0; i < Own::kVectors; ++i) {
    if (!own.has(i)) continue;
    const V weight = own.load(call.weight, i);
    V d_x;
    for (int j = 0; j < V::kSize; ++j) {
      const float normalised = (widen(x[i].values[j]) - mean) * inverse;
      const float g = widen(d_y[i].values[j]) * widen(weight.values[j]);
      d_x.values[j] =
          narrow<T>(inverse * (g - mean_g - normalised * mean_dot) + widen(more[i].values[j]));
    }
    static_cast<V*>(call.d_x)[row * own.vectors + own.index(i)] = d_x;
  }
}

// A block's teams take every so many-th row; what they summed is added in the order of the teams.
template <typename T, int kElements, int kTeam>
__global__ void __launch_bounds__(threads_of(kTeam), kTeam == 32 ? 3 : 1)
    backward(LayerNormBackward call) {
  using Own = Columns<T, kElements, kTeam>;
  using V = typename Own::V;
  __shared__ float shared[32];
  const Team<kTeam> team{};
  const Own own(team, call.channels);
  RowSums<Own::kVectors, V::kSize> sums;
  for (int64_t row = team.index(); row < call.rows; row += team.count()) {
    backward_row<T, kElements, kTeam>(call, row, sums, shared);
  }
  float* part = call.parts + static_cast<int64_t>(blockIdx.x) * 2 * call.channels;
  if constexpr (kTeam == 32) {
    __shared__ float of_teams[kWarpTeams][2 * kElements * 32];
    own.store(sums, of_teams[team.in_block()], call.channels);
    __syncthreads();
    for (int c = threadIdx.x; c < 2 * call.channels; c += blockDim.x) {
      float total = 0;
      for (int i = 0; i < kWarpTeams; ++i) total += of_teams[i][c];
      part[c] = total;
    }
  } else {
    own.store(sums, part, call.channels);
  }
}

template <int kElements, int kTeam>
struct Shape {
  static constexpr int kPerThread = kElements, kThreads = kTeam;
};

// Calls `launch` with what the kernels are compiled for.
template <typename Launch>
void with_shape(int channels, Launch launch) {
  if (channels <= 24 * 32) {
    launch(Shape<24, 32>{});  // GPT-2's 768
  } else if (channels <= 32 * 32) {
    launch(Shape<32, 32>{});
  } else if (channels <= 32 * 256) {
    launch(Shape<32, 256>{});
  } else {
    static_assert(kLayerNormMostChannels == 32 * 512);
    launch(Shape<32, 512>{});
  }
}

int threads_for(int channels) {
  const int warps = layer_norm_warps(channels);
  return 32 * (warps == 1 ? kWarpTeams : warps);
}

}  // namespace

void layer_norm_on_cuda(const LayerNormForward& call) {
  const int threads = threads_for(call.channels);
  with_type(call.type, [&](auto type) {
    with_shape(call.channels, [&](auto shape) {
      const int64_t teams = shape.kThreads == 32 ? kWarpTeams : 1;  // of a block
      const int64_t blocks = (call.rows + teams - 1) / teams;
      forward<decltype(type), shape.kPerThread, shape.kThreads>
          <<<static_cast<unsigned>(blocks), threads, 0, current_stream()>>>(call);
    });
  });
  check_launch();
}

void layer_norm_backward_on_cuda(const LayerNormBackward& call) {
  const auto blocks = static_cast<unsigned>(layer_norm_parts(call.channels));
  const int threads = threads_for(call.channels);
  with_type(call.type, [&](auto type) {
    with_shape(call.channels, [&](auto shape) {
      backward<decltype(type), shape.kPerThread, shape.kThreads>
          <<<blocks, threads, 0, current_stream()>>>(call);
    });
  });
  check_launch();
}

}  // namespace skein::ops
