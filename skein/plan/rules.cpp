// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/rules.h"

#include "skein/core/error.h"
#include "skein/optim/states.h"
#include "skein/plan/rates/schedule.h"

namespace skein::plan {

DType working_dtype(std::optional<DType> asked, const Place& place) {
  if (asked) return *asked;
  if (!place.on_gpus()) return DType::kF32;
  return place.has_bfloat16 ? DType::kBF16 : DType::kF16;
}

DType inference_dtype(std::optional<DType> asked, std::string_view stored, const Place& place) {
  const bool is_narrow = stored == "bfloat16" || stored == "float16";
  // Never float16 unasked: values of a bfloat16 file may not fit into it.
  const bool in_bfloat16 = is_narrow && place.on_gpus() && place.has_bfloat16;
  return asked.value_or(in_bfloat16 ? DType::kBF16 : DType::kF32);
}

bool has_wide_gradients(const config::OptimizerConfig& optimizer,
                        const config::BatchPlan& batches) {
  return optimizer.grad_accum_fp32 || (batches.accumulation > 1 && !optimizer.pure_bf16);
}

DType gradient_dtype(DType weights, bool wide_gradients) {
  return wide_gradients && dtype_bytes(weights) < 4 ? DType::kF32 : weights;
}

optim::Offload offload_of(const config::OffloadConfig& config) {
  const auto medium = [](config::Offload target) {
    return target == config::Offload::kNone  ? Medium::kDevice
           : target == config::Offload::kCpu ? Medium::kPinnedHost
                                             : Medium::kDisk;
  };
  optim::Offload offload{.states = medium(config.offload_optimizer),
                         .ratio = config.offload_ratio,
                         .parameters = medium(config.offload_param)};
  if (offload.parameters == Medium::kDevice) return offload;
  offload.ratio = 1;
  if (offload.states == Medium::kDevice) offload.states = offload.parameters;
  return offload;
}

double state_bytes_each(const config::OptimizerConfig& optimizer, DType weights) {
  const auto bytes = optim::state_bytes(optimizer, weights, optim::kStateBlock);
  return static_cast<double>(bytes) / static_cast<double>(optim::kStateBlock);
}

int zero_stage(config::Strategy strategy) {
  switch (strategy) {
    case config::Strategy::kAuto:
    case config::Strategy::kDdp:
      return 0;
    case config::Strategy::kZero1:
      return 1;
    case config::Strategy::kZero2:
      return 2;
    case config::Strategy::kZero3:
      return 3;
  }
  throw InternalError("a strategy without a stage");
}

config::Strategy strategy_of(int zero_stage) {
  constexpr config::Strategy kByStage[] = {config::Strategy::kDdp, config::Strategy::kZero1,
                                           config::Strategy::kZero2, config::Strategy::kZero3};
  return kByStage[zero_stage];
}

std::string backend(const config::ParallelConfig& parallel, config::Device device) {
  if (parallel.ddp_backend != "auto") return parallel.ddp_backend;
  return device == config::Device::kCuda ? "nccl" : "gloo";
}

uint64_t data_seed(const config::RunConfig& config) {
  return static_cast<uint64_t>(config.data_seed.value_or(config.seed));
}

bool evaluates(const config::RunConfig& config) {
  return config.eval.eval_strategy != config::EvalStrategy::kNo;
}

double peak_learning_rate(const config::RunConfig& config, const config::BatchPlan& batches) {
  return scaled_peak(config.schedule, config.optimizer.learning_rate, batches.global,
                     batches.per_device * batches.accumulation);
}

}  // namespace skein::plan
