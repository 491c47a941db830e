// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/sign_projection.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/gradient_features/files/projection_signs.h"

namespace skein::gradient_features {
namespace {

// Of a tile's signs: 4 MiB of fp32, which a cache can hold between its making and its use.
constexpr int64_t kTileSigns = int64_t{1} << 20;
constexpr int64_t kSignsPerTask = int64_t{1} << 16;  // a few tens of microseconds

// (elements, columns), the elements' own part of `tile`.
void fill_tile(const at::Tensor& tile, uint64_t stream, int64_t first_element) {
  const int64_t elements = tile.size(0), columns = tile.size(1);
  auto* signs = tile.mutable_data_ptr<float>();
  const int64_t grain = std::max<int64_t>(kSignsPerTask / columns, 1);
  at::parallel_for(0, elements, grain, [&](int64_t begin, int64_t end) {
    fill_signs(stream, {first_element + begin, first_element + end, 0, columns},
               signs + begin * columns);
  });
}

}  // namespace

void add_projection(const at::Tensor& sums, const at::Tensor& rows, uint64_t stream,
                    int64_t first_element) {
  SKEIN_CHECK(rows.is_cpu(), "projections are computed on the CPU");
  const int64_t columns = sums.size(1), all = rows.size(1);
  const int64_t height = std::clamp<int64_t>(kTileSigns / columns, 1, all);
  const auto tile = at::empty({height, columns}, at::kFloat);
  for (int64_t first = 0; first < all; first += height) {
    const int64_t count = std::min(height, all - first);
    const auto signs = tile.narrow(0, 0, count);
    fill_tile(signs, stream, first_element + first);
    sums.addmm_(rows.narrow(1, first, count), signs.to(sums.scalar_type()));
  }
}

}  // namespace skein::gradient_features
