// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/plan_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "skein/cli/plan_outlook.h"
#include "skein/cli/words.h"
#include "skein/core/amounts.h"
#include "skein/launch/plan/detect.h"

namespace skein::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "skein plan [CONFIG.yaml] [key=value ...] [launch flags] [--json]\n"
    "\n"
    "What `skein train` would do with the same words: hardware, ranks, batch plan, steps,\n"
    "parameters, memory per rank, disk, files. Starts and writes nothing; needs no GPU.\n"
    "\n"
    "  --json   the same for machines\n"
    "\n"
    "Launch flags are those of `skein train`.\n";

constexpr const char* kStageNames[] = {"ddp", "zero1", "zero2", "zero3"};

std::string shown(int64_t bytes) { return shown_bytes(static_cast<uint64_t>(bytes)); }

void print_machine(const Outlook& outlook) {
  const auto& hardware = outlook.hardware;
  const auto gpus =
      hardware.gpus == 1 ? std::string("1 GPU") : fmt::format("{} GPUs", hardware.gpus);
  fmt::print("hardware  {} cores, {} of memory, {}\n", hardware.cores,
             shown_bytes(outlook.host_memory), hardware.gpus == 0 ? "no GPU" : gpus);
  fmt::print("launch    {}, OMP_NUM_THREADS={}\n", outlook.launch.summary,
             outlook.launch.omp_num_threads);
  std::vector<std::string> words;
  for (const auto& [key, value] : outlook.resolved) words.push_back(key + " " + value);
  fmt::print("resolved  {}\n\n{}\n", fmt::join(words, ", "), outlook.batches.table());
}

void print_data(const Outlook& outlook) {
  const auto& data = outlook.data;
  if (!data.problem.empty()) {
    fmt::print("data      {}\n", data.problem);
  } else {
    fmt::print("data      {} {}, {}, {}{} tokens, {} blocks to train on\n", data.files,
               data.files == 1 ? "file" : "files", shown_bytes(data.bytes),
               data.exact ? "" : "about ", shown_count(data.tokens), shown_count(data.blocks));
  }
  if (!outlook.steps) {
    fmt::print("steps     unknown: give max_steps, or data that can be counted\n");
    return;
  }
  const auto& steps = *outlook.steps;
  const auto every = [](int64_t count) {
    return count == 0 ? std::string("never") : fmt::format("every {}", count);
  };
  const auto epochs =
      steps.per_epoch == 0
          ? std::string("epochs unknown")
          : fmt::format("{} per epoch, {:.2f} epochs", shown_count(steps.per_epoch), steps.epochs);
  fmt::print("steps     {} ({}), {}\n", shown_count(steps.total), steps.origin, epochs);
  fmt::print("          warm-up {}, peak learning rate {}, log {}, evaluate {}, save {}\n",
             steps.warmup, outlook.peak_learning_rate, every(steps.log_every),
             every(steps.eval_every), every(steps.save_every));
}

void print_parameters(const Outlook& outlook) {
  const auto& shapes = outlook.shapes;
  fmt::print("model     {} parameters, all trainable, {} units\n", shown_count(shapes.numel()),
             shapes.units.size());
  // Blocks are alike: the first stands for all.
  int64_t blocks = 0, block_numel = 0;
  for (size_t i = 0; i < shapes.units.size(); ++i) {
    const auto numel = shapes.unit_numel(static_cast<int>(i));
    if (!shapes.units[i].root) {
      ++blocks;
      block_numel = numel;
    } else {
      fmt::print("          {}: {}\n", shapes.units[i].name, shown_count(numel));
    }
  }
  fmt::print("          {} blocks: {} each\n", blocks, shown_count(block_numel));
}

void print_memory(const Outlook& outlook) {
  fmt::print("\nmemory per rank, {} weights ({} ranks; * is this run)\n", outlook.dtype,
             outlook.batches.ranks);
  fmt::print("  {:<8}{:>11}{:>11}{:>11}{:>11}{:>13}{:>11}\n", "", "weights", "gradients", "states",
             "transient", "activations", "peak");
  for (size_t stage = 0; stage < outlook.flat.size(); ++stage) {
    const auto& flat = outlook.flat[stage];
    const bool mine = static_cast<int>(stage) == outlook.stage;
    fmt::print("{} {:<8}{:>11}{:>11}{:>11}{:>11}{:>13}{:>11}\n", mine ? "*" : " ",
               kStageNames[stage], shown(flat.weights), shown(flat.gradients), shown(flat.states),
               shown(flat.transient), "~ " + shown(outlook.activations.peak()),
               "~ " + shown(outlook.peaks[stage]));
  }
  fmt::print("  activations are an estimate: {} from forward to backward, {} for the head: {}\n",
             shown(outlook.activations.kept), shown(outlook.activations.head),
             outlook.activations.formula);
  fmt::print("  peak: not all of it is there at once\n\n");
}

void print_disk(const Outlook& outlook) {
  if (outlook.disk) {
    const auto& disk = *outlook.disk;
    fmt::print("disk      {} per checkpoint (model {}, optimizer {}), {} kept, {} in all",
               shown_bytes(disk.model_bytes + disk.optimizer_bytes), shown_bytes(disk.model_bytes),
               shown_bytes(disk.optimizer_bytes), disk.checkpoints, shown_bytes(disk.total_bytes));
    fmt::print("{}\n", disk.free_bytes ? "; free: " + shown_bytes(*disk.free_bytes) : "");
  }
  if (outlook.files.empty()) {
    fmt::print("files     none: give output_dir=FOLDER\n");
  } else {
    fmt::print("files     {}\n", fmt::join(outlook.files, "\n          "));
  }
}

