// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The words of `skein eval`, which its launcher and its ranks read alike.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "skein/config/syntax/choices.h"
#include "skein/core/dtype.h"
#include "skein/core/file.h"

namespace skein::cli {

struct EvalFlags {
  fs::path model;
  std::string dataset;
  int64_t block_size = 0;
  int64_t batch_size = 8;
  int64_t max_samples = 0;
  std::optional<DType> dtype;  // absent: auto
  config::Device device = config::Device::kAuto;
  bool json = false;
};

// Without launch flags. Throws UserError.
EvalFlags parse_eval_flags(std::span<const std::string> arguments);

}  // namespace skein::cli
