// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Lowercase: every character in lower case.

#include <memory>

#include "skein/text/parts/normalizer.h"

namespace skein::text {

std::unique_ptr<Normalizer> read_lowercase(const PartReader& reader, const Json& json);

}  // namespace skein::text
