// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How often does each pre-token occur in a corpus?
//
// Files are read once, in chunks of a few MiB, by as many threads as there are; a corpus need not
// fit into memory, its different pre-tokens must. `.txt` files are cut only where GPT-2's pattern
// cuts anyway, so that chunks leave no trace.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "skein/core/file.h"

namespace skein::text {

// A longer pre-token (a megabyte of spaces) is counted as pieces of this size.
constexpr size_t kMaxWordBytes = 1024;

struct WordCount {
  std::string bytes;
  uint64_t count = 0;
};

struct WordCountOptions {
  int threads = 0;  // 0: all cores
  std::function<void(uint64_t)> progress =
      nullptr;  // called with the bytes of every chunk that is read
};

// Sorted by bytes: the same for every number of threads. `.txt` files are text as it is, each line
// of a `.jsonl` file is an object with a "text". Throws UserError for a file that is missing or of
// another kind, IoError with file:line for a broken line.
std::vector<WordCount> count_words(const std::vector<fs::path>& files,
                                   const WordCountOptions& options = {});

}  // namespace skein::text
