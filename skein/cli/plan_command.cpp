// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "skein/cli/detect_run.h"
#include "skein/cli/flag_set.h"
#include "skein/cli/key_flags.h"
#include "skein/config/output_folder.h"
#include "skein/config/syntax/values.h"
#include "skein/core/amounts.h"
#include "skein/core/host_memory.h"
#include "skein/launch/ranks/lease.h"
#include "skein/plan/nothing_left.h"
#include "skein/plan/outlook.h"
#include "skein/plan/run_data.h"

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

struct Seen {
  DetectedRun run;
  plan::Machine machine;
  plan::Outlook outlook;
};

uint64_t memory_of_host() {
  return std::min(total_memory(), memory_limit().value_or(total_memory()));
}

std::string shown(int64_t bytes) { return shown_bytes(static_cast<uint64_t>(bytes)); }

void print_machine(const Seen& seen) {
  const auto& hardware = seen.run.hardware;
  const auto gpus =
      hardware.gpus == 1 ? std::string("1 GPU") : fmt::format("{} GPUs", hardware.gpus);
  fmt::print("hardware  {} cores, {} of memory, {}\n", hardware.cores,
             shown_bytes(seen.machine.memory.host), hardware.gpus == 0 ? "no GPU" : gpus);
  fmt::print("launch    {}, OMP_NUM_THREADS={}\n", seen.run.launch.summary,
             seen.run.launch.omp_num_threads);
  std::vector<std::string> words;
  for (const auto& [key, value] : seen.outlook.resolved) words.push_back(key + " " + value);
  fmt::print("resolved  {}\n\n{}\n", fmt::join(words, ", "), seen.outlook.batches.table());
}

// Which key decides how many steps there are?
const char* origin_of_steps(const config::RunConfig& config) {
  return config.schedule.max_steps > 0 ? "max_steps" : "num_train_epochs";
}

double epochs_of(const plan::RunPlan& steps) {
  return static_cast<double>(steps.total_steps) / static_cast<double>(steps.steps_per_epoch);
}

void print_continuation(const plan::Outlook& outlook) {
  if (!outlook.continues) return;
  const auto& found = *outlook.continues;
  const auto total = outlook.steps ? shown_count(outlook.steps->total_steps) : "unknown";
  if (found.nothing_left) {
    const auto steps = outlook.steps ? outlook.steps->total_steps : found.step;
    fmt::print("start     {}\n", plan::nothing_left_text(found.step, steps, found.ended_early));
  } else {
    fmt::print("start     continues {} at step {} of {}\n", found.checkpoint.string(),
               shown_count(found.step), total);
  }
}

std::string samples_text(const plan::DataOutlook& data, const config::RunConfig& config) {
  if (!plan::trains_on_rows(config)) return shown_count(data.blocks) + " blocks";
  auto rows = shown_count(data.rows) + " rows";
  if (!config.rows.packing) return rows;
  return fmt::format("{} in about {} packs of {}", rows, shown_count(data.packs),
                     shown_count(config.data.block_size));
}

void print_data(const plan::Outlook& outlook, const config::RunConfig& config) {
  const auto& data = outlook.data;
  if (data.files == 0) {
    fmt::print("data      none: give train_file=FILE\n");
  } else {
    fmt::print("data      {} {}, {}, {}{} tokens, {} to train on\n", data.files,
               data.files == 1 ? "file" : "files", shown_bytes(data.bytes),
               data.exact ? "" : "about ", shown_count(data.tokens), samples_text(data, config));
  }
  print_continuation(outlook);
  if (!outlook.steps) {
    fmt::print("steps     unknown: give max_steps, or data that can be counted\n");
    return;
  }
  const auto& steps = *outlook.steps;
  const auto every = [](int64_t count) {
    return count == 0 ? std::string("never") : fmt::format("every {}", count);
  };
  const auto epochs = steps.steps_per_epoch == 0
                          ? std::string("epochs unknown")
                          : fmt::format("{} per epoch, {:.2f} epochs",
                                        shown_count(steps.steps_per_epoch), epochs_of(steps));
  fmt::print("steps     {} ({}), {}\n", shown_count(steps.total_steps), origin_of_steps(config),
             epochs);
  fmt::print("          warm-up {}, peak learning rate {}, log {}, evaluate {}, save {}\n",
             steps.warmup_steps, outlook.peak_learning_rate, every(steps.log_every),
             every(steps.eval_every), every(steps.save_every));
}

