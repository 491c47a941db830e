// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// AdamW on host memory: one pass that reads the gradient, updates master and moments, and writes
// the weights. 28 bytes of traffic per parameter, whether its weight has 16 bits or 32; 16 with
// moments in 8 bits; 14 where all is bf16.
//
// An element goes through the same IEEE operations wherever it lies and whatever computes it: no
// fused multiply-add, no approximate root. So the bits depend neither on the processor nor on the
// number of threads nor on how ranges are cut. (Of a NaN only that it is one.) Free of torch.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "skein/core/dtype.h"

namespace skein::ops {

// Elements that are updated alike. Nothing need be aligned beyond its own type.
struct HostAdamW {
  void* weights = nullptr;  // in `type`, bf16 or fp16; null when the master is the weights
  // fp32, as the moments; all of them fp64 where `type` is. Null: there is none, and the moments
  // are bf16 as the weights (unless they have scales); all are rounded at random
  // (ops/random_rounding.h).
  void* master = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  // Where they are given, moments are bytes of ops/moment_code.h, and these the scales of their
  // blocks: the elements are whole blocks then.
  float* exp_avg_scale = nullptr;
  float* exp_avg_sq_scale = nullptr;
  const void* gradient = nullptr;  // in `gradient_type`
  int64_t count = 0;
  DType type = DType::kF32;           // fp32, bf16, fp16; or fp64
  DType gradient_type = DType::kF32;  // fp32, bf16, fp16; fp64 if and only if `type` is
  double factor = 1;                  // multiplies the gradient: clipping, what is left of a mean
  int64_t step = 1;                   // number of this update, from 1
  // Without a master: what is drawn, together with the step, and the place of the first element, of
  // which the call has whole blocks of 128.
  uint64_t rounding_key = 0;
  int64_t first_element = 0;
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
};

enum class InstructionSet { kBaseline, kAvx2, kAvx512 };
// Those that this processor has, the fastest last.
std::vector<InstructionSet> instruction_sets();

struct HostAdamWOptions {
  int threads = 1;
  InstructionSet instructions = instruction_sets().back();
  // A loop over [0, count) by threads that are there already; none: new ones, `threads` of them.
  using Loop = std::function<void(int64_t count, const std::function<void(int64_t)>& work)>;
  Loop loop{};
};
// Arrays of different calls must not overlap.
void adamw_on_cpu(std::span<const HostAdamW> calls, const HostAdamWOptions& options);

}  // namespace skein::ops
