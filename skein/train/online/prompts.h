// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The prompts of a step, or of an evaluation, in all forms that somebody asks for.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "skein/data/rows/prompt_source.h"
#include "skein/text/text_codec.h"

namespace skein::train {

struct Prompts {
  std::vector<int64_t> samples;              // their numbers in the data
  std::vector<std::vector<int64_t>> tokens;  // as the model reads them
  std::vector<std::string> texts;            // the same for people, and for rewards
  std::vector<std::string> rows;             // as they stand in their file
  std::vector<std::string> places;           // FILE:LINE

  int64_t count() const { return std::ssize(samples); }
};

Prompts read_prompts(const data::PromptSource& source, std::span<const int64_t> samples,
                     const text::TextCodec& codec);

}  // namespace skein::train
