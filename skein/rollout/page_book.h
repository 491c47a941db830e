// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which pages of a cache belong to which text? Full pages may belong to several texts that begin
// alike. Page 0 is nobody's: what is computed for no text is written there.

#include <cstdint>
#include <span>
#include <vector>

namespace skein::rollout {

using Pages = std::vector<int32_t>;  // of a text, in order

class PageBook {
 public:
  // Of a cache with so many pages, page 0 counted.
  explicit PageBook(int64_t pages);

  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  // Further pages, so that the text has `count`. False, and nothing is changed, where there are
  // fewer.
  bool extend(Pages& pages, int64_t count);
  // Another text has these pages too.
  Pages share(std::span<const int32_t> pages);
  // A text needs its pages no longer.
  void give_back(Pages& pages);

 private:
  std::vector<int32_t> owners_;  // of each page
  std::vector<int32_t> free_;
};

}  // namespace skein::rollout
