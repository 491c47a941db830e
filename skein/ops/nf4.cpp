// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/nf4.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/parallel.h"
#include "skein/ops/fused.h"
#include "skein/ops/nf4_kernel.h"

namespace skein::ops {
namespace {

constexpr Nf4Values kValues = nf4_values();
constexpr int64_t kPiece = int64_t{4} << 20;  // elements that are asked for at once
constexpr int64_t kBlocksPerTask = 1 << 10;

// Between neighbours: what lies above an edge has the higher code.
template <size_t kCount>
constexpr std::array<float, kCount - 1> edges_of(const float (&values)[kCount]) {
  std::array<float, kCount - 1> edges{};
  for (size_t i = 0; i + 1 < kCount; ++i) edges[i] = (values[i] + values[i + 1]) / 2;
  return edges;
}
constexpr auto kCodeEdges = edges_of(kValues.of_code);
constexpr auto kScaleEdges = edges_of(kValues.of_scale);

// NaN where there is one: by their bits magnitudes are ordered as integers are, and it is the last.
float largest_magnitude(const float* values, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<int32_t>(values[i]) & 0x7fffffff);
  }
  return std::bit_cast<float>(largest);
}

// How many edges each share lies above. Edge by edge: so the compiler takes several at once.
using Shares = std::array<float, Nf4Layout::kBlock>;
using Codes = std::array<int32_t, Nf4Layout::kBlock>;
Codes codes_of(const Shares& shares) {
  Codes codes{};
  for (const float edge : kCodeEdges) {
    for (size_t i = 0; i < shares.size(); ++i) codes[i] += shares[i] > edge ? 1 : 0;
  }
  return codes;
}

// The codes of at most 64 elements; returns their scale.
float quantise_block(const float* values, int64_t count, uint8_t* out) {
  constexpr float kLeast = 1e-38F;  // bitsandbytes' guard of blocks of zeros
  float scale = largest_magnitude(values, count);
  Shares shares{};  // an odd last element has a zero beside it
  if (count == Nf4Layout::kBlock) {
    const float inverse = 1 / std::max(kLeast, scale);
    for (size_t i = 0; i < shares.size(); ++i) shares[i] = values[i] * inverse;
  } else {
    // bitsandbytes divides in a last, shorter block.
    scale = std::max(scale, kLeast);
    for (int64_t i = 0; i < count; ++i) shares[static_cast<size_t>(i)] = values[i] / scale;
  }
  const auto codes = codes_of(shares);
  for (size_t i = 0; i < static_cast<size_t>(count); i += 2) {
    out[i / 2] = static_cast<uint8_t>(codes[i] << 4 | codes[i + 1]);
  }
  return scale;
}

// The code of a scale's share in [-1, 1]. bitsandbytes looks it up by 65536 even steps on CPUs.
uint8_t scale_code_of(float share) {
  constexpr int kSteps = 65535;
  const float clamped = std::clamp(share, -1.0F, 1.0F);
  const auto step = static_cast<int>(std::floor((clamped + 1) * 0.5F * kSteps + 0.5F));
  const float even = -1.0F + 2.0F * static_cast<float>(step) / kSteps;
  return static_cast<uint8_t>(std::ranges::lower_bound(kScaleEdges, even) - kScaleEdges.begin());
}

// As torch has it. Fewer than 32768 it adds on one thread, whatever their number; of more, parts
// are added in fp64, in order, so that the number of threads changes no bit.
float mean_of(std::vector<float>& values) {
  constexpr int64_t kPart = 32767;
  const auto count = static_cast<int64_t>(values.size());
  const auto all = at::from_blob(values.data(), {count}, at::kFloat);
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += kPart) {
    sum += all.narrow(0, begin, std::min(kPart, count - begin)).sum().item<float>();
  }
  return static_cast<float>(sum) / static_cast<float>(count);
}

void quantise_scales(const Nf4Layout& layout, std::vector<float>& scales, uint8_t* bytes) {
  const float mean = mean_of(scales);
  auto* codes = bytes + layout.scales_begin();
  auto* outer = reinterpret_cast<float*>(bytes + layout.outer_begin());
  for (float& scale : scales) scale -= mean;
  for (int64_t block = 0; block < layout.num_outer_scales(); ++block) {
    const int64_t begin = block * Nf4Layout::kScaleBlock;
    const int64_t end = std::min(begin + Nf4Layout::kScaleBlock, layout.num_scales());
    outer[block] = largest_magnitude(scales.data() + begin, end - begin);
    const float inverse = 1 / outer[block];
    for (int64_t i = begin; i < end; ++i) {
      codes[i] = outer[block] == 0 ? 0 : scale_code_of(scales[static_cast<size_t>(i)] * inverse);
    }
  }
  std::memcpy(bytes + layout.mean_begin(), &mean, sizeof mean);
}

