// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
//
// A block makes 256 columns of the sums of 32 samples: each warp 32 columns, whose signs for one
// element are one word of philox. Signs are the left factor, so that a thread makes them in the
// very registers that the tensor cores read; the two terms of the samples' values are the right one
// and pass through shared memory.
//
// Tensor cores cut what does not fit into fp32 instead of rounding it, which over many additions
// shrinks a sum. So sums of 1,024 elements are added up by ordinary additions, in shared memory.

#include "skein/core/random.h"
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/sign_projection_kernel.h"

namespace skein::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 256;         // of a block
constexpr int kSamples = 32;          // of a block
constexpr int kTerms = 2 * kSamples;  // first the upper terms of all samples, then the lower ones
constexpr int kStage = 128;           // elements that lie in shared memory at a time
constexpr int kStagesPerSum = 8;      // that tensor cores add up
constexpr int kSums = 64;             // of a thread: 32 x 64 of a warp
constexpr int kWordsPerStage = kColumns / 32;
constexpr int kBlocksPerProcessor = 2;

struct Shared {
  __nv_bfloat16 terms[2][kTerms][kStage];  // swizzled: terms_at()
  uint32_t signs[2][kWordsPerStage][kStage];
  float sums[kSums][kThreads];
};

int64_t round_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

struct Shape {
  int64_t padded;  // elements, to whole stages
  int64_t tiles;   // of samples
  int64_t column_blocks;
  int64_t splits;  // of the elements
  int64_t stages_per_split;
};

int multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

// As many splits as fill the device once, each long enough that adding them up costs nothing.
Shape shape_of(int64_t samples, int64_t elements, int64_t columns) {
  Shape shape{};
  shape.padded = round_up(elements, kStage);
  shape.tiles = round_up(samples, kSamples) / kSamples;
  shape.column_blocks = round_up(columns, kColumns) / kColumns;
  const int64_t stages = shape.padded / kStage;
  const int64_t places = int64_t{kBlocksPerProcessor} * multiprocessors();
  const int64_t wanted = places / (shape.tiles * shape.column_blocks);
  const int64_t most = stages / (2 * kStagesPerSum);
  const int64_t splits = wanted < 1 || most < 1 ? 1 : (wanted < most ? wanted : most);
  shape.stages_per_split = (stages + splits - 1) / splits;
  shape.splits = (stages + shape.stages_per_split - 1) / shape.stages_per_split;
  return shape;
}

// terms[tile][term of a sample][element], zero where there is no sample or element.
__global__ void split_terms(SignProjectionCall call, Shape shape) {
  const int64_t per_row = shape.padded / 8;
  const int64_t all = shape.tiles * kSamples * per_row;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t sample = i / per_row, element = i % per_row * 8;
    Vector<__nv_bfloat16> upper, lower;
    for (int k = 0; k < 8; ++k) {
      const bool exists = sample < call.samples && element + k < call.elements;
      const float value = exists ? call.rows[sample * call.row_stride + element + k] : 0.0F;
      upper.values[k] = narrow<__nv_bfloat16>(value);
      lower.values[k] = narrow<__nv_bfloat16>(value - widen(upper.values[k]));
    }
    const int64_t row = sample / kSamples * kTerms + sample % kSamples;
    auto* out = static_cast<__nv_bfloat16*>(call.terms) + row * shape.padded + element;
    *reinterpret_cast<Vector<__nv_bfloat16>*>(out) = upper;
    *reinterpret_cast<Vector<__nv_bfloat16>*>(out + kSamples * shape.padded) = lower;
  }
}

#if __CUDA_ARCH__ >= 800

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Sixteen bytes of a row, moved so that eight rows of one chunk lie in different banks.
__device__ inline const __nv_bfloat16* terms_at(const Shared& shared, int buffer, int row,
                                                int chunk) {
  return &shared.terms[buffer][row][(chunk ^ (row % 8)) * 8];
}

// Begins to copy a stage's terms.
__device__ inline void load_terms(const Shared& shared, int buffer, const __nv_bfloat16* terms,
                                  int64_t stride) {
  constexpr int kChunks = kStage / 8;
  for (int i = threadIdx.x; i < kTerms * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     shared_address(terms_at(shared, buffer, row, chunk))),
                 "l"(terms + row * stride + chunk * 8));
  }
  asm volatile("cp.async.commit_group;");
}

