// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What happens when a loss or a gradient is not finite?
//
// The update is left out on the device, on all ranks alike (they share the norm, which a loss that
// is not finite spoils too); one that the host makes in backward (update.h) has been made by then.
// The guard reads the norm one step later, when it is there without
// waiting, says what happened, with the samples and the layer, and does what nan_policy asks.
//
// In float16 a finite loss with a gradient that is not is answered by the loss scale, unless that
// is fixed. No scale helps against a loss that is not finite.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/parallel/sharded.h"
#include "skein/plan/rates/loss_scaler.h"
#include "skein/train/update.h"

namespace c10 {
struct Event;
}

namespace skein::train {

struct NanVerdict {
  bool rolls_back = false;  // weights and states must
  // A step whose gradient alone was not finite: its loss is, on every rank.
  std::optional<Update> finite_loss{};
};

class NanGuard {
 public:
  // `scaler` may be null, and is told of every step that is judged.
  NanGuard(config::NanPolicy policy, parallel::Sharded& sharded, plan::LossScaler* scaler)
      : policy_(policy), sharded_(sharded), scaler_(scaler) {}

  // Remembers a step (finished updates, from 1).
  void watch(int64_t step, Update update, std::vector<int64_t> samples);
  // Judges the remembered step, once. Collective. Throws UserError under nan_policy: stop, and when
  // the loss scale can fall no further.
  NanVerdict judge();

 private:
  struct Watched {
    int64_t step = 0;
    Update update;
    std::vector<int64_t> samples;
    at::Tensor norm_on_host;
    std::shared_ptr<c10::Event> arrived;  // null on CPUs
  };

  bool is_loss_finite(const Watched& watched);
  std::string where(const Watched& watched);
  void scale_down(const Watched& watched);

  config::NanPolicy policy_;
  parallel::Sharded& sharded_;
  plan::LossScaler* scaler_;
  std::optional<Watched> watched_;
};

}  // namespace skein::train
