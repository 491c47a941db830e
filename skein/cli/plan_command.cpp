// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "skein/cli/detect_run.h"
#include "skein/cli/flag_set.h"
#include "skein/cli/key_flags.h"
#include "skein/config/output_folder.h"
#include "skein/config/syntax/suggest.h"
#include "skein/config/syntax/values.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/launch/ranks/lease.h"
#include "skein/plan/finetune.h"
#include "skein/plan/nothing_left.h"
#include "skein/plan/outlook.h"
#include "skein/plan/run_data.h"
#include "skein/plan/scaling/scaling.h"
#include "skein/report/gpu_table.h"

namespace skein::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "skein plan [CONFIG.yaml] [key=value ...] [launch flags] [--gpu NAME] [--json]\n"
    "\n"
    "What `skein train` would do with the same words: hardware, ranks, batch plan, steps,\n"
    "parameters, memory per rank, disk, files. Starts and writes nothing; needs no GPU.\n"
    "\n"
    "  --gpu NAME        as if there were such GPUs (T4, A100, H100, …), with their step time and\n"
    "                    scaling; --nproc-per-node N of them on each of --nnodes N machines;\n"
    "                    what is wrong with this machine's disks is a warning then\n"
    "  --gpu-memory GiB  of each, where a card has another than the table\n"
    "  --host-memory GiB of each machine with --gpu; without it, what this one has\n"
    "  --mfu 0.45        the share of the GPU's peak that is computed with\n"
    "  --compute-ms MS   a step on one rank as measured, instead; also for ranks on CPUs\n"
    "  --link-gbit 100   what a machine sends to others, in Gbit/s\n"
    "  --json            the same for machines\n"
    "\n"
    "Launch flags are those of `skein train`.\n";

// What a step is predicted from.
struct PlanFlags {
  bool json = false;
  std::optional<std::string> gpu;
  std::optional<double> mfu, compute_ms, link_gbit, gpu_memory, host_memory;
};

struct Seen {
  DetectedRun run;
  plan::Machine machine;
  plan::Outlook outlook;
  std::shared_ptr<const report::GpuModel> gpu = {};  // --gpu
  std::optional<plan::StepQuestion> question = {};   // absent: too little is known
  plan::WorldShape world = {};
};

std::string shown(int64_t bytes) { return shown_bytes(static_cast<uint64_t>(bytes)); }

