// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/rank_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "skein/core/error.h"
#include "skein/launch/placement/number.h"

namespace skein::launch {
namespace {

using config::Device;

int parse_count(const std::string& text, std::string_view origin, std::string_view expected) {
  const auto value = read_number(text, 1, kMostLocalRanks);
  if (value) return *value;
  throw UserError(
      fmt::format("{} is '{}': expected {} (at most {})", origin, text, expected, kMostLocalRanks));
}

std::string count_ranks(const LaunchPlan& plan) {
  const char* kind = plan.device == Device::kCuda ? "GPU" : "CPU";
  return fmt::format("{} {} rank{}", plan.local_ranks, kind, plan.local_ranks == 1 ? "" : "s");
}

void finish(LaunchPlan& plan, const Situation& situation, const std::string& origin) {
  const int threads = std::max(1, situation.hardware.cores / plan.local_ranks);
  plan.omp_num_threads =
      find_variable(situation.environment, "OMP_NUM_THREADS").value_or(std::to_string(threads));
  plan.summary = fmt::format("{} on this machine ({})", count_ranks(plan), origin);
}

LaunchPlan plan_gpus(const Situation& situation, const RankRequest& request) {
  LaunchPlan plan;
  plan.device = Device::kCuda;
  const int found = situation.hardware.gpus;
  const bool all = !request.text || *request.text == "auto" || *request.text == "gpu";
  plan.local_ranks =
      all ? found : parse_count(*request.text, request.origin, "a number, auto, gpu or cpu");
  if (plan.local_ranks > found) {
    throw UserError(fmt::format(
        "{} asks for {} ranks, one GPU each, but {} GPU(s) are visible: ask for at most {}, or set "
        "device: cpu",
        request.origin, plan.local_ranks, found, found));
  }
  finish(plan, situation, request.text ? request.origin : "all visible GPUs");
  return plan;
}

LaunchPlan plan_cpus(const Situation& situation, const RankRequest& request,
                     const std::string& reason) {
  LaunchPlan plan;
  if (request.gpus_only) {
    throw UserError(fmt::format("{} {} asks for GPUs, but {}", request.origin,
                                request.text.value_or(""), reason));
  }
  if (!request.text) {
    plan.local_ranks = 1;
  } else if (*request.text == "auto" || *request.text == "cpu") {
    plan.local_ranks = situation.hardware.cores;
  } else {
    plan.local_ranks = parse_count(*request.text, request.origin, "a number, auto, gpu or cpu");
  }
  finish(plan, situation, request.text ? request.origin : reason);
  return plan;
}

}  // namespace

std::optional<int> RankRequest::number() const {
  return text ? read_number(*text, 1, kMostLocalRanks) : std::nullopt;
}

RankRequest find_request(const LaunchFlags& flags, const Environment& environment) {
  if (flags.nproc_per_node && flags.num_gpus && *flags.nproc_per_node != *flags.num_gpus) {
    throw UserError(fmt::format("--nproc-per-node {} and --num-gpus {} contradict each other",
                                *flags.nproc_per_node, *flags.num_gpus));
  }
  if (flags.num_gpus) return {flags.num_gpus, "--num-gpus", true};
  if (flags.nproc_per_node) {
    return {flags.nproc_per_node, "--nproc-per-node", *flags.nproc_per_node == "gpu"};
  }
  if (const auto text = find_variable(environment, "NPROC_PER_NODE")) {
    return {text, "NPROC_PER_NODE", *text == "gpu"};
  }
  return {};
}

std::string why_no_gpu(const Situation& situation) {
  const auto& hardware = situation.hardware;
  if (!hardware.gpu_problem.empty()) {
    return fmt::format("a GPU is present but unusable: {}", hardware.gpu_problem);
  }
  if (hardware.gpus == 0) {
    const auto visible = situation.environment.find("CUDA_VISIBLE_DEVICES");
    return visible == situation.environment.end()
               ? "no GPU is visible"
               : fmt::format("no GPU is visible with CUDA_VISIBLE_DEVICES='{}'", visible->second);
  }
  if (!situation.cuda_build) {
    return fmt::format("this build of skein has no CUDA for the {} visible GPU(s) (`make cuda`)",
                       hardware.gpus);
  }
  return "";
}

LaunchPlan plan_ranks(const Situation& situation, const RankRequest& request) {
  if (situation.device == Device::kCpu) return plan_cpus(situation, request, "device: cpu");
  const auto reason = why_no_gpu(situation);
  if (situation.device == Device::kCuda) {
    if (!reason.empty()) throw UserError(fmt::format("device: cuda, but {}", reason));
    if (request.text == "cpu")
      throw UserError(fmt::format("device: cuda, but {} cpu", request.origin));
    return plan_gpus(situation, request);
  }
  if (request.text == "cpu") return plan_cpus(situation, request, "");
  if (reason.empty()) return plan_gpus(situation, request);
  auto plan = plan_cpus(situation, request, reason);
  const bool gpu_left_idle = situation.hardware.gpus > 0 || !situation.hardware.gpu_problem.empty();
  if (gpu_left_idle) plan.warnings.push_back(fmt::format("training on the CPU: {}", reason));
  return plan;
}

}  // namespace skein::launch
