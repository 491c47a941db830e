// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Private to this folder: a request on its way.

#include <cstdint>
#include <vector>

#include "skein/rollout/generate.h"
#include "skein/rollout/page_book.h"

namespace skein::rollout {

struct Text {
  size_t request = 0;
  uint64_t key = 0, sample = 0;  // of its draws
  std::vector<int64_t> tokens;   // the prompt's, and those drawn that the host knows of
  int64_t prompt_length = 0;
  int64_t drawn = 0;  // new tokens, those that the host will hear of too
  int64_t room = 0;   // most of them
  Finish at_the_end = Finish::kLength;
  bool ended = false;
  Pages pages{};

  int64_t length() const { return prompt_length + drawn; }
  bool goes_on() const { return !ended && drawn < room; }
};

}  // namespace skein::rollout
