// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <memory>

#include "skein/plan/families/decoder.h"

namespace skein::plan {

// Qwen 2 and 2.5: q, k and v always have biases. Where use_sliding_window says so, the layers from
// max_window_layers on have a window.
std::unique_ptr<Architecture> read_qwen2(const ConfigReader& reader);

// Qwen 3: queries and keys are normalised head by head, and heads have their own width.
std::unique_ptr<Architecture> read_qwen3(const ConfigReader& reader);

}  // namespace skein::plan
