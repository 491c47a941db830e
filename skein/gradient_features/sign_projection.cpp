// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/sign_projection.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "skein/gradient_features/files/projection_signs.h"
#include "skein/ops/device.h"
#include "skein/ops/sign_projection_kernel.h"

namespace skein::gradient_features {
namespace {

// Of a tile's signs: on CPUs 4 MiB of fp32, which a cache can hold between its making and its use.
constexpr int64_t kTileSigns = int64_t{1} << 20, kCudaTileSigns = int64_t{1} << 26;
constexpr int64_t kSignsPerTask = int64_t{1} << 16;  // a few tens of microseconds

// (elements, columns), the elements' own part of `tile`.
void fill_tile(const at::Tensor& tile, uint64_t stream, int64_t first_element) {
  const int64_t elements = tile.size(0), columns = tile.size(1);
  auto* signs = tile.mutable_data_ptr<float>();
  if (tile.is_cuda()) {
    ops::fill_signs_on_cuda({signs, stream, first_element, elements, columns});
    return;
  }
  const int64_t grain = std::max<int64_t>(kSignsPerTask / columns, 1);
  at::parallel_for(0, elements, grain, [&](int64_t begin, int64_t end) {
    fill_signs(stream, {first_element + begin, first_element + end, 0, columns},
               signs + begin * columns);
  });
}

bool has_kernel(const at::Tensor& rows) {
  return rows.is_cuda() && rows.scalar_type() == at::kFloat &&
         ops::has_native_bfloat16(rows.get_device());
}

void add_by_kernel(const at::Tensor& sums, const at::Tensor& rows, uint64_t stream,
                   int64_t first_element) {
  const auto scratch = ops::sign_projection_scratch(rows.size(0), rows.size(1), sums.size(1));
  const auto terms = at::empty({scratch.terms}, rows.options().dtype(at::kBFloat16));
  const auto parts = at::empty({scratch.parts}, rows.options());
  ops::add_sign_projection_on_cuda({.rows = rows.const_data_ptr<float>(),
                                    .row_stride = rows.stride(0),
                                    .samples = rows.size(0),
                                    .elements = rows.size(1),
                                    .columns = sums.size(1),
                                    .stream = stream,
                                    .first_element = first_element,
                                    .sums = sums.mutable_data_ptr<float>(),
                                    .terms = terms.mutable_data_ptr(),
                                    .parts = parts.mutable_data_ptr<float>()});
}

}  // namespace

void add_projection(const at::Tensor& sums, const at::Tensor& rows, uint64_t stream,
                    int64_t first_element, const GoesOn& goes_on) {
  if (has_kernel(rows)) {
    add_by_kernel(sums, rows, stream, first_element);
    if (goes_on) goes_on(rows.size(1));
    return;
  }
  const int64_t columns = sums.size(1), all = rows.size(1);
  const int64_t signs_per_tile = rows.is_cuda() ? kCudaTileSigns : kTileSigns;
  const int64_t height = std::clamp<int64_t>(signs_per_tile / columns, 1, all);
  const auto tile = at::empty({height, columns}, rows.options().dtype(at::kFloat));
  // Summed by itself first: a long sum that takes in one small number after the other rounds each.
  const auto own = at::zeros_like(sums);
  for (int64_t first = 0; first < all; first += height) {
    const int64_t count = std::min(height, all - first);
    const auto signs = tile.narrow(0, 0, count);
    fill_tile(signs, stream, first_element + first);
    own.addmm_(rows.narrow(1, first, count), signs.to(sums.scalar_type()));
    if (goes_on && !goes_on(count)) return;
  }
  sums.add_(own);
}

}  // namespace skein::gradient_features
