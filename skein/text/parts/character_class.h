// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Of which kinds is a character, as patterns ask? One look into a table.
//
// PCRE2 is asked once for each character, so that both always agree. Thread-safe.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "skein/text/parts/pattern.h"

namespace skein::text {

// Bits of a character's class.
enum CharacterKind : uint8_t {
  kLetter = 1,        // \p{L}
  kNumber = 2,        // \p{N}
  kSpace = 4,         // \s
  kMark = 8,          // \p{M}
  kPunctuation = 16,  // \p{P}
  kSymbol = 32,       // \p{S}
  kUpper = 64,        // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLower = 128,       // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
};

class CharacterClasses {
 public:
  static const CharacterClasses& get();

  uint8_t of(char32_t code) const {
    if (code < ascii_.size()) return ascii_[code];
    const auto* page = pages_[code / kPage].load(std::memory_order_acquire);
    return (page != nullptr ? *page : make_page(code / kPage))[code % kPage];
  }

 private:
  static constexpr size_t kCharacters = 0x110000, kPage = 256;
  using Page = std::array<uint8_t, kPage>;

  CharacterClasses();
  const Page& make_page(size_t page) const;

  std::vector<Pattern> kinds_;  // by bit
  std::array<uint8_t, 128> ascii_;
  mutable std::array<std::atomic<const Page*>, kCharacters / kPage> pages_{};
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<const Page>> made_;
};

}  // namespace skein::text
