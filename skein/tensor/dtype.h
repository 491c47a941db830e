// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Between our element types and torch's.

#include <c10/core/ScalarType.h>

#include "skein/core/dtype.h"

namespace skein::tensor {

// Throw UserError for a type that the other side does not have.
DType dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(DType dtype);

}  // namespace skein::tensor