void quantise_piece(const at::Tensor& values, uint8_t* codes, float* scales) {
  const auto* in = values.const_data_ptr<float>();
  const int64_t count = values.numel();
  const int64_t blocks = (count + Nf4Layout::kBlock - 1) / Nf4Layout::kBlock;
  const int64_t tasks = (blocks + kBlocksPerTask - 1) / kBlocksPerTask;
  for_each_index(tasks, at::get_num_threads(), [&](int64_t task) {
    const int64_t last = std::min(blocks, (task + 1) * kBlocksPerTask);
    for (int64_t block = task * kBlocksPerTask; block < last; ++block) {
      const int64_t begin = block * Nf4Layout::kBlock;
      scales[block] =
          quantise_block(in + begin, std::min(Nf4Layout::kBlock, count - begin), codes + begin / 2);
    }
  });
}

DequantiseCall parts_of(const Nf4Layout& layout, const at::Tensor& bytes) {
  const auto* begin = bytes.const_data_ptr<uint8_t>();
  DequantiseCall call{
      .codes = begin, .scales = begin + layout.scales_begin(), .numel = layout.numel};
  if (!layout.doubly) return call;
  call.outer = reinterpret_cast<const float*>(begin + layout.outer_begin());
  call.mean = reinterpret_cast<const float*>(begin + layout.mean_begin());
  return call;
}

float scale_of(const DequantiseCall& call, int64_t block) {
  if (call.mean == nullptr) return static_cast<const float*>(call.scales)[block];
  const float share = kValues.of_scale[static_cast<const uint8_t*>(call.scales)[block]];
  return share * call.outer[block / Nf4Layout::kScaleBlock] + *call.mean;
}

template <typename T>
void dequantise_block(const DequantiseCall& call, int64_t block) {
  const float scale = scale_of(call, block);
  T values[16];
  for (size_t code = 0; code < 16; ++code) {
    values[code] = static_cast<T>(kValues.of_code[code] * scale);
  }
  const auto* codes = static_cast<const uint8_t*>(call.codes);
  auto* out = static_cast<T*>(call.out);
  const int64_t begin = block * Nf4Layout::kBlock;
  const int64_t end = std::min(begin + Nf4Layout::kBlock, call.numel);
  for (int64_t i = begin; i < end; i += 2) {
    const uint8_t pair = codes[i / 2];
    out[i] = values[pair >> 4];
    if (i + 1 < end) out[i + 1] = values[pair & 15];
  }
}

template <typename T>
void dequantise_on_cpu(const DequantiseCall& call) {
  const int64_t blocks = (call.numel + Nf4Layout::kBlock - 1) / Nf4Layout::kBlock;
  const int64_t tasks = (blocks + kBlocksPerTask - 1) / kBlocksPerTask;
  for_each_index(tasks, at::get_num_threads(), [&](int64_t task) {
    const int64_t last = std::min(blocks, (task + 1) * kBlocksPerTask);
    for (int64_t block = task * kBlocksPerTask; block < last; ++block) {
      dequantise_block<T>(call, block);
    }
  });
}

void dequantise(DequantiseCall call, const at::Tensor& out) {
  call.out = out.mutable_data_ptr();
  call.type = element_type(out);
  if (out.is_cuda()) return dequantise_on_cuda(call);
  switch (call.type) {
    case DType::kBF16:
      return dequantise_on_cpu<at::BFloat16>(call);
    case DType::kF16:
      return dequantise_on_cpu<at::Half>(call);
    default:
      return dequantise_on_cpu<float>(call);
  }
}

}  // namespace

at::Tensor quantise_nf4(const Nf4Layout& layout, const ReadValues& read) {
  auto bytes = at::zeros({layout.bytes()}, at::kByte);  // what lies between the parts too
  auto* out = bytes.mutable_data_ptr<uint8_t>();
  std::vector<float> scales(static_cast<size_t>(layout.num_scales()));
  const auto piece = at::empty({std::min(kPiece, layout.numel)}, at::kFloat);
  for (int64_t begin = 0; begin < layout.numel; begin += kPiece) {
    const auto values = piece.narrow(0, 0, std::min(kPiece, layout.numel - begin));
    read(begin, values);
    quantise_piece(values, out + begin / 2, scales.data() + begin / Nf4Layout::kBlock);
  }
  if (layout.doubly) {
    quantise_scales(layout, scales, out);
  } else {
    std::memcpy(out + layout.scales_begin(), scales.data(), scales.size() * sizeof(float));
  }
  return bytes;
}

at::Tensor dequantise_nf4(const at::Tensor& bytes, const Nf4Matrix& matrix, at::ScalarType dtype) {
  const auto layout = matrix.layout();
  SKEIN_CHECK(bytes.scalar_type() == at::kByte && bytes.numel() == layout.bytes(),
              "these are not the bytes of such a matrix");
  const auto out = at::empty({matrix.rows, matrix.columns}, bytes.options().dtype(dtype));
  if (!out.is_meta()) dequantise(parts_of(layout, bytes), out);
  return matrix.transposed ? out.t() : out;
}

}  // namespace skein::ops
