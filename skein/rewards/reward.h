// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How good is a completion?
//
// A reward function gives each completion of a rollout a number, or nothing where it has no opinion
// (a row without its column). docs/rewards.md lists the built-in ones with examples.
//
// Completions are text that a model wrote, rows are files of strangers: no text, however long or
// twisted, makes a built-in reward fail, or take more than a bounded number of steps per byte. A
// reward is a function of the completion alone, never of a clock, so that a run that is continued
// gets the same numbers. One thread at a time.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skein::rewards {

// One of a rollout. What the views show must outlive the call that they are given to.
struct Completion {
  std::string_view prompt;  // its text, as the model read it
  std::string_view text;    // the completion, special tokens left out
  std::string_view row;     // the prompt's row in its data file: one JSON object with all columns
  int64_t num_tokens = 0;
  bool finished = true;         // it ended by itself, not by its length
  std::string_view place = {};  // of that row: FILE:LINE; for messages, as the next two
  uint64_t sample = 0;          // the prompt's number, and which of its completions
  int64_t generation = 0;
  int turn = 0;  // of a conversation: how often the program has answered with messages
};

class Reward {
 public:
  virtual ~Reward() = default;

  virtual const std::string& name() const = 0;  // as metrics call it: rewards/NAME/mean
  // One for each. Throws UserError for a row that cannot be meant so.
  virtual std::vector<std::optional<double>> score(std::span<const Completion> completions) = 0;
};

// From what a configuration says: NAME, or NAME:ARGUMENTS. Throws UserError, with suggestions, for
// names and arguments that are none.
std::unique_ptr<Reward> make_reward(const std::string& spec);

// "sample 17 (questions.jsonl:18), generation 3".
std::string place_of(const Completion& completion);

}  // namespace skein::rewards
