// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/nan_guard.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/log.h"

namespace skein::train {
namespace {

std::string describe(const std::vector<int64_t>& samples) {
  constexpr size_t kShown = 16;
  const auto shown =
      std::vector(samples.begin(), samples.begin() + std::min(samples.size(), kShown));
  return fmt::format("{}{}", fmt::join(shown, ", "), samples.size() > kShown ? ", …" : "");
}

}  // namespace

void NanGuard::watch(int64_t step, parallel::Sharded::GradientNorm norm,
                     std::vector<int64_t> samples) {
  auto on_host = norm.norm;
  std::shared_ptr<c10::Event> arrived;
  if (on_host.is_cuda()) {
    // An event behind the copy: item() would wait for all that is queued by then, the next step
    // too.
    on_host = at::empty({}, at::TensorOptions().dtype(at::kDouble).pinned_memory(true));
    on_host.copy_(norm.norm, /*non_blocking=*/true);
    arrived = std::make_shared<c10::Event>(at::kCUDA);
    arrived->record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(norm.norm.device()));
  }
  watched_ = Watched{step, std::move(norm), std::move(samples), on_host, std::move(arrived)};
}

void NanGuard::scale_down(int64_t step) {
  const double before = scaler_->scale();
  scaler_->update(/*overflow=*/true);
  log_info(
      "step {}: the gradient overflowed float16; the update was left out, the loss scale {}", step,
      scaler_->scale() == before ? fmt::format("stays {}", before)
                                 : fmt::format("falls from {} to {}", before, scaler_->scale()));
}

NanVerdict NanGuard::judge() {
  const auto watched = std::exchange(watched_, std::nullopt);
  if (!watched) return NanVerdict::kGoOn;
  if (watched->arrived) watched->arrived->synchronize();
  const bool is_finite = std::isfinite(watched->norm_on_host.item<double>());
  if (scaler_ && !is_finite && !scaler_->is_fixed()) {
    scale_down(watched->step);
    return NanVerdict::kGoOn;
  }
  if (scaler_) scaler_->update(!is_finite);
  if (is_finite) return NanVerdict::kGoOn;
  const auto units = sharded_.non_finite_units(watched->norm);
  // Backward runs from the last unit to the first: the last one that is hit is nearest the cause.
  const auto message = fmt::format(
      "step {}: the gradient is not finite, first in {} (samples {}); the update was left out",
      watched->step, units.empty() ? "no single layer: the norm overflowed" : units.back(),
      describe(watched->samples));
  switch (policy_) {
    case config::NanPolicy::kStop:
      throw UserError(message +
                      ". Lower learning_rate or max_grad_norm, look at the samples, or go on with "
                      "nan_policy=skip (leave such steps out) or nan_policy=rollback");
    case config::NanPolicy::kSkip:
      log_warning("{}", message);
      return NanVerdict::kGoOn;
    case config::NanPolicy::kRollback:
      log_warning("{}", message);
      return NanVerdict::kRollBack;
  }
  return NanVerdict::kGoOn;
}

}  // namespace skein::train
