// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/prepend.h"

#include <utility>

namespace skein::text {
namespace {

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  Piece normalize(const Piece& piece, Workspace& workspace) const override {
    return with_prefix(piece, text_, workspace);
  }

 private:
  std::string text_;
};

}  // namespace

std::unique_ptr<Normalizer> read_prepend(const PartReader& reader, const Json& json) {
  return std::make_unique<Prepend>(reader.text(json, "prepend"));
}

}  // namespace skein::text
