// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The documents of a run in pieces of equal length: one batched product serves documents of any
// lengths, and the products of a document's pieces add up to the document's.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace skein::gradient_features {

// Of a piece, the last of a document filled up by zeros: short enough that these are few, long
// enough that there are few pieces.
inline constexpr int64_t kPieceTokens = 64;

class DocumentPieces {
 public:
  // `ends` are those of the documents; none is empty.
  DocumentPieces(std::span<const int32_t> ends, at::Device device);

  int64_t count() const { return count_; }

  // (T, n) -> (count(), kPieceTokens, n)
  at::Tensor cut(const at::Tensor& tokens) const;

  // (count(), n) -> (documents, n). A document's numbers come from its own pieces alone, whatever
  // the others are (not finite, say), and are summed in the same order each time.
  at::Tensor sum(const at::Tensor& pieces) const;

 private:
  int64_t count_ = 0;
  at::Tensor places_;  // (T) of the tokens, among those of all pieces
  at::Tensor counts_;  // (documents) of pieces
};

}  // namespace skein::gradient_features
