// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/sample_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <vector>

namespace skein::gradient_features {
namespace {

constexpr tensor::StepKey kNoDropout{.training = false};

at::Device device_of(const model::Model& model) {
  return model.table().parameters.front().slot->device();
}

// Of every target, in order: the document that it belongs to, and 1 over that one's targets.
struct TargetShares {
  std::vector<int64_t> documents;
  std::vector<double> shares;
};

TargetShares shares_of(const tensor::HostBatch& run) {
  TargetShares result;
  size_t begin = 0;
  for (size_t i = 0; i < run.document_ends.size(); ++i) {
    const auto end = static_cast<size_t>(run.document_ends[i]);
    size_t count = 0;
    for (size_t t = begin; t < end; ++t) count += run.targets[t] == tensor::kIgnore ? 0 : 1;
    result.documents.resize(result.documents.size() + count, static_cast<int64_t>(i));
    result.shares.resize(result.shares.size() + count, 1 / static_cast<double>(count));
    begin = end;
  }
  return result;
}

}  // namespace

at::Tensor mean_loss_sum(const model::Model& model, const tensor::HostBatch& run,
                         tensor::Units& units) {
  const auto device = device_of(model);
  const auto batch = tensor::to_device(run, device);
  // Before forward: a copy from memory that is not pinned waits for all that the device has to do.
  const auto shares = at::tensor(shares_of(run).shares, at::kDouble).to(device).unsqueeze(0);
  const auto hidden = [&] {
    const tensor::ForwardPass pass(units, {.differentiable_inputs = true});
    return model.forward(batch, kNoDropout, units);
  }();
  const auto places = batch.run->places;
  return model.head_loss_sum(hidden.index_select(1, places), batch.targets.index_select(1, places),
                             shares, units);
}

at::Tensor mean_losses(const model::Model& model, const tensor::HostBatch& run,
                       tensor::Units& units) {
  const at::NoGradGuard no_grad;
  const auto batch = tensor::to_device(run, device_of(model));
  const auto hidden = model.forward(batch, kNoDropout, units);
  const auto log_probs = model.head_log_probs(hidden, batch, units).log_probs;
  const auto [documents, shares] = shares_of(run);
  const auto weighed = log_probs.cpu().to(at::kDouble) * at::tensor(shares, at::kDouble);
  auto sums = at::zeros({std::ssize(run.document_ends)}, at::kDouble);
  sums.index_add_(0, at::tensor(documents, at::kLong), weighed);
  return sums.neg_().to(at::kFloat).unsqueeze(1);
}

at::Tensor last_states(const model::Model& model, const tensor::HostBatch& run,
                       tensor::Units& units) {
  const at::NoGradGuard no_grad;
  const auto batch = tensor::to_device(run, device_of(model));
  const auto hidden = model.forward(batch, kNoDropout, units);
  const auto ends = batch.run->bounds.slice(0, 1).to(at::kLong) - 1;
  return hidden.select(0, 0).index_select(0, ends).to(at::kFloat).cpu();
}

}  // namespace skein::gradient_features
