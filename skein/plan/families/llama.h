// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <memory>

#include "skein/plan/families/decoder.h"

namespace skein::plan {

// Llama 2 and 3: the plain form, whose linear layers may have biases.
std::unique_ptr<Architecture> read_llama(const ConfigReader& reader);

}  // namespace skein::plan
