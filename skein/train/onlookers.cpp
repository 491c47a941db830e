// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/onlookers.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "skein/core/error.h"

namespace skein::train {

using algorithms::Role;

Onlookers::Onlookers(const algorithms::Algorithm& algorithm, const model::Model& policy,
                     parallel::Sharded& sharded, Reference* reference)
    : algorithm_(algorithm), policy_(policy), sharded_(sharded), reference_(reference) {}

bool Onlookers::uses_policy() const {
  return std::ranges::any_of(algorithm_.passes(), [&](const auto& pass) {
    return pass.role == Role::kPolicy || (reference_ == nullptr && !is_kept(pass));
  });
}

bool Onlookers::uses_reference() const {
  return reference_ != nullptr && std::ranges::any_of(algorithm_.passes(), [&](const auto& pass) {
           return pass.role == Role::kReference && !is_kept(pass);
         });
}

void Onlookers::while_held(const std::function<void()>& work) const {
  const auto beside_reference = [&] {
    if (!uses_reference()) return work();
    const auto roots = reference_->sharded->hold_roots();
    work();
  };
  if (!uses_policy()) return beside_reference();
  const auto roots = sharded_.hold_roots();
  beside_reference();
}

algorithms::Runner Onlookers::runner(Role role) const {
  tensor::StepKey key{.training = false};
  if (role == Role::kReference && reference_ != nullptr) {
    return {*reference_->model, *reference_->sharded, key};
  }
  key.adapters = role == Role::kPolicy;
  return {policy_, sharded_, key};
}

Onlookers::Looks Onlookers::look(data::Split split, const tensor::Batch& own,
                                 const tensor::Batch* mismatched) const {
  Looks looks;
  const auto passes = algorithm_.passes();
  for (size_t pass = 0; pass < passes.size(); ++pass) {
    const bool is_own = passes[pass].rows == algorithms::Rows::kOwn;
    if (is_kept(passes[pass])) {
      looks.push_back(kept_->of(split, pass, *own.answers));
      continue;
    }
    SKEIN_CHECK(is_own || mismatched != nullptr, "there are answers to other prompts");
    looks.push_back(look(pass, is_own ? own : *mismatched));
  }
  return looks;
}

at::Tensor Onlookers::look(size_t pass, const tensor::Batch& batch) const {
  const at::NoGradGuard no_grad;
  return algorithm_.look(batch, runner(algorithm_.passes()[pass].role));
}

void Onlookers::keep(KeptLooks looks) {
  kept_ = std::move(looks);
  reference_ = nullptr;
}

std::vector<double> Onlookers::settle(std::span<const Looks> looks,
                                      const tensor::Counts& counts) const {
  if (!algorithm_.spans_step()) return {};
  std::vector<double> sums(algorithm_.passes().size());
  for (const auto& of_batch : looks) {
    for (size_t pass = 0; pass < sums.size(); ++pass) {
      sums[pass] += of_batch[pass].sum().item<double>();
    }
  }
  return algorithm_.settle(sharded_.group().sum(sums), counts);
}

}  // namespace skein::train
