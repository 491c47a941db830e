// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// AdamW. Under 16-bit weights it keeps an fp32 master of each range; under fp32 and fp64 the
// weights are the master.

#include <ATen/core/Tensor.h>

#include <vector>

#include "skein/optim/optimizer.h"

namespace skein::optim {

class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<OwnedRange> ranges, const config::OptimizerConfig& options,
        tensor::FlatMemory& memory)
      : Optimizer(std::move(ranges), options, memory) {}

  // On a CPU by at::get_num_threads() threads; the same bits for any number of them.
  void step(double learning_rate, const Decision& decision) override;

 private:
  // One group of a range.
  struct Part {
    at::Tensor parameters, gradients;
    at::Tensor master, exp_avg, exp_avg_sq;  // the master aliases weights that are not 16-bit
    double learning_rate, weight_decay;
  };
  std::vector<Part> parts(double learning_rate) const;
  void step_on_cpu(const std::vector<Part>& parts, const Decision& decision);
  void step_on_cuda(const std::vector<Part>& parts, const Decision& decision);
  void update_on_cuda(const Part& part, const Decision& decision);
  void update_by_torch(const Part& part, const Decision& decision);
};

}  // namespace skein::optim
