// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/detect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "skein/core/error.h"

namespace skein::launch {
namespace {

using config::Device;

constexpr int kMostRanks = 4096;

std::optional<std::string> find(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

int parse_count(const std::string& text, std::string_view origin, std::string_view expected) {
  int value = 0;
  const auto* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < 1 || value > kMostRanks) {
    throw UserError(
        fmt::format("{} is '{}': expected {} (at most {})", origin, text, expected, kMostRanks));
  }
  return value;
}

void refuse_foreign_launchers(const Environment& environment) {
  // SKEIN_STORE_PORT: our own rank's variables, which its children inherit.
  if (environment.contains("SKEIN_STORE_PORT")) return;
  if (const auto local_rank = find(environment, "LOCAL_RANK")) {
    throw UserError(fmt::format(
        "LOCAL_RANK={} is set, so another launcher (torchrun, deepspeed, accelerate) started this "
        "process: known, not supported by this version yet. Start `skein train` by itself, it "
        "starts its own ranks; or unset LOCAL_RANK",
        *local_rank));
  }
  constexpr auto kTasks =
      std::to_array<std::pair<const char*, const char*>>({{"OMPI_COMM_WORLD_SIZE", "mpirun"},
                                                          {"PMI_SIZE", "mpirun"},
                                                          {"MV2_COMM_WORLD_SIZE", "mpirun"},
                                                          {"SLURM_STEP_NUM_TASKS", "srun"}});
  for (const auto& [name, launcher] : kTasks) {
    const auto tasks = find(environment, name);
    if (tasks && *tasks != "1") {
      throw UserError(fmt::format(
          "{}={}: started {} times by {}: known, not supported by this version yet. Start one task "
          "per machine, it starts its own ranks",
          name, *tasks, *tasks, launcher));
    }
  }
}

void refuse_several_machines(const Environment& environment) {
  if (environment.contains("SKEIN_STORE_PORT")) return;
  constexpr auto kSingle = std::to_array<std::pair<const char*, const char*>>(
      {{"WORLD_SIZE", "1"}, {"NNODES", "1"}, {"NODE_RANK", "0"}});
  for (const auto& [name, single] : kSingle) {
    const auto value = find(environment, name);
    if (!value || *value == single) continue;
    throw UserError(fmt::format(
        "{}={} describes several machines (without LOCAL_RANK, WORLD_SIZE counts machines): known, "
        "not supported by this version yet. Unset it to run on this machine alone",
        name, *value));
  }
}

// What was asked for: a number, or one of the words.
struct Request {
  std::optional<std::string> text;
  std::string origin;
  bool gpus_only = false;
};

Request find_request(const Situation& situation) {
  const auto& flags = situation.flags;
  if (flags.nproc_per_node && flags.num_gpus && *flags.nproc_per_node != *flags.num_gpus) {
    throw UserError(fmt::format("--nproc-per-node {} and --num-gpus {} contradict each other",
                                *flags.nproc_per_node, *flags.num_gpus));
  }
  if (flags.num_gpus) return {flags.num_gpus, "--num-gpus", true};
  if (flags.nproc_per_node) {
    return {flags.nproc_per_node, "--nproc-per-node", *flags.nproc_per_node == "gpu"};
  }
  if (const auto text = find(situation.environment, "NPROC_PER_NODE")) {
    return {text, "NPROC_PER_NODE", *text == "gpu"};
  }
  return {};
}

// Why no GPU can be used; empty if one can.
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

void finish(LaunchPlan& plan, const Situation& situation, const std::string& origin) {
  const int threads = std::max(1, situation.hardware.cores / plan.local_ranks);
  plan.omp_num_threads =
      find(situation.environment, "OMP_NUM_THREADS").value_or(std::to_string(threads));
  const char* kind = plan.device == Device::kCuda ? "GPU" : "CPU";
  plan.summary = fmt::format("{} {} rank{} on this machine ({})", plan.local_ranks, kind,
                             plan.local_ranks == 1 ? "" : "s", origin);
}

LaunchPlan plan_gpus(const Situation& situation, const Request& request) {
  LaunchPlan plan{.device = Device::kCuda};
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

LaunchPlan plan_cpus(const Situation& situation, const Request& request,
                     const std::string& reason) {
  LaunchPlan plan{.device = Device::kCpu};
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

Environment read_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos)
      result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

LaunchPlan detect(const Situation& situation) {
  refuse_foreign_launchers(situation.environment);
  refuse_several_machines(situation.environment);
  const auto request = find_request(situation);
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
