// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// The kernels against the CPU reference.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "skein/ops/decode/paged_attention.h"

namespace skein::ops {
namespace {

struct Shape {
  int64_t heads, key_heads, channels;
};

constexpr int64_t kPerPage = 16;

// Keys and values of every text, on one device, and a query of its last token.
class Texts {
 public:
  Texts(const std::vector<int64_t>& lengths, const Shape& shape, at::ScalarType type,
        at::DeviceType device)
      : shape_(shape), lengths_(lengths) {
    int64_t width = 0, total = 0;
    for (const auto length : lengths) {
      width = std::max(width, (length + kPerPage - 1) / kPerPage);
      total += length;
    }
    const auto rows = std::ssize(lengths);
    at::manual_seed(2);
    const auto random = [&](int64_t tokens, int64_t heads) {
      return at::randn({tokens, heads, shape.channels}, at::kFloat).to(type).to(device);
    };
    pages_ = at::randperm(rows * width, at::kLong).to(at::kInt).view({rows, width}).to(device);
    memory_ = at::full({2, rows * width, kPerPage, shape.key_heads, shape.channels}, std::nan(""),
                       at::TensorOptions(device).dtype(type));
    addresses_ = at::tensor({reinterpret_cast<int64_t>(memory_[0].data_ptr()),
                             reinterpret_cast<int64_t>(memory_[1].data_ptr())})
                     .to(device);
    std::vector<int32_t> of;
    std::vector<int64_t> positions, last;
    for (size_t i = 0; i < lengths.size(); ++i) {
      for (int64_t at = 0; at < lengths[i]; ++at) {
        of.push_back(static_cast<int32_t>(i));
        positions.push_back(at);
      }
      last.push_back(lengths[i] - 1);
    }
    auto all = keys();
    all.rows = at::tensor(of, at::kInt).to(device);
    all.positions = at::tensor(positions).to(device);
    store_keys(random(total, shape.key_heads), random(total, shape.key_heads), all);
    queries_ = random(rows, shape.heads);
    last_ = at::tensor(last).to(device);
  }

  at::Tensor attend(const PagedOptions& options) const {
    auto last = keys();
    last.positions = last_;
    return paged_attention(queries_, shape_.key_heads, last, options).cpu().to(at::kDouble);
  }

 private:
  PagedKeys keys() const {
    return {.addresses = addresses_, .block = 0, .page_tokens = kPerPage, .pages = pages_};
  }

  Shape shape_;
  std::vector<int64_t> lengths_;
  at::Tensor pages_, memory_, addresses_, queries_, last_;
};

TEST(CudaPagedAttention, EqualsTheCpuReference) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const std::vector<Shape> shapes{{1, 1, 64},  {14, 2, 64}, {8, 8, 128}, {32, 8, 128}, {6, 2, 80},
                                  {4, 1, 256}, {9, 1, 48},  {10, 2, 24}, {3, 3, 96},   {64, 4, 64}};
  const std::vector<PagedOptions> options{{.scale = 0.1},
                                          {.scale = 0.2},
                                          {.scale = 0.1, .window = 40},
                                          {.scale = 0.1, .cap = 5.0},
                                          {.scale = 0.1, .window = 1000, .cap = 2.0}};
  const std::vector<std::vector<int64_t>> crowds{
      {1}, {2100}, {1, 16, 17, 31, 500}, std::vector<int64_t>(150, 70)};
  for (const auto& shape : shapes) {
    for (const auto& lengths : crowds) {
      for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        const Texts cpu(lengths, shape, type, at::kCPU), gpu(lengths, shape, type, at::kCUDA);
        for (const auto& option : options) {
          const auto far = (gpu.attend(option) - cpu.attend(option)).abs().max().item<double>();
          // The last rounding may fall either way.
          const double bound = type == at::kDouble  ? 1e-12
                               : type == at::kFloat ? 1e-5
                               : type == at::kHalf  ? 2e-3
                                                    : 1.6e-2;
          EXPECT_LT(far, bound) << shape.heads << " " << shape.channels << " " << lengths.size()
                                << " " << type;
        }
      }
    }
  }
}

}  // namespace
}  // namespace skein::ops
