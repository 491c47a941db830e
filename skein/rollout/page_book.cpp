// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/page_book.h"

#include <algorithm>

#include "skein/core/error.h"

namespace skein::rollout {

PageBook::PageBook(int64_t pages) : owners_(static_cast<size_t>(std::max<int64_t>(pages, 1))) {
  for (auto page = std::ssize(owners_) - 1; page > 0; --page) {
    free_.push_back(static_cast<int32_t>(page));
  }
}

bool PageBook::extend(Pages& pages, int64_t count) {
  const int64_t missing = count - std::ssize(pages);
  if (missing > num_free()) return false;
  for (int64_t i = 0; i < missing; ++i) {
    pages.push_back(free_.back());
    free_.pop_back();
    owners_[static_cast<size_t>(pages.back())] = 1;
  }
  return true;
}

Pages PageBook::share(std::span<const int32_t> pages) {
  for (const auto page : pages) ++owners_[static_cast<size_t>(page)];
  return {pages.begin(), pages.end()};
}

void PageBook::give_back(Pages& pages) {
  for (const auto page : pages) {
    auto& owners = owners_[static_cast<size_t>(page)];
    SKEIN_CHECK(owners > 0, "a page that nobody has is given back");
    if (--owners == 0) free_.push_back(page);
  }
  pages.clear();
}

}  // namespace skein::rollout
