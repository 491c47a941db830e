// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Sums equal pieces in the order given, the same for every element.
//
// 16-bit floats are added in fp32 and rounded once; all other types in their own. So the sum of an
// element depends on the values alone, never on where a buffer was cut or which backend carried it.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace skein::comm {

// `out` may be one of the pieces. Throws InternalError for a type that has no sum here.
void ordered_sum(c10::ScalarType type, void* out, const std::vector<const void*>& pieces,
                 int64_t count);

}  // namespace skein::comm
