// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do `auto` and the like become? The launcher, `skein plan` and the ranks ask the same rules.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "skein/config/batch_plan.h"
#include "skein/config/run_config.h"
#include "skein/core/dtype.h"
#include "skein/optim/offload.h"

namespace skein::plan {

// What the ranks compute on.
struct Place {
  config::Device device = config::Device::kCpu;  // never kAuto
  bool has_bfloat16 = true;                      // in hardware; on CPUs it does not matter
  bool has_nccl = true;                          // in this build

  bool on_gpus() const { return device == config::Device::kCuda; }
};

// Of the weights in forward. auto: bfloat16 on GPUs that have it, float16 on others, float32 on
// CPUs.
DType working_dtype(std::optional<DType> asked, const Place& place);
// The same where nothing trains. auto follows the files, of which `stored` is config.json's word:
// bfloat16 for 16 bits on GPUs that have it, float32 elsewhere.
DType inference_dtype(std::optional<DType> asked, std::string_view stored, const Place& place);
// Gradients of 16-bit weights may have 16 bits where nothing is added up over micro-batches; with
// pure_bf16 they have them even so, unless grad_accum_fp32 asks for more.
bool has_wide_gradients(const config::OptimizerConfig& optimizer, const config::BatchPlan& batches);
DType gradient_dtype(DType weights, bool wide_gradients);
// Of the optimizer's states on the device, per element; not whole where elements share a scale.
double state_bytes_each(const config::OptimizerConfig& optimizer, DType weights);

// What lies outside of the device. Shards of parameters take the states along.
optim::Offload offload_of(const config::OffloadConfig& config);

// ZeRO's stage, 0 to 3.
int zero_stage(config::Strategy strategy);
config::Strategy strategy_of(int zero_stage);
// "nccl", "gloo".
std::string backend(const config::ParallelConfig& parallel, config::Device device);
// What the order of the data follows from.
uint64_t data_seed(const config::RunConfig& config);
bool evaluates(const config::RunConfig& config);
// After warm-up, scaled with the batch as lr_scaling asks.
double peak_learning_rate(const config::RunConfig& config, const config::BatchPlan& batches);

}  // namespace skein::plan