std::string trainable_text(int64_t trainable, int64_t all) {
  if (trainable == all) return "all trainable";
  return fmt::format("trainable {} ({})", shown_count(trainable), shown_share(trainable, all));
}

void print_parameters(const plan::Shapes& shapes) {
  fmt::print("model     {} parameters, {}, {} units\n", shown_count(shapes.numel()),
             trainable_text(shapes.trainable_numel(), shapes.numel()), shapes.units.size());
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

void print_memory(const plan::Outlook& outlook) {
  const auto& model = *outlook.model;
  fmt::print("\nmemory per rank, {} weights ({} ranks; * is this run)\n", dtype_word(outlook.dtype),
             outlook.batches.ranks);
  fmt::print("  {:<8}{:>11}{:>11}{:>11}{:>11}{:>13}{:>11}\n", "", "weights", "gradients", "states",
             "transient", "activations", "peak");
  for (size_t stage = 0; stage < model.flat.size(); ++stage) {
    const auto& flat = model.flat[stage];
    const bool mine = static_cast<int>(stage) == outlook.stage;
    fmt::print("{} {:<8}{:>11}{:>11}{:>11}{:>11}{:>13}{:>11}\n", mine ? "*" : " ",
               config::to_text(plan::strategy_of(static_cast<int>(stage))), shown(flat.weights),
               shown(flat.gradients), shown(flat.states), shown(flat.transient),
               "~ " + shown(model.activations.peak()), "~ " + shown(model.peaks[stage]));
  }
  fmt::print("  activations are an estimate: {} from forward to backward, {} for the head: {}\n",
             shown(model.activations.kept), shown(model.activations.head),
             model.activations.formula);
  fmt::print("  peak: not all of it is there at once\n\n");
}

void print_disk(const plan::Outlook& outlook) {
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

void print_text(const Seen& seen, const config::RunConfig& config) {
  const auto& outlook = seen.outlook;
  print_machine(seen);
  print_data(outlook, config);
  if (!outlook.model) {
    fmt::print("model     none: give model_name_or_path=FOLDER\n");
  } else {
    print_parameters(outlook.model->shapes);
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

Json model_json(const plan::Outlook& outlook) {
  const auto& model = *outlook.model;
  Json units = Json::array(), memory = Json::array();
  for (size_t i = 0; i < model.shapes.units.size(); ++i) {
    const auto& unit = model.shapes.units[i];
    units.push_back({{"name", unit.name},
                     {"root", unit.root},
                     {"parameters", model.shapes.unit_numel(static_cast<int>(i))}});
  }
  for (size_t stage = 0; stage < model.flat.size(); ++stage) {
    const auto& flat = model.flat[stage];
    memory.push_back({{"stage", stage},
                      {"chosen", static_cast<int>(stage) == outlook.stage},
                      {"weights", flat.weights},
                      {"gradients", flat.gradients},
                      {"states", flat.states},
                      {"transient", flat.transient},
                      {"flat_peak", flat.peak()},
                      {"activations_estimate", model.activations.peak()},
                      {"peak_estimate", model.peaks[stage]}});
  }
  return {{"parameters", model.shapes.numel()},
          {"trainable", model.shapes.trainable_numel()},
          {"units", units},
          {"memory_per_rank", memory},
          {"activations_formula", model.activations.formula}};
}

Json steps_json(const plan::Outlook& outlook, const config::RunConfig& config) {
  if (!outlook.steps) return nullptr;
  const auto& steps = *outlook.steps;
  const bool known = steps.steps_per_epoch > 0;
  return {{"total", steps.total_steps},
          {"origin", origin_of_steps(config)},
          {"per_epoch", known ? Json(steps.steps_per_epoch) : Json(nullptr)},
          {"epochs", known ? Json(epochs_of(steps)) : Json(nullptr)},
          {"warmup", steps.warmup_steps},
          {"log_every", steps.log_every},
          {"eval_every", steps.eval_every},
          {"save_every", steps.save_every},
          {"peak_learning_rate", outlook.peak_learning_rate}};
}

Json continues_json(const plan::Outlook& outlook) {
  if (!outlook.continues) return nullptr;
  const auto& found = *outlook.continues;
  return {
      {"checkpoint", found.checkpoint.empty() ? Json(nullptr) : Json(found.checkpoint.string())},
      {"step", found.step},
      {"nothing_left", found.nothing_left}};
}

Json disk_json(const plan::DiskOutlook& disk) {
  return {{"checkpoint_model_bytes", disk.model_bytes},
          {"checkpoint_optimizer_bytes", disk.optimizer_bytes},
          {"checkpoints", disk.checkpoints},
          {"total_bytes", disk.total_bytes},
          {"free_bytes", disk.free_bytes ? Json(*disk.free_bytes) : Json(nullptr)}};
}

void print_json(const Seen& seen, const config::RunConfig& config) {
  const auto& outlook = seen.outlook;
  Json resolved = Json::object();
  for (const auto& [key, value] : outlook.resolved) resolved[key] = value;
  const auto& data = outlook.data;
  const Json plan = {{"hardware",
                      {{"cores", seen.run.hardware.cores},
                       {"gpus", seen.run.hardware.gpus},
                       {"gpus_have_bfloat16", seen.run.hardware.gpus_have_bfloat16},
                       {"memory_bytes", seen.machine.memory.host}}},
                     {"launch",
                      {{"ranks", seen.run.launch.size()},
                       {"device", config::to_text(seen.machine.place.device)},
                       {"omp_num_threads", seen.run.launch.omp_num_threads},
                       {"summary", seen.run.launch.summary}}},
                     {"resolved", resolved},
                     {"batch", batch_json(outlook.batches)},
                     {"data",
                      {{"files", data.files},
                       {"bytes", data.bytes},
                       {"tokens", data.tokens},
                       {"exact", data.exact},
                       {"blocks", data.blocks},
                       {"rows", data.rows},
                       {"packs", data.packs}}},
                     {"continues", continues_json(outlook)},
                     {"steps", steps_json(outlook, config)},
                     {"model", outlook.model ? model_json(outlook) : Json(nullptr)},
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
  bool json = false;
  FlagSet flags("skein plan");
  flags.add("json", json);
  const auto words = flags.read(arguments, FlagSet::Unknown::kKeep);
  const auto split = launch::split_launch_flags(words);
  check_flags(split.rest, {"json"});
  const auto resolved = config::load(split.rest);
  Seen seen{.run = detect_run(split.flags, launch::read_environment(), resolved.config.parallel)};
  const auto& launch = seen.run.launch;
  seen.machine = {.ranks = launch.size(),
                  .local_ranks = launch.foreign ? launch.foreign->local_size : launch.local_ranks,
                  .place = seen.run.place(),
                  .memory = {.host = memory_of_host(), .gpu = seen.run.hardware.gpu_memory}};
  const auto output = config::output_folder(resolved.config.checkpoint);
  if (!output.empty()) launch::check_lease(output);
  seen.outlook = plan::look_ahead(resolved, seen.machine);
  auto& warnings = seen.outlook.warnings;
  warnings.insert(warnings.begin(), launch.warnings.begin(), launch.warnings.end());
  for (const auto& note : resolved.notes) fmt::print(stderr, "note: {}\n", note);
  for (const auto& warning : warnings) fmt::print(stderr, "warning: {}\n", warning);
  if (json) {
    print_json(seen, resolved.config);
  } else {
    print_text(seen, resolved.config);
  }
  return 0;
}

}  // namespace skein::cli
