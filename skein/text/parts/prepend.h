// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Prepend: a fixed text in front of every text that is not empty.

#include <memory>

#include "skein/text/parts/normalizer.h"

namespace skein::text {

std::unique_ptr<Normalizer> read_prepend(const PartReader& reader, const Json& json);

}  // namespace skein::text
