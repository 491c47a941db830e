// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a person see of the data that a run trains on?

#include <cstdint>
#include <string>

#include "skein/config/run_config.h"
#include "skein/data/prepare.h"

namespace skein::data {

// A few lines per split: files, tokens, documents, blocks, and where they were put.
std::string describe(const RunData& data, const config::RunConfig& config);

struct InspectOptions {
  Split split = Split::kTrain;
  int64_t rows = 3;
};
// The first rows in the order in which they are used: sample id, number of tokens, and their text.
// What is only read, and not trained on, stands in ⟦ ⟧. Control characters and broken UTF-8 are
// escaped: a terminal may show the result. Prepares the data if need be.
std::string inspect(const config::RunConfig& config, const InspectOptions& options);

}  // namespace skein::data
