// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Tensors as a safetensors file, for the parity tests.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "skein/core/file.h"

namespace skein::cli {

using NamedTensors = std::map<std::string, at::Tensor>;

// Of the host.
void write_tensors(const fs::path& path, const NamedTensors& tensors);

}  // namespace skein::cli
