// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The examples of docs/rewards.md: `reward | row | completion | result`, all but the last in
// backticks.
#include <gtest/gtest.h>

#include <sstream>

#include "skein/core/file.h"
#include "skein/rewards/answer.h"
#include "skein/rewards/reward.h"

namespace skein::rewards {
namespace {

// The cells of a line of a table.
std::vector<std::string> cells_of(std::string line) {
  std::vector<std::string> cells;
  if (!line.starts_with("| ")) return cells;
  std::istringstream rest(line.substr(2));
  for (std::string cell; std::getline(rest, cell, '|');) {
    std::string text(trimmed(cell));
    if (text.size() > 1 && text.starts_with('`') && text.ends_with('`')) {
      text = text.substr(1, text.size() - 2);
    }
    // A line end cannot stand in a table.
    for (auto at = text.find("⏎"); at != std::string::npos; at = text.find("⏎")) {
      text.replace(at, std::string_view("⏎").size(), text.starts_with('{') ? "\\n" : "\n");
    }
    cells.push_back(text);
  }
  return cells;
}

TEST(Docs, TheExamplesOfRewardsHold) {
  std::istringstream page(read_file(fs::path(SKEIN_SOURCE) / "docs/rewards.md"));
  int examples = 0;
  bool in_table = false;
  for (std::string line; std::getline(page, line);) {
    const auto cells = cells_of(line);
    if (cells.size() != 4) in_table = false;
    if (in_table && !cells[0].starts_with("---")) {
      const Completion completion{
          .text = cells[2], .row = cells[1], .num_tokens = static_cast<int64_t>(cells[2].size())};
      const auto reward = make_reward(cells[0])->score({&completion, 1}).at(0);
      const auto expected = cells[3] == "none" ? std::nullopt : std::optional(std::stod(cells[3]));
      EXPECT_EQ(reward, expected) << line;
      ++examples;
    }
    in_table = in_table || (cells.size() == 4 && cells[2] == "completion");
  }
  EXPECT_GT(examples, 40);
}

}  // namespace
}  // namespace skein::rewards
