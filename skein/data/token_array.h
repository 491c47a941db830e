// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where do the tokens of a data set lie? In memory, or in a mapped file.
//
// Token ids are 16 bits wide: byte ids and `.bin` files need no more. A mapped file must not
// shrink while it is read; the kernel would end the process with SIGBUS.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "skein/core/file.h"

namespace skein::data {

class TokenArray {
 public:
  explicit TokenArray(std::vector<uint16_t> tokens) : owned_(std::move(tokens)), tokens_(owned_) {}
  // Maps a file of little-endian uint16 ids. Throws IoError when its size is odd.
  static TokenArray map(const fs::path& path);

  std::span<const uint16_t> tokens() const { return tokens_; }

 private:
  struct Unmap {
    size_t bytes;
    void operator()(const uint16_t* start) const;
  };

  std::vector<uint16_t> owned_;
  std::unique_ptr<const uint16_t, Unmap> mapped_;
  std::span<const uint16_t> tokens_;  // of whichever of the two holds them
};

}  // namespace skein::data