void print_text(const Outlook& outlook) {
  print_machine(outlook);
  print_data(outlook);
  if (outlook.flat.empty()) {
    fmt::print("model     none: give model_name_or_path=FOLDER\n");
  } else {
    print_parameters(outlook);
    print_memory(outlook);
  }
  print_disk(outlook);
}

Json batch_json(const config::BatchPlan& batches) {
  const auto side = [](int64_t value, const std::string& origin) {
    return Json{{"value", value}, {"origin", origin}};
  };
  return {{"per_device", side(batches.per_device, batches.per_device_origin)},
          {"accumulation", side(batches.accumulation, batches.accumulation_origin)},
          {"ranks", side(batches.ranks, "launch")},
          {"global", side(batches.global, batches.global_origin)},
          {"tokens_per_step", batches.tokens_per_step}};
}

Json model_json(const Outlook& outlook) {
  Json units = Json::array(), memory = Json::array();
  for (size_t i = 0; i < outlook.shapes.units.size(); ++i) {
    const auto& unit = outlook.shapes.units[i];
    units.push_back({{"name", unit.name},
                     {"root", unit.root},
                     {"parameters", outlook.shapes.unit_numel(static_cast<int>(i))}});
  }
  for (size_t stage = 0; stage < outlook.flat.size(); ++stage) {
    const auto& flat = outlook.flat[stage];
    memory.push_back({{"stage", stage},
                      {"chosen", static_cast<int>(stage) == outlook.stage},
                      {"weights", flat.weights},
                      {"gradients", flat.gradients},
                      {"states", flat.states},
                      {"transient", flat.transient},
                      {"flat_peak", flat.peak()},
                      {"activations_estimate", outlook.activations.peak()},
                      {"peak_estimate", outlook.peaks[stage]}});
  }
  return {{"parameters", outlook.shapes.numel()},
          {"trainable", outlook.shapes.numel()},
          {"units", units},
          {"memory_per_rank", memory},
          {"activations_formula", outlook.activations.formula}};
}

Json steps_json(const Outlook& outlook) {
  if (!outlook.steps) return nullptr;
  const auto& steps = *outlook.steps;
  return {{"total", steps.total},
          {"origin", steps.origin},
          {"per_epoch", steps.per_epoch == 0 ? Json(nullptr) : Json(steps.per_epoch)},
          {"epochs", steps.per_epoch == 0 ? Json(nullptr) : Json(steps.epochs)},
          {"warmup", steps.warmup},
          {"log_every", steps.log_every},
          {"eval_every", steps.eval_every},
          {"save_every", steps.save_every},
          {"peak_learning_rate", outlook.peak_learning_rate}};
}

Json disk_json(const DiskOutlook& disk) {
  return {{"checkpoint_model_bytes", disk.model_bytes},
          {"checkpoint_optimizer_bytes", disk.optimizer_bytes},
          {"checkpoints", disk.checkpoints},
          {"total_bytes", disk.total_bytes},
          {"free_bytes", disk.free_bytes ? Json(*disk.free_bytes) : Json(nullptr)}};
}

void print_json(const Outlook& outlook) {
  Json resolved = Json::object();
  for (const auto& [key, value] : outlook.resolved) resolved[key] = value;
  const auto& data = outlook.data;
  const bool has_model = !outlook.flat.empty();
  const Json plan = {{"hardware",
                      {{"cores", outlook.hardware.cores},
                       {"gpus", outlook.hardware.gpus},
                       {"memory_bytes", outlook.host_memory}}},
                     {"launch",
                      {{"ranks", outlook.launch.size()},
                       {"device", outlook.launch.device == config::Device::kCuda ? "cuda" : "cpu"},
                       {"omp_num_threads", outlook.launch.omp_num_threads},
                       {"summary", outlook.launch.summary}}},
                     {"resolved", resolved},
                     {"batch", batch_json(outlook.batches)},
                     {"data",
                      {{"files", data.files},
                       {"bytes", data.bytes},
                       {"tokens", data.tokens},
                       {"exact", data.exact},
                       {"blocks", data.blocks},
                       {"problem", data.problem}}},
                     {"steps", steps_json(outlook)},
                     {"model", has_model ? model_json(outlook) : Json(nullptr)},
                     {"disk", outlook.disk ? disk_json(*outlook.disk) : Json(nullptr)},
                     {"files", outlook.files},
                     {"warnings", outlook.warnings}};
  fmt::print("{}\n", plan.dump(2));
}

}  // namespace

int run_plan_command(std::span<const std::string> arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", kUsage);
    return 0;
  }
  std::vector<std::string> words(arguments.begin(), arguments.end());
  const bool json = std::erase(words, "--json") > 0;
  const auto split = launch::split_launch_flags(words);
  check_flags(split.rest, {"json", "nproc-per-node", "num-gpus"});
  const auto resolved = config::load(split.rest);
  const auto device = resolved.config.parallel.device;
  const auto hardware = launch::look_at_hardware(/*ask_gpus=*/device != config::Device::kCpu);
  const auto plan = launch::detect({.flags = split.flags,
                                    .environment = launch::read_environment(),
                                    .hardware = hardware,
                                    .device = device,
                                    .cuda_build = SKEIN_HAS_CUDA});
  const auto outlook = look_ahead(resolved, hardware, plan);
  for (const auto& note : resolved.notes) fmt::print(stderr, "note: {}\n", note);
  for (const auto& warning : outlook.warnings) fmt::print(stderr, "warning: {}\n", warning);
  if (json) {
    print_json(outlook);
  } else {
    print_text(outlook);
  }
  return 0;
}

}  // namespace skein::cli
