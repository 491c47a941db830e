// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a person see of the data that a run trains on?

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "skein/config/run_config.h"
#include "skein/data/prepare.h"
#include "skein/data/sample_source.h"

namespace skein::data {

// A few lines per split: files, tokens, documents, blocks, and where they were put.
std::string describe(const RunData& data, const config::RunConfig& config);

// How is what is trained on told from what is only read?
enum class Marks {
  kBrackets,  // the latter stands in ⟦ ⟧
  kColour,    // the former is green
};

struct InspectOptions {
  Split split = Split::kTrain;
  int64_t rows = 3;
  Marks marks = Marks::kBrackets;
};
// The first rows in the order in which they are used: sample id, number of tokens, and their text,
// marked. Control characters and broken UTF-8 are escaped: a terminal may show the result. Prepares
// the data if need be.
std::string inspect(const config::RunConfig& config, const InspectOptions& options);

// One sample of any source, as inspect() shows it; both documents of a pair below each other.
using Decode = std::function<std::string(std::span<const uint32_t>)>;
std::string sample_text(const SampleSource& source, int64_t sample, const Decode& decode,
                        Marks marks);

}  // namespace skein::data
