// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/document_pieces.h"

#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <vector>

namespace skein::gradient_features {

DocumentPieces::DocumentPieces(std::span<const int32_t> ends, at::Device device) {
  std::vector<int64_t> places, counts;
  int64_t begin = 0;
  for (const int32_t end : ends) {
    const int64_t first = count_ * kPieceTokens - begin;
    for (int64_t t = begin; t < end; ++t) places.push_back(first + t);
    counts.push_back((end - begin + kPieceTokens - 1) / kPieceTokens);
    count_ += counts.back();
    begin = end;
  }
  places_ = at::tensor(places, at::kLong).to(device);
  counts_ = at::tensor(counts, at::kLong).to(device);
}

at::Tensor DocumentPieces::cut(const at::Tensor& tokens) const {
  auto pieces = at::zeros({count_ * kPieceTokens, tokens.size(1)}, tokens.options());
  pieces.index_copy_(0, places_, tokens);
  return pieces.view({count_, kPieceTokens, tokens.size(1)});
}

at::Tensor DocumentPieces::sum(const at::Tensor& pieces) const {
  // Unsafe: nobody looks whether the counts add up, which would wait for the device.
  return at::segment_reduce(pieces, "sum", counts_, /*indices=*/{}, /*offsets=*/{}, /*axis=*/0,
                            /*unsafe=*/true);
}

}  // namespace skein::gradient_features
