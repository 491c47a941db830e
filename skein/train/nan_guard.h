// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What happens when a gradient is not finite?
//
// The update is left out on the device, on all ranks alike (they share the norm). The guard reads
// the norm one step later, when it is there without waiting, says what happened, with the samples
// and the layer, and does what nan_policy asks. In float16 it is the loss scale that answers,
// unless that is fixed.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/parallel/sharded.h"
#include "skein/plan/rates/loss_scaler.h"

namespace c10 {
struct Event;
}

namespace skein::train {

enum class NanVerdict { kGoOn, kRollBack };

class NanGuard {
 public:
  // `scaler` may be null, and is told of every step that is judged.
  NanGuard(config::NanPolicy policy, parallel::Sharded& sharded, plan::LossScaler* scaler)
      : policy_(policy), sharded_(sharded), scaler_(scaler) {}

  // Remembers a step (finished updates, from 1).
  void watch(int64_t step, parallel::Sharded::GradientNorm norm, std::vector<int64_t> samples);
  // Judges the remembered step, once. Collective. Throws UserError under nan_policy: stop, and when
  // the loss scale can fall no further.
  NanVerdict judge();

 private:
  struct Watched {
    int64_t step = 0;
    parallel::Sharded::GradientNorm norm;
    std::vector<int64_t> samples;
    at::Tensor norm_on_host;
    std::shared_ptr<c10::Event> arrived;  // null on CPUs
  };

  void scale_down(int64_t step);

  config::NanPolicy policy_;
  parallel::Sharded& sharded_;
  plan::LossScaler* scaler_;
  std::optional<Watched> watched_;
};

}  // namespace skein::train
