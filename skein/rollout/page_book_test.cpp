// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/page_book.h"

#include <gtest/gtest.h>

#include <set>

#include "skein/core/error.h"

namespace skein::rollout {
namespace {

TEST(PageBook, GivesEachPageToOneTextAndPageZeroToNone) {
  PageBook book(6);
  Pages first, second;
  EXPECT_TRUE(book.extend(first, 2));
  EXPECT_TRUE(book.extend(second, 3));
  EXPECT_EQ(book.num_free(), 0);
  std::set<int32_t> all(first.begin(), first.end());
  all.insert(second.begin(), second.end());
  EXPECT_EQ(all, (std::set<int32_t>{1, 2, 3, 4, 5}));
}

TEST(PageBook, ExtendsByWhatIsMissingOrNotAtAll) {
  PageBook book(4);
  Pages pages;
  EXPECT_TRUE(book.extend(pages, 2));
  const auto before = pages;
  EXPECT_FALSE(book.extend(pages, 4));
  EXPECT_EQ(pages, before);
  EXPECT_TRUE(book.extend(pages, 1));  // it has them
  EXPECT_EQ(pages, before);
  EXPECT_TRUE(book.extend(pages, 3));
  EXPECT_EQ(book.num_free(), 0);
}

TEST(PageBook, SharedPagesAreFreeWhenTheirLastTextHasGone) {
  PageBook book(4);
  Pages first;
  book.extend(first, 2);
  auto second = book.share(first);
  EXPECT_EQ(second, first);
  EXPECT_TRUE(book.extend(second, 3));
  book.give_back(first);
  EXPECT_TRUE(first.empty());
  EXPECT_EQ(book.num_free(), 0);
  book.give_back(second);
  EXPECT_EQ(book.num_free(), 3);
  Pages alien{2};
  EXPECT_THROW(book.give_back(alien), InternalError);
}

}  // namespace
}  // namespace skein::rollout
