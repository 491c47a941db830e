// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The words of `skein bench scaling`, which its launcher and its ranks read alike.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/dtype.h"

namespace skein::cli {

inline constexpr const char* kScalingUsage =
    "skein bench scaling MODEL [--ranks 1,2,4] [--strategies ddp,zero1,zero2,zero3]\n"
    "                    [--batch 8] [--tokens 1024] [--accumulation 1] [--recompute]\n"
    "                    [--steps 10] [--warmup 3] [--rounds 1]\n"
    "                    [--dtype float32|bfloat16|float16|float64] [--device auto|cpu|cuda]\n"
    "                    [--json] [launch flags]\n"
    "\n"
    "Step time, speed, memory and efficiency of worlds of --ranks ranks under each strategy, "
    "beside\n"
    "what `skein plan` would predict of them, and its prediction for larger worlds. Launch flags "
    "are\n"
    "those of `skein train`: they say how many ranks there are; --ranks are parts of them, all "
    "that\n"
    "there can be unless given. Between machines the links are measured first. Every rank has "
    "--batch\n"
    "rows. All ranks are at work all the time: for a world of n in groups of n, side by side.\n";

struct ScalingFlags {
  std::string model;
  std::vector<int64_t> ranks;                // empty: all that the launch can be divided into
  std::vector<config::Strategy> strategies;  // never empty
  int64_t batch = 8, tokens = 1024, accumulation = 1;
  int64_t steps = 10, warmup = 3, rounds = 1;
  bool recompute = false;
  std::optional<DType> dtype;  // absent: bfloat16 on GPUs, float32 on CPUs
  config::Device device = config::Device::kAuto;
  bool json = false;
};

// Without launch flags and the word `scaling`. Throws UserError.
ScalingFlags parse_scaling_flags(std::span<const std::string> arguments);

// Refuses a model that is not there, and rows that it cannot have. Throws UserError, IoError.
void check_scaling(const ScalingFlags& flags);

}  // namespace skein::cli
