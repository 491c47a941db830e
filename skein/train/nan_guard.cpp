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

void NanGuard::watch(int64_t step, Update update, std::vector<int64_t> samples) {
  auto on_host = update.norm.norm;
  std::shared_ptr<c10::Event> arrived;
  if (on_host.is_cuda()) {
    // An event behind the copy: item() would wait for all that is queued by then, the next step
    // too.
    const auto norm = on_host;
    on_host = at::empty({}, at::TensorOptions().dtype(at::kDouble).pinned_memory(true));
    on_host.copy_(norm, /*non_blocking=*/true);
    arrived = std::make_shared<c10::Event>(at::kCUDA);
    arrived->record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(norm.device()));
  }
  watched_ = Watched{step, std::move(update), std::move(samples), on_host, std::move(arrived)};
}

// Collective: of the loss a rank has a share alone. Only a step that went wrong is asked.
bool NanGuard::is_loss_finite(const Watched& watched) {
  const bool is_finite = std::isfinite(watched.update.loss.item<double>());
  return sharded_.group().sum(int64_t{!is_finite}) == 0;
}

// Collective.
std::string NanGuard::where(const Watched& watched) {
  const auto units = sharded_.non_finite_units(watched.update.norm);
  // Backward runs from the last unit to the first: the last one that is hit is nearest the cause.
  return fmt::format("first in {} (samples {})",
                     units.empty() ? "no single layer: the norm overflowed" : units.back(),
                     describe(watched.samples));
}

void NanGuard::scale_down(const Watched& watched) {
  const double before = scaler_->scale();
  try {
    scaler_->update(/*overflow=*/true);
  } catch (const UserError& error) {
    throw UserError(
        fmt::format("step {}: {}. It overflowed {}", watched.step, error.what(), where(watched)));
  }
  log_info("step {}: the gradient overflowed float16; the update was left out, the loss scale {}",
           watched.step,
           scaler_->scale() == before
               ? fmt::format("stays {}", before)
               : fmt::format("falls from {} to {}", before, scaler_->scale()));
}

NanVerdict NanGuard::judge() {
  const auto watched = std::exchange(watched_, std::nullopt);
  if (!watched) return {};
  if (watched->arrived) watched->arrived->synchronize();
  if (std::isfinite(watched->norm_on_host.item<double>())) {
    if (scaler_) scaler_->update(/*overflow=*/false);
    return {};
  }
  const bool finite_loss = is_loss_finite(*watched);
  NanVerdict verdict{.finite_loss = finite_loss ? std::optional(watched->update) : std::nullopt};
  if (scaler_ && !scaler_->is_fixed() && finite_loss) {
    scale_down(*watched);
    return verdict;
  }
  if (scaler_) scaler_->leave_out();
  const auto message =
      fmt::format("step {}: the {} not finite, {}; the update was {}", watched->step,
                  finite_loss ? "gradient is" : "loss and the gradient are", where(*watched),
                  watched->update.made_early ? "made all the same, since nothing waits for the norm"
                                             : "left out");
  if (policy_ == config::NanPolicy::kStop) {
    const bool scale_is_fixed = scaler_ && scaler_->is_fixed() && finite_loss;
    throw UserError(fmt::format(
        "{}. {}, look at the samples, or go on from the last checkpoint with nan_policy=skip "
        "(leave such steps out) or nan_policy=rollback",
        message,
        scale_is_fixed ? fmt::format("The loss scale is fixed at {:g}: give loss_scale=dynamic, or "
                                     "a lower one",
                                     scaler_->scale())
                       : "Lower learning_rate (or max_grad_norm, unless it is 0)"));
  }
  log_warning("{}", message);
  verdict.rolls_back = policy_ == config::NanPolicy::kRollback;
  return verdict;
}

}  // namespace skein::train
