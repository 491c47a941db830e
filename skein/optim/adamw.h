// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// AdamW. Under 16-bit weights it keeps an fp32 master of each range; under fp32 and fp64 the
// weights are the master. `optim: adamw_8bit` has moments in 8 bits (ops/moment_code.h). With
// `pure_bf16`, bf16 weights have no master and bf16 moments, all rounded at random
// (ops/random_rounding.h).

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "skein/optim/optimizer.h"

namespace skein::optim {

class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<OwnedRange> ranges, const config::OptimizerConfig& options,
        tensor::FlatMemory& memory, uint64_t seed = 0);
  ~AdamW() override;

  // On a CPU by the at::get_num_threads() of construction; the same bits for any number of them.
  void begin_step(double learning_rate, const Decision& decision) override;
  void step_range(size_t range) override;
  void end_step() override;

 private:
  // One group of a range.
  struct Part {
    at::Tensor parameters, gradients;
    // The master aliases weights that are not 16-bit; undefined where such weights have none.
    at::Tensor master, exp_avg, exp_avg_sq;
    at::Tensor exp_avg_scale, exp_avg_sq_scale;  // of moments in 8 bits; else undefined
    uint64_t rounding_key;
    int64_t first_element;  // place in the segment
    double learning_rate, weight_decay;
  };
  // The step that is being made.
  struct Step {
    double learning_rate = 0;
    Decision decision;
    std::vector<Part> on_cpu;  // to be updated at its end
  };
  // The same as the tasks of the host's side see it.
  struct HostStep;

  // A part of a range, and where its weights and states are.
  struct Window {
    tensor::Range elements;
    at::Tensor weights;
    RangeStates states;
  };
  std::vector<Part> parts(size_t range, const Window& window, double learning_rate) const;
  std::vector<Part> parts(size_t range, double learning_rate) const;
  struct Update {
    int64_t number = 1;
    double factor = 1;
    ThreadTeam* team = nullptr;  // null: threads of its own
  };
  void update_on_cpu(const std::vector<Part>& parts, const Update& update) const;
  void update_on_cuda(const Part& part, const Decision& decision);
  void update_by_torch(const Part& part, const Decision& decision);
  void update_on_host(size_t range, HostStep& step);
  void update_window(size_t range, Window window, const HostStep& step);

  int threads_;
  Step step_;
  std::shared_ptr<HostStep> host_step_;  // null where there is no host range
  std::optional<UploadSlots> slots_;     // where weights lie on a GPU and their states do not
};

}  // namespace skein::optim