// The words of a stage: one element a thread.
__device__ inline void make_signs(Shared& shared, int buffer, uint64_t stream, int64_t element,
                                  int64_t first_group) {
  const int place = threadIdx.x % kStage, group = threadIdx.x / kStage;
  const auto bits = random::sign_bits(stream, static_cast<uint64_t>(element + place),
                                      static_cast<uint64_t>(first_group + group));
  for (int i = 0; i < 4; ++i) shared.signs[buffer][group * 4 + i][place] = bits.word[i];
}

// Two bf16 signs, of neighbouring elements and the column whose bit is shifted to the top of both
// halves: +1 where it is 1.
__device__ inline uint32_t signs_of(uint32_t halves, int shift) {
  return ((halves << shift) & 0x80008000U) ^ 0xBF80BF80U;
}

__device__ inline void load_four(uint32_t (&matrices)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_address(row)));
}

__device__ inline void multiply_add(float* sums, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// sums[half][terms / 8][4] += signs of 32 columns · terms of a stage.
__device__ inline void multiply_stage(float (&sums)[2][kTerms / 8][4], const Shared& shared,
                                      int buffer) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = lane / 4, pair = lane % 4 * 2;  // of the tensor cores' left factor
  const uint32_t* words = shared.signs[buffer][warp];
#pragma unroll
  for (int step = 0; step < kStage / 16; ++step) {
    const auto first = *reinterpret_cast<const uint2*>(words + step * 16 + pair);
    const auto second = *reinterpret_cast<const uint2*>(words + step * 16 + 8 + pair);
    uint32_t signs[2][4];
    for (int half = 0; half < 2; ++half) {
      const unsigned choice = half == 0 ? 0x5410U : 0x7632U;  // 16 columns of both elements
      const uint32_t low = __byte_perm(first.x, first.y, choice);
      const uint32_t high = __byte_perm(second.x, second.y, choice);
      signs[half][0] = signs_of(low, 15 - row);
      signs[half][1] = signs_of(low, 7 - row);
      signs[half][2] = signs_of(high, 15 - row);
      signs[half][3] = signs_of(high, 7 - row);
    }
#pragma unroll
    for (int block = 0; block < kTerms / 16; ++block) {
      uint32_t terms[4];  // 16 terms of 16 elements
      const int term = block * 16 + lane / 16 * 8 + lane % 8;
      load_four(terms, terms_at(shared, buffer, term, step * 2 + lane / 8 % 2));
      for (int half = 0; half < 2; ++half) {
        multiply_add(sums[half][block * 2], signs[half], terms[0], terms[1]);
        multiply_add(sums[half][block * 2 + 1], signs[half], terms[2], terms[3]);
      }
    }
  }
}

__device__ inline void move_sums(float (&sums)[2][kTerms / 8][4], Shared& shared) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    float& sum = sums[i / 32][i / 4 % 8][i % 4];
    shared.sums[i][threadIdx.x] += sum;
    sum = 0;
  }
}

// parts[split][tile][column][term].
__device__ inline void write_parts(const SignProjectionCall& call, const Shape& shape,
                                   const Shared& shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kColumns + warp * 32;
  float* parts = call.parts + (blockIdx.y * shape.tiles + blockIdx.z) * call.columns * kTerms;
#pragma unroll
  for (int i = 0; i < kSums; i += 2) {
    const int half = i / 32, block = i / 4 % 8, below = i % 4 / 2;
    const int64_t column = first_column + half * 16 + below * 8 + lane / 4;
    if (column >= call.columns) continue;
    *reinterpret_cast<float2*>(parts + column * kTerms + block * 8 + lane % 4 * 2) =
        float2{shared.sums[i][threadIdx.x], shared.sums[i + 1][threadIdx.x]};
  }
}

#endif

