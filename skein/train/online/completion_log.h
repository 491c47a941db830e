// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// completions.jsonl: what the policy said and what it was worth, a JSON object per line. One rank
// writes some of its own, so that people can read what is being learned.
//
// As trainer_log.jsonl, a disk that refuses a line ends nothing.

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "skein/core/file.h"
#include "skein/train/online/judge.h"

namespace skein::train {

inline constexpr const char* kCompletionsName = "completions.jsonl";

class CompletionLog {
 public:
  struct Options {
    fs::path file;                     // empty: this rank writes nothing
    std::function<void()> fence = {};  // throws CommError when the file is another run's by now
    // A few of them, as Markdown.
    std::function<void(int64_t step, const std::string& text)> show = {};
  };
  explicit CompletionLog(Options options) : options_(std::move(options)) {}

  // A run that goes on from `step`: lines of later steps are of what was lost.
  void keep_until(int64_t step);

  struct Step {
    int64_t step = 0;  // finished steps, this one too
    const Prompts& prompts;
    std::span<const Sampled> samples;
    const Verdict& verdict;
    std::span<const std::string> names;  // of the rewards
    std::span<const double> advantages;  // of each completion; empty: none yet
  };
  // `shows`: people may be looking.
  void add(const Step& step, bool shows);

 private:
  void write(const std::string& lines);

  Options options_;
  bool warned_ = false;
};

}  // namespace skein::train
