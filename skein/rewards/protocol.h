// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What skein and a reward program say to each other, line by line; docs/reward_protocol.md.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "skein/rewards/scorer.h"

namespace skein::rewards {

// Others write programs against it: a change that breaks one is a new number.
inline constexpr int64_t kProtocol = 1;

// Of a line that a program says, without its end.
inline constexpr size_t kMaxLine = size_t{4} << 20;

// Why a line is none of the protocol: what() says what was expected.
struct BadLine : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The first line of a program: it is ready, and its rewards are called so.
struct Ready {
  std::vector<std::string> names;
  std::vector<double> weights;  // of each
};

// Throws BadLine.
Ready read_ready(std::string_view line);

// The answer to another question.
struct MisplacedLine : BadLine {
  using BadLine::BadLine;
};

// Which question is it?
struct LinePlace {
  uint64_t id = 0;  // no other has it
  uint64_t batch = 0;
  size_t index = 0;
  size_t count = 0;
};

// With its line end. `row` is an object.
std::string request_line(const Completion& completion, const nlohmann::json& row,
                         const LinePlace& place, int max_turns);

struct Answer {
  std::vector<std::optional<double>> rewards;  // by name; empty when there are messages
  std::vector<Message> messages;
};

struct Expected {
  uint64_t id = 0;
  size_t num_rewards = 1;
  bool may_go_on = false;  // with messages
};

// Throws BadLine; for what the program itself says to be wrong, too.
Answer read_answer(std::string_view line, const Expected& expected);

}  // namespace skein::rewards
