// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <memory>

#include "skein/plan/families/decoder.h"

namespace skein::plan {

// Mistral: one window for all layers, or none where sliding_window is null.
std::unique_ptr<Architecture> read_mistral(const ConfigReader& reader);

}  // namespace skein::plan
