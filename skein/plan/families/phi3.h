// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <memory>

#include "skein/plan/families/decoder.h"

namespace skein::plan {

// Phi-3: q, k and v in one matrix, gate and up in another; dropout before the stream; a part of a
// head's channels may turn.
std::unique_ptr<Architecture> read_phi3(const ConfigReader& reader);

}  // namespace skein::plan
