// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/help.h"

#include <fmt/format.h>

#include "skein/config/test_support.h"

namespace skein::config {
namespace {

TEST(Help, TheUsersPageHasEveryKeyWithItsDefaultAndSpellings) {
  const auto page = read_file(fs::path(__FILE__).parent_path() / "../../docs/configuration.md");
  for (const auto& [name, value, aliases, help] : key_help()) {
    EXPECT_PRED2(contains, page,
                 fmt::format("| `{}` | `{}` | {} | {} |", name, value, aliases, help));
  }
}

TEST(Help, TheListShowsDefaults) {
  EXPECT_PRED2(contains, key_list(),
               "  learning_rate: 5e-05\n      peak learning rate (also lr)\n");
}

}  // namespace
}  // namespace skein::config