__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    project(SignProjectionCall call, Shape shape) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int64_t first = blockIdx.y * shape.stages_per_split;
  const int64_t all = shape.padded / kStage;
  const int64_t last = first + shape.stages_per_split < all ? first + shape.stages_per_split : all;
  const int64_t first_group =
      static_cast<int64_t>(blockIdx.x) * (kColumns / random::kColumnsPerCall);
  const auto* terms =
      static_cast<const __nv_bfloat16*>(call.terms) + blockIdx.z * kTerms * shape.padded;
  const auto begin_stage = [&](int64_t stage) {
    const int buffer = static_cast<int>(stage % 2);
    load_terms(shared, buffer, terms + stage * kStage, shape.padded);
    make_signs(shared, buffer, call.stream, call.first_element + stage * kStage, first_group);
  };
  for (auto& sum : shared.sums) sum[threadIdx.x] = 0;
  float sums[2][kTerms / 8][4] = {};
  begin_stage(first);
  for (int64_t stage = first; stage < last; ++stage) {
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();  // the stage is there, and nobody reads the one before it
    if (stage + 1 < last) begin_stage(stage + 1);
    multiply_stage(sums, shared, static_cast<int>(stage % 2));
    if ((stage - first) % kStagesPerSum == kStagesPerSum - 1) move_sums(sums, shared);
  }
  move_sums(sums, shared);
  write_parts(call, shape, shared);
#endif
}

// In the order of the splits, upper before lower term.
__global__ void add_parts(SignProjectionCall call, Shape shape) {
  const int64_t all = call.samples * call.columns;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t sample = i / call.columns, column = i % call.columns;
    const int64_t tile = sample / kSamples, term = sample % kSamples;
    float sum = 0;
    for (int64_t split = 0; split < shape.splits; ++split) {
      const float* part =
          call.parts + ((split * shape.tiles + tile) * call.columns + column) * kTerms;
      sum += part[term] + part[term + kSamples];
    }
    call.sums[i] += sum;
  }
}

__global__ void fill_signs(FillSignsCall call) {
  const int64_t groups = (call.columns + random::kColumnsPerCall - 1) / random::kColumnsPerCall;
  const int64_t all = call.elements * groups;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t element = i / groups, group = i % groups, first = group * random::kColumnsPerCall;
    const auto bits =
        random::sign_bits(call.stream, static_cast<uint64_t>(call.first_element + element),
                          static_cast<uint64_t>(group));
    float* row = call.signs + element * call.columns + first;
    const int64_t left = call.columns - first;
    const int count =
        static_cast<int>(left < random::kColumnsPerCall ? left : random::kColumnsPerCall);
    for (int c = 0; c < count; ++c) row[c] = random::sign_of_bit(bits.word[c / 32] >> (c % 32) & 1);
  }
}

}  // namespace

SignProjectionScratch sign_projection_scratch(int64_t samples, int64_t elements, int64_t columns) {
  const Shape shape = shape_of(samples, elements, columns);
  return {shape.tiles * kTerms * shape.padded, shape.splits * shape.tiles * columns * kTerms};
}

void add_sign_projection_on_cuda(const SignProjectionCall& call) {
  if (call.samples == 0 || call.elements == 0 || call.columns == 0) return;
  const Shape shape = shape_of(call.samples, call.elements, call.columns);
  const auto stream = current_stream();
  cudaFuncSetAttribute(project, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  const int64_t eights = shape.tiles * kSamples * shape.padded / 8;
  split_terms<<<blocks_for(eights, kThreads), kThreads, 0, stream>>>(call, shape);
  check_launch();
  const dim3 grid(static_cast<unsigned>(shape.column_blocks), static_cast<unsigned>(shape.splits),
                  static_cast<unsigned>(shape.tiles));
  project<<<grid, kThreads, sizeof(Shared), stream>>>(call, shape);
  check_launch();
  add_parts<<<blocks_for(call.samples * call.columns, kThreads), kThreads, 0, stream>>>(call,
                                                                                        shape);
  check_launch();
}

void fill_signs_on_cuda(const FillSignsCall& call) {
  if (call.elements == 0 || call.columns == 0) return;
  const int64_t calls =
      call.elements * ((call.columns + random::kColumnsPerCall - 1) / random::kColumnsPerCall);
  fill_signs<<<blocks_for(calls, kThreads), kThreads, 0, current_stream()>>>(call);
  check_launch();
}

}  // namespace skein::ops
