// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is a text changed to before it is cut?
//
// One class per kind; a further one is also a line in normalizer.cpp. Thread-safe once built.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "skein/text/parts/part_reader.h"
#include "skein/text/parts/piece.h"

namespace skein::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // `piece` is not empty; the answer may be.
  virtual Piece normalize(const Piece& piece, Workspace& workspace) const = 0;
};

// The steps of a tokenizer, in order.
class Normalizers {
 public:
  // Null, a part, or a Sequence of them.
  static Normalizers read(const PartReader& reader, const Json& json);

  Piece normalize(Piece piece, Workspace& workspace) const;
  std::string normalize(std::string_view text) const;
  bool empty() const { return steps_.empty(); }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace skein::text
