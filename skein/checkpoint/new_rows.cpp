// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/new_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>
#include <vector>

namespace skein::checkpoint {
namespace {

using tensor::TensorSlice;

// (columns) fp32
at::Tensor mean_row(const Reader& reader, const TensorSlice& tensor, const LoadOptions& options) {
  constexpr int64_t kElements = int64_t{4} << 20;  // at once
  const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  const int64_t step = std::max<int64_t>(1, kElements / columns);
  auto sum = at::zeros({columns}, at::kDouble);
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t end = std::min(rows, begin + step);
    std::vector<TensorSlice> part{tensor};
    part[0].begin = begin * columns;
    part[0].end = end * columns;
    part[0].data = at::empty({(end - begin) * columns}, at::kFloat);
    reader.load(part, options);
    sum += part[0].data.view({end - begin, columns}).sum(0, /*keepdim=*/false, at::kDouble);
  }
  return (sum / static_cast<double>(rows)).to(at::kFloat);
}

}  // namespace

void load_with_new_rows(const Reader& reader, std::span<TensorSlice> slices,
                        const LoadOptions& options, const NewRows& rows) {
  const c10::NoGradGuard no_grad;
  auto stored = options;
  for (auto& entry : stored.tensors) {
    if (rows.tensors.contains(entry.name)) entry.shape[0] = static_cast<uint64_t>(rows.there);
  }
  std::vector<TensorSlice> old, fresh;
  for (const auto& slice : slices) {
    old.push_back(slice);
    if (!rows.tensors.contains(slice.name)) continue;
    auto& kept = old.back();
    kept.shape[0] = rows.there;
    auto added = kept;
    const int64_t edge =
        std::clamp(rows.there * slice.shape[1], slice.begin, slice.end) - slice.begin;
    kept.end = added.begin = slice.begin + edge;
    kept.data = slice.data.narrow(0, 0, edge);
    added.data = slice.data.narrow(0, edge, slice.data.numel() - edge);
    if (added.begin < added.end) fresh.push_back(added);
    if (kept.begin == kept.end) old.pop_back();
  }
  reader.load(old, stored);
  for (const auto& slice : fresh) {
    const auto places = at::arange(slice.begin, slice.end, at::kLong).remainder(slice.shape[1]);
    slice.data.copy_(mean_row(reader, slice, stored).index_select(0, places));
  }
}

}  // namespace skein::checkpoint
