// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Is this the model that an adapter was made with? Training, merging and all that computes an
// adapter beside a base ask here.

#include <string>

#include "skein/core/file.h"

namespace skein::plan {

// A base as it was given.
struct GivenBase {
  fs::path folder;
  std::string said_by;  // model_name_or_path, --base, …
  std::string cure;     // what to give instead, as a sentence without its point
};

// Throws UserError where `base` has other weights than the adapter was made with, as far as that
// can be told: a run of ours has recorded their digest, or the folder that the adapter names is
// here. Reads a little of the weights.
void check_adapter_base(const fs::path& adapter, const GivenBase& base);

}  // namespace skein::plan
