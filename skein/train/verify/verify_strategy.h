// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Does a run learn the same under every strategy, offload on and off?
//
// The first steps of a run (its data, its seed, its first weights), once for each way to hold its
// memory, one after the other on the same ranks. Nothing is saved. Beside the variant under way a
// rank keeps its shard of the trained weights of every other outcome in host memory; variants that
// end bit-equal, on CPUs nearly all, share one.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/train/verify/tolerance.h"
#include "skein/train/verify/trained_weights.h"
#include "skein/train/world.h"

namespace skein::train {

// One way to hold a run's memory.
struct Variant {
  config::Strategy strategy = config::Strategy::kDdp;
  config::Offload optimizer = config::Offload::kNone;
  config::Offload parameters = config::Offload::kNone;

  std::string name() const;  // "zero3 optimizer=cpu"
};

struct VerifyOptions {
  int64_t steps = 5;                         // no more than the run has
  std::vector<config::Strategy> strategies;  // empty: all
  std::optional<double> tolerance = {};      // for all numbers and pairs, instead of the rules
};

struct VariantNumbers {
  Variant variant;
  std::vector<double> losses, norms;  // of each step
  std::vector<TensorSums> tensors;    // that train, after the last
  std::string digest;                 // of their bytes; depends on the number of ranks
};

struct LeftOut {
  Variant variant;
  std::string why;
};

struct VariantPair {
  size_t first = 0, second = 0;  // of StrategyReport::variants
  double loss = 0, norm = 0;     // the largest relative differences of a step's …
  double parameters = 0;         // … and of a tensor: |a - b| / max(|a|, |all tensors| / 1000)
  std::string tensor;            // where that is; empty: nowhere
  Tolerance allowed;

  bool is_within() const;
};

struct StrategyReport {
  config::BatchPlan batches;
  DType dtype = DType::kF32;
  bool moments_8bit = false;
  std::string device;
  int64_t steps = 0;
  std::vector<VariantNumbers> variants;
  std::vector<VariantPair> pairs;
  std::vector<LeftOut> left_out;

  bool is_within() const;
};

// Collective: the same on all ranks. Throws UserError for what cannot run, and for a variant that
// the GPU has no room for.
StrategyReport verify_strategies(const config::Resolved& resolved, const VerifyOptions& options,
                                 World& world);

}  // namespace skein::train