void print_machine(const Seen& seen) {
  const auto& hardware = seen.run.hardware;
  const auto gpus =
      hardware.gpus == 1 ? std::string("1 GPU") : fmt::format("{} GPUs", hardware.gpus);
  if (seen.gpu != nullptr) {
    fmt::print(
        "hardware  as if: {} with {} each, {} TFLOP/s, {} GB/s (--gpu); {} of host memory{}\n",
        seen.world.size() == 1 ? fmt::format("1 {}", seen.gpu->name)
                               : fmt::format("{} x {}", seen.world.size(), seen.gpu->name),
        shown_bytes(seen.gpu->bytes()), seen.gpu->flops(seen.outlook.dtype) / 1e12,
        seen.gpu->memory_rate, shown_bytes(seen.machine.memory.host), seen.machine.host_note);
  } else {
    fmt::print("hardware  {} cores, {} of memory, {}\n", hardware.cores,
               shown_bytes(seen.machine.memory.host), hardware.gpus == 0 ? "no GPU" : gpus);
  }
  fmt::print("launch    {}, OMP_NUM_THREADS={}\n", seen.run.launch.summary,
             seen.run.launch.omp_num_threads);
  std::vector<std::string> words;
  for (const auto& [key, value] : seen.outlook.resolved) words.push_back(key + " " + value);
  fmt::print("resolved  {}\n", fmt::join(words, ", "));
  for (const auto& reason : seen.outlook.reasons) fmt::print("          {}\n", reason);
  fmt::print("\n{}\n", seen.outlook.batches.table());
  if (seen.outlook.rollout) fmt::print("{}\n\n", seen.outlook.rollout->line());
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
  const bool online = config::is_online(config.stage);
  auto rows = shown_count(data.rows) + (online ? " prompts" : " rows");
  if (online) return rows;
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

// What a rank writes of a checkpoint, and holds in host memory while it does.
uint64_t saved_by_rank(const plan::Outlook& outlook) {
  const auto ranks = static_cast<uint64_t>(outlook.batches.ranks);
  const auto& disk = *outlook.disk;
  return (disk.model_bytes + disk.optimizer_bytes + disk.critic_bytes) / ranks;
}

// Of what lies on a disk so much passes at a time (docs/offload.md).
uint64_t host_while_saving(const plan::Outlook& outlook) {
  constexpr uint64_t kPassing = uint64_t{128} << 20;
  const auto& offload = outlook.model->choice.offload;
  const auto ranks = static_cast<uint64_t>(outlook.batches.ranks);
  const auto share = [&](uint64_t bytes, bool on_disk, double part) {
    const auto own = bytes / ranks;
    if (!on_disk) return own;
    return std::min(own, static_cast<uint64_t>((1 - part) * static_cast<double>(own)) + kPassing);
  };
  const bool states = offload.any() && offload.states == Medium::kDisk;
  return share(outlook.disk->model_bytes, offload.parameters == Medium::kDisk, 1) +
         share(outlook.disk->optimizer_bytes + outlook.disk->critic_bytes, states, offload.ratio);
}

void print_memory(const plan::Outlook& outlook) {
  const auto& model = *outlook.model;
  fmt::print("\nmemory per rank, {} weights ({} ranks; * is this run)\n", dtype_word(outlook.dtype),
             outlook.batches.ranks);
  fmt::print("  {:<7}{:>11}{:>11}{:>11}{:>11}{:>13}{:>11}{:>10}{:>12}\n", "", "weights",
             "gradients", "states", "transient", "activations", "head", "margin", "needs");
  for (size_t stage = 0; stage < model.stages.size(); ++stage) {
    const auto& bytes = model.stages[stage];
    const bool mine = static_cast<int>(stage) == outlook.stage;
    const auto& activations = bytes.activations;
    fmt::print("{} {:<7}{:>11}{:>11}{:>11}{:>11}{:>13}{:>11}{:>10}{:>12}\n", mine ? "*" : " ",
               config::to_text(plan::strategy_of(static_cast<int>(stage))),
               shown(bytes.flat.weights), shown(bytes.flat.gradients), shown(bytes.flat.states),
               shown(bytes.flat.transient), "~ " + shown(activations.kept),
               shown(activations.peak() - activations.kept), shown(bytes.margin),
               "~ " + shown(bytes.needed()));
  }
  fmt::print(
      "  states: the optimizer's, with master weights; transient: gathered units, gradients on "
      "their way\n");
  fmt::print("  activations are an estimate: {}\n", model.stages[0].activations.formula);
  fmt::print("  needs: not all of it is there at once\n");
  const auto& own = model.stages[static_cast<size_t>(outlook.stage)];
  if (own.reference > 0) {
    fmt::print("  needs holds a frozen reference too: {}\n", shown(own.reference));
  }
  if (own.reward > 0) fmt::print("  needs holds a reward model too: {}\n", shown(own.reward));
  if (own.critic > 0) {
    fmt::print("  needs holds a critic too, with gradients and states: {}\n", shown(own.critic));
  }
  if (own.cache > 0) {
    fmt::print("  while answers are written: at least {} of keys and values\n", shown(own.cache));
  }
  if (own.flat.host > 0) {
    fmt::print("  offloaded, beside it: {} of host memory per rank\n", shown(own.flat.host));
  }
  if (own.flat.disk > 0) {
    fmt::print("  offloaded, on the disk of nvme_path: {} per rank\n", shown(own.flat.disk));
  }
  if (const auto host = own.activations.host; host > 0) {
    fmt::print("  beside it ~ {} of host memory: inputs of blocks (offload_activations)\n",
               shown(host));
  }
  if (outlook.disk) {
    fmt::print("  beside it {} of host memory while a checkpoint is written: a rank's share\n",
               shown_bytes(host_while_saving(outlook)));
  }
  fmt::print("\n");
}

std::string shown_seconds(double seconds) {
  return seconds < 1 ? fmt::format("{:.0f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

std::string shown_world(const plan::WorldShape& world, double gbit) {
  const auto ranks = world.nodes == 1 ? fmt::format("{}", world.ranks_per_node)
                                      : fmt::format("{} x {}", world.nodes, world.ranks_per_node);
  return world.nodes == 1 ? ranks : fmt::format("{} at {:g} Gbit/s", ranks, gbit);
}

void print_row(const std::string& world, const plan::StepTime& time, const char* mark) {
  fmt::print("{} {:<22}{:>10}{:>10}{:>16}{:>12}{:>11.0f} %\n", mark, world,
             shown_seconds(time.seconds()), shown_seconds(time.work.seconds()),
             shown_seconds(time.communication), shown_seconds(time.exposed),
             100 * time.efficiency());
}

std::string basis_of(const plan::StepQuestion& question) {
  if (question.compute_seconds > 0) return "the measured step (--compute-ms)";
  return fmt::format("{:g} % of the peak (--mfu)", 100 * question.utilisation);
}

void print_scaling(const Seen& seen) {
  if (!seen.question || !seen.outlook.model) return;
  const auto& model = *seen.outlook.model;
  const auto& question = *seen.question;
  const auto own = plan::predict_step(model.shapes, model.dimensions, question, seen.world);
  if (!std::isfinite(own.seconds())) {
    fmt::print("step time: none is predicted, the GPU has no arithmetic of this dtype\n\n");
    return;
  }
  if (seen.outlook.rollout) {
    fmt::print("of one update; a step has {} and writes its answers before them\n",
               counted(static_cast<uint64_t>(seen.outlook.rollout->updates_per_step), "update"));
  }
  fmt::print("step time, predicted from {}, {}, {} rows x {} per rank (* is this run)\n",
             basis_of(question), config::to_text(plan::strategy_of(question.choice.stage)),
             question.choice.per_device, question.choice.accumulation);
  fmt::print("  {:<22}{:>10}{:>10}{:>16}{:>12}{:>13}\n", "ranks", "step", "compute",
             "communication", "not hidden", "efficiency");
  print_row(shown_world(seen.world, question.link_gbit), own, "*");
  for (const auto& row : plan::predict_scaling(model.shapes, model.dimensions, question)) {
    print_row(shown_world(row.world, row.link_gbit), row.time, " ");
  }
  if (question.choice.offload.any()) {
    fmt::print("  without the time that offload adds (docs/offload.md)\n");
  }
  fmt::print("\n");
}

void print_disk(const plan::Outlook& outlook) {
  if (outlook.disk) {
    const auto& disk = *outlook.disk;
    fmt::print(
        "disk      {} per checkpoint (model {}, optimizer {}{}; {} by each rank), {} kept, {} in "
        "all",
        shown_bytes(disk.model_bytes + disk.optimizer_bytes + disk.critic_bytes),
        shown_bytes(disk.model_bytes), shown_bytes(disk.optimizer_bytes),
        disk.critic_bytes > 0 ? ", critic " + shown_bytes(disk.critic_bytes) : "",
        shown_bytes(saved_by_rank(outlook)), disk.checkpoints, shown_bytes(disk.total_bytes));
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
    print_scaling(seen);
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

Json rollout_json(const plan::Outlook& outlook) {
  if (!outlook.rollout) return nullptr;
  const auto& rollout = *outlook.rollout;
  return {{"prompts", rollout.prompts},         {"generations", rollout.generations},
          {"completions", rollout.completions}, {"mini_batches", rollout.mini_batches},
          {"iterations", rollout.iterations},   {"updates_per_step", rollout.updates_per_step},
          {"most_tokens", rollout.most_tokens}};
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
  for (size_t stage = 0; stage < model.stages.size(); ++stage) {
    const auto& [flat, activations, reference, reward, critic, cache, peak, margin, host] =
        model.stages[stage];
    memory.push_back({{"stage", stage},
                      {"chosen", static_cast<int>(stage) == outlook.stage},
                      {"weights", flat.weights},
                      {"gradients", flat.gradients},
                      {"states", flat.states},
                      {"transient", flat.transient},
                      {"flat_peak", flat.peak()},
                      {"reference", reference},
                      {"reward_model", reward},
                      {"critic", critic},
                      {"cache_at_least", cache},
                      {"offloaded_host", flat.host},
                      {"offloaded_disk", flat.disk},
                      {"activations_kept", activations.kept},
                      {"activations_on_host", activations.host},
                      {"head", activations.peak() - activations.kept},
                      {"activations_estimate", activations.peak()},
                      {"peak_estimate", peak},
                      {"margin", margin},
                      {"needed", peak + margin}});
  }
  return {{"parameters", model.shapes.numel()},
          {"trainable", model.shapes.trainable_numel()},
          {"units", units},
          {"memory_per_rank", memory},
          {"fits", model.fits},
          {"activations_formula", model.stages[0].activations.formula}};
}

Json time_json(const plan::WorldShape& world, double gbit, const plan::StepTime& time) {
  return {{"nodes", world.nodes},
          {"ranks_per_node", world.ranks_per_node},
          {"link_gbit", world.nodes == 1 ? Json(nullptr) : Json(gbit)},
          {"step_seconds", time.seconds()},
          {"compute_seconds", time.work.seconds()},
          {"communication_seconds", time.communication},
          {"exposed_seconds", time.exposed},
          {"efficiency", time.efficiency()}};
}

Json prediction_json(const Seen& seen) {
  if (!seen.question || !seen.outlook.model) return nullptr;
  const auto& model = *seen.outlook.model;
  const auto& question = *seen.question;
  Json scaling = Json::array();
  for (const auto& row : plan::predict_scaling(model.shapes, model.dimensions, question)) {
    scaling.push_back(time_json(row.world, row.link_gbit, row.time));
  }
  const auto own = plan::predict_step(model.shapes, model.dimensions, question, seen.world);
  return {{"step", time_json(seen.world, question.link_gbit, own)}, {"scaling", scaling}};
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

Json disk_json(const plan::Outlook& outlook) {
  const auto& disk = *outlook.disk;
  return {{"checkpoint_model_bytes", disk.model_bytes},
          {"checkpoint_optimizer_bytes", disk.optimizer_bytes},
          {"checkpoint_critic_bytes", disk.critic_bytes},
          {"checkpoint_bytes_per_rank", saved_by_rank(outlook)},
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
                     {"reasons", outlook.reasons},
                     {"batch", batch_json(outlook.batches)},
                     {"rollout", rollout_json(outlook)},
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
                     {"prediction", prediction_json(seen)},
                     {"disk", outlook.disk ? disk_json(outlook) : Json(nullptr)},
                     {"files", outlook.files},
                     {"warnings", outlook.warnings}};
  fmt::print("{}\n", plan.dump(2));
}

// A number that a flag is given, above 0.
double positive(const std::optional<double>& given, double otherwise, const char* flag,
                double most) {
  if (!given) return otherwise;
  if (*given > 0 && *given <= most) return *given;
  throw UserError(fmt::format("{} must be above 0 and at most {:g}, not {:g}", flag, most, *given));
}

std::string near_gpu(const std::string& name) {
  std::vector<std::string> names;
  std::istringstream list(report::known_gpus());
  for (std::string one; std::getline(list >> std::ws, one, ',');) names.push_back(one);
  return config::did_you_mean(name, names);
}

// Flags that say something of a GPU that is named.
void check_gpu_flags(const PlanFlags& flags) {
  const auto need_gpu = [](bool given, const char* flag, const char* what) {
    if (!given) return;
    throw UserError(fmt::format("{} {}: give --gpu NAME too", flag, what));
  };
  if (flags.gpu) return;
  need_gpu(flags.mfu && !flags.compute_ms, "--mfu", "is a share of a GPU's peak");
  need_gpu(flags.gpu_memory.has_value(), "--gpu-memory", "is that of a GPU which is not here");
  need_gpu(flags.host_memory.has_value(), "--host-memory",
           "is that of a machine which is not here");
}

std::shared_ptr<const report::GpuModel> asked_gpu(const PlanFlags& flags, config::Device device) {
  check_gpu_flags(flags);
  if (!flags.gpu) return nullptr;
  if (device == config::Device::kCpu) {
    throw UserError("--gpu plans for GPUs, but device is cpu: drop one");
  }
  const auto* found = report::find_gpu(*flags.gpu);
  if (found == nullptr) {
    throw UserError(fmt::format("--gpu {} is not in the table: one of {}{}", *flags.gpu,
                                report::known_gpus(), near_gpu(*flags.gpu)));
  }
  auto gpu = *found;
  gpu.gib = positive(flags.gpu_memory, gpu.gib, "--gpu-memory", 1e6);
  return std::make_shared<report::GpuModel>(gpu);
}

// As if the GPUs were there, on this machine and, with --nnodes, on others.
DetectedRun assume_gpus(const report::GpuModel& gpu, launch::LaunchFlags flags) {
  const auto& asked = flags.nproc_per_node ? flags.nproc_per_node : flags.num_gpus;
  const auto number = config::parse_integer(asked.value_or("1"));
  if (flags.nnodes.value_or(flags.num_nodes.value_or(1)) > 1 && !flags.hostfile) {
    if (!flags.node_rank) flags.node_rank = 0;
    if (!flags.master_addr && !flags.rdzv_endpoint) flags.master_addr = "127.0.0.1";
  }
  DetectedRun run{.hardware = launch::look_at_hardware(/*ask_gpus=*/false)};
  run.hardware.gpus = static_cast<int>(std::clamp<int64_t>(number.value_or(1), 1, 1024));
  run.hardware.gpus_have_bfloat16 = gpu.has_bfloat16();
  run.hardware.gpu_memory = gpu.bytes();
  run.hardware.gpu_problem.clear();
  run.launch = launch::detect({.flags = std::move(flags),
                               .environment = {},
                               .hardware = run.hardware,
                               .device = config::Device::kCuda,
                               .cuda_build = true});
  return run;
}

std::optional<plan::StepQuestion> step_question(const Seen& seen, const PlanFlags& flags,
                                                const config::OptimizerConfig& optimizer) {
  plan::StepQuestion question{
      .dtype = seen.outlook.dtype,
      .gpu = seen.gpu.get(),
      .utilisation = positive(flags.mfu, 0.45, "--mfu", 1),
      .compute_seconds = positive(flags.compute_ms, 0, "--compute-ms", 1e9) / 1e3,
      .link_gbit = positive(flags.link_gbit, 100, "--link-gbit", 1e6)};
  const bool known = seen.gpu != nullptr || question.compute_seconds > 0;
  if (!seen.outlook.model || !known) return std::nullopt;
  question.choice = seen.outlook.model->choice;
  question.tokens = seen.outlook.model->tokens;
  const bool wide = plan::has_wide_gradients(optimizer, seen.outlook.batches);
  question.gradient_bytes =
      static_cast<int64_t>(dtype_bytes(plan::gradient_dtype(question.dtype, wide)));
  question.state_bytes = plan::state_bytes_each(optimizer, question.dtype);
  return question;
}

Seen look(const config::Resolved& resolved, const launch::LaunchFlags& launch_flags,
          const PlanFlags& flags) {
  const auto& parallel = resolved.config.parallel;
  Seen seen{.run = {}, .machine = {}, .outlook = {}, .gpu = asked_gpu(flags, parallel.device)};
  seen.run = seen.gpu != nullptr ? assume_gpus(*seen.gpu, launch_flags)
                                 : detect_run(launch_flags, launch::read_environment(), parallel);
  seen.machine = seen.run.machine();
  if (seen.gpu != nullptr) {
    seen.machine.place.has_nccl = true;
    seen.machine.is_here = false;
    auto& host = seen.machine.memory.host;
    seen.machine.host_note = flags.host_memory ? "" : " (this machine's: --host-memory GiB)";
    const auto gib = static_cast<double>(host) * 0x1p-30;
    host = static_cast<uint64_t>(positive(flags.host_memory, gib, "--host-memory", 1e9) * 0x1p30);
  }
  seen.world = {std::max(1, seen.machine.ranks / seen.machine.local_ranks),
                seen.machine.local_ranks};
  const auto output = config::output_folder(resolved.config.checkpoint);
  if (!output.empty()) launch::check_lease(output);
  seen.outlook = plan::look_ahead(resolved, seen.machine);
  seen.question = step_question(seen, flags, resolved.config.optimizer);
  return seen;
}

}  // namespace

int run_plan_command(std::span<const std::string> arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", kUsage);
    return 0;
  }
  PlanFlags own;
  FlagSet flags("skein plan");
  flags.add("json", own.json);
  flags.add("gpu", own.gpu);
  flags.add("mfu", own.mfu);
  flags.add("compute-ms", own.compute_ms);
  flags.add("link-gbit", own.link_gbit);
  flags.add("gpu-memory", own.gpu_memory);
  flags.add("host-memory", own.host_memory);
  const auto words = flags.read(arguments, FlagSet::Unknown::kKeep);
  const auto split = launch::split_launch_flags(words);
  check_flags(split.rest,
              {"json", "gpu", "mfu", "compute-ms", "link-gbit", "gpu-memory", "host-memory"});
  auto resolved = config::load(split.rest);
  plan::take_adapter_tokenizer(resolved);
  auto seen = look(resolved, split.flags, own);
  auto& warnings = seen.outlook.warnings;
  const auto& of_launch = seen.run.launch.warnings;
  warnings.insert(warnings.begin(), of_launch.begin(), of_launch.end());
  for (const auto& note : resolved.notes) fmt::print(stderr, "note: {}\n", note);
  for (const auto& warning : warnings) fmt::print(stderr, "warning: {}\n", warning);
  if (own.json) {
    print_json(seen, resolved.config);
  } else {
    print_text(seen, resolved.config);
  }
  return 0;
}

}  // namespace skein::cli
