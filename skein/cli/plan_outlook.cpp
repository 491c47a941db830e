// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/plan_outlook.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "skein/config/output_folder.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/data/blocks.h"
#include "skein/data/prepare.h"
#include "skein/data/source_files.h"
#include "skein/data/token_file.h"
#include "skein/optim/states.h"
#include "skein/plan/disk_space.h"
#include "skein/text/text_codec.h"

namespace skein::cli {
namespace {

using config::DType;

uint64_t memory_of_host() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
}

// Below 1: a share of all steps, as in HF.
int64_t interval(double value, int64_t total) {
  const double steps = value < 1 ? std::ceil(value * static_cast<double>(total)) : value;
  return std::max<int64_t>(1, static_cast<int64_t>(steps));
}

DType working_dtype(DType asked, config::Device device) {
  if (asked != DType::kAuto) return asked;
  return device == config::Device::kCuda ? DType::kBFloat16 : DType::kFloat32;
}

int64_t bytes_of(DType dtype) {
  return dtype == DType::kBFloat16 ? 2 : dtype == DType::kFloat64 ? 8 : 4;
}

const char* name_of(DType dtype) {
  return dtype == DType::kBFloat16 ? "bfloat16" : dtype == DType::kFloat64 ? "float64" : "float32";
}

int stage_of(config::Strategy strategy) {
  return strategy == config::Strategy::kAuto ? 0 : static_cast<int>(strategy) - 1;
}

// Tokens per byte of the first 256 KiB of text.
double density(const text::TextCodec& codec, const fs::path& path, uint64_t size) {
  constexpr uint64_t kSample = uint64_t{256} << 10;
  std::string text(std::min(size, kSample), '\0');
  File::open_to_read(path).read_at(0, std::as_writable_bytes(std::span(text)));
  // A sample may end inside a character, and a tokenizer takes whole ones.
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0) text.pop_back();
  if (text.empty()) return 1;
  std::vector<uint32_t> tokens;
  codec.encode(text, tokens);
  return static_cast<double>(tokens.size()) / static_cast<double>(text.size());
}

void count_text(const config::RunConfig& config, const data::Sources& sources,
                DataOutlook& outlook) {
  const auto codec = text::open_codec(config.model);
  const bool by_bytes = codec->is_bytes();
  outlook.exact = by_bytes;
  double tokens = 0, rate = 0;
  for (const auto& path : sources.files) {
    const auto size = fs::file_size(path);
    outlook.bytes += size;
    const bool plain = by_bytes && path.extension() != ".jsonl";
    if (!plain) outlook.exact = false;
    if (!plain && rate == 0) rate = density(*codec, path, size);
    tokens += static_cast<double>(size) * (plain ? 1 : rate) + 1;
  }
  outlook.tokens = static_cast<int64_t>(tokens);
}

void count_blocks(const config::RunConfig& config, DataOutlook& outlook) {
  const data::Blocks blocks(outlook.tokens, config.data.block_size);
  const bool evaluates = config.eval.eval_strategy != config::EvalStrategy::kNo;
  const auto seed = static_cast<uint64_t>(config.data_seed.value_or(config.seed));
  outlook.blocks = data::samples_of(config.data, blocks.count(), data::Split::kTrain,
                                    data::held_out_percentage(config.data, evaluates), seed)
                       .count();
}

DataOutlook look_at_data(const config::RunConfig& config) {
  DataOutlook outlook;
  try {
    const auto sources = data::find_sources(config.data, data::Split::kTrain);
    outlook.files = sources.files.size();
    if (sources.files.empty()) {
      outlook.problem = "no train_file is given";
      return outlook;
    }
    if (sources.kind == data::SourceKind::kTokens) {
      outlook.exact = true;
      for (const auto& path : sources.files) {
        outlook.bytes += fs::file_size(path);
        outlook.tokens += static_cast<int64_t>(data::locate_tokens(path).count);
      }
    } else {
      count_text(config, sources, outlook);
    }
    count_blocks(config, outlook);
  } catch (const std::exception& error) {
    outlook.problem = error.what();
  }
  return outlook;
}

std::optional<StepsOutlook> count_steps(const config::RunConfig& config,
                                        const config::BatchPlan& batches, const DataOutlook& data) {
  const auto& schedule = config.schedule;
  StepsOutlook steps;
  if (data.blocks > 0) {
    const bool drop = config.data.dataloader_drop_last;
    steps.per_epoch = (data.blocks + (drop ? 0 : batches.global - 1)) / batches.global;
  }
  if (schedule.max_steps > 0) {
    steps.total = schedule.max_steps;
    steps.origin = "max_steps";
  } else if (steps.per_epoch > 0) {
    steps.total = static_cast<int64_t>(
        std::ceil(schedule.num_train_epochs * static_cast<double>(steps.per_epoch)));
    steps.origin = "num_train_epochs";
  } else {
    return std::nullopt;
  }
  if (steps.per_epoch > 0) {
    steps.epochs = static_cast<double>(steps.total) / static_cast<double>(steps.per_epoch);
  }
  const double warmup = schedule.warmup_steps > 0 ? schedule.warmup_steps : schedule.warmup_ratio;
  if (schedule.warmup_steps >= 1 || warmup > 0) steps.warmup = interval(warmup, steps.total);
  steps.log_every = interval(config.log.logging_steps, steps.total);
  const auto every = [&](auto strategy, double value) -> int64_t {
    using Strategy = decltype(strategy);
    if (strategy == Strategy::kNo) return 0;
    return strategy == Strategy::kEpoch ? steps.per_epoch : interval(value, steps.total);
  };
  steps.save_every = every(config.checkpoint.save_strategy, config.checkpoint.save_steps);
  const auto& eval = config.eval;
  steps.eval_every =
      every(eval.eval_strategy, eval.eval_steps > 0 ? eval.eval_steps : config.log.logging_steps);
  return steps;
}

DiskOutlook count_disk(const config::RunConfig& config, const plan::Shapes& shapes, DType dtype,
                       const std::optional<StepsOutlook>& steps) {
  const auto bytes = plan::checkpoint_bytes(shapes, config.optimizer, dtype);
  const auto optimizer = config.checkpoint.save_only_model ? 0 : bytes.optimizer;
  DiskOutlook disk{.model_bytes = bytes.model, .optimizer_bytes = optimizer};
  if (steps && steps->save_every > 0) {
    disk.checkpoints = (steps->total + steps->save_every - 1) / steps->save_every;
    disk.checkpoints =
        std::min(disk.checkpoints, config.checkpoint.save_total_limit.value_or(disk.checkpoints));
  }
  disk.total_bytes = disk.model_bytes + static_cast<uint64_t>(disk.checkpoints) *
                                            (disk.model_bytes + disk.optimizer_bytes);
  disk.free_bytes = plan::free_space(config::output_folder(config.checkpoint));
  return disk;
}

std::vector<std::string> files_to_write(const config::RunConfig& config,
                                        const std::optional<StepsOutlook>& steps) {
  const auto folder = config::output_folder(config.checkpoint);
  if (folder.empty()) return {};
  std::vector<std::string> names = {"config.yaml",       "trainer_log.jsonl", "trainer_state.json",
                                    "logs/training.log", "logs/rank-K.log",   "training_loss.svg"};
  for (const auto& reporter : config.log.report_to) {
    names.push_back(reporter == "wandb" ? "wandb/offline-run-…" : "runs/events.out.tfevents…");
  }
  if (steps && steps->save_every > 0) {
    names.insert(names.end(), {"checkpoint-STEP/", "latest"});
  }
  names.insert(names.end(), {"model.safetensors", "config.json"});
  for (auto& name : names) name = (folder / name).string();
  return names;
}

// A run without `device: cuda` in its launch has no NCCL.
void resolve_autos(const config::RunConfig& config, Outlook& outlook) {
  const bool cuda = outlook.launch.device == config::Device::kCuda;
  const auto add = [&](const char* key, std::string value) {
    outlook.resolved.emplace_back(key, std::move(value));
  };
  add("device", cuda ? "cuda" : "cpu");
  add("dtype", outlook.dtype);
  add("distributed_strategy", outlook.stage == 0 ? "ddp" : fmt::format("zero{}", outlook.stage));
  const auto& backend = config.parallel.ddp_backend;
  add("ddp_backend", backend != "auto" ? backend : cuda ? "nccl" : "gloo");
  add("data_seed", fmt::format("{}", config.data_seed.value_or(config.seed)));
  add("gradients", outlook.gradient_bytes == 2   ? "bfloat16"
                   : outlook.gradient_bytes == 8 ? "float64"
                                                 : "float32");
}

double scaled_learning_rate(const config::RunConfig& config, const config::BatchPlan& batches) {
  const auto& schedule = config.schedule;
  const double base = schedule.lr_scaling_base_batch > 0
                          ? static_cast<double>(schedule.lr_scaling_base_batch)
                          : static_cast<double>(batches.per_device * batches.accumulation);
  const double ratio = static_cast<double>(batches.global) / base;
  const double rate = config.optimizer.learning_rate;
  switch (schedule.lr_scaling) {
    case config::LrScaling::kLinear:
      return rate * ratio;
    case config::LrScaling::kSqrt:
      return rate * std::sqrt(ratio);
    case config::LrScaling::kNone:
      break;
  }
  return rate;
}

void measure_model(const config::RunConfig& config, DType dtype, Outlook& outlook) {
  const auto architecture = plan::read_hf_config(config.model.model_name_or_path);
  const auto dimensions = plan::dimensions_of(architecture);
  outlook.shapes = plan::shapes_of(architecture);
  plan::MemoryQuestion question{
      .ranks = outlook.batches.ranks,
      .weight_bytes = bytes_of(dtype),
      .gradient_bytes = outlook.gradient_bytes,
      .state_bytes = optim::state_bytes(config.optimizer, bytes_of(dtype)),
      .micro_batches = outlook.batches.accumulation,
      .rows = outlook.batches.per_device,
      .tokens = config.data.block_size,
      .recompute = config.model.gradient_checkpointing,
      .cuda = outlook.launch.device == config::Device::kCuda};
  outlook.activations = plan::activation_bytes(outlook.shapes, dimensions, question);
  for (question.stage = 0; question.stage <= 3; ++question.stage) {
    outlook.flat.push_back(plan::flat_bytes(outlook.shapes, question));
    outlook.peaks.push_back(plan::step_peak(outlook.flat.back(), outlook.activations, question));
  }
  const auto shortage =
      plan::memory_shortage(outlook.peaks[static_cast<size_t>(outlook.stage)], question,
                            {.host = outlook.host_memory, .gpu = outlook.hardware.gpu_memory});
  if (!shortage.empty()) outlook.warnings.push_back(shortage);
  if (dimensions.positions > 0 && config.data.block_size > dimensions.positions) {
    outlook.warnings.push_back(
        fmt::format("block_size {} is longer than the {} positions that the model knows",
                    config.data.block_size, dimensions.positions));
  }
}

void warn_of_shortage(Outlook& outlook) {
  const auto& disk = outlook.disk;
  if (!disk || !disk->free_bytes) return;
  // The old checkpoint goes after the new one is whole.
  const auto while_saving = disk->total_bytes + disk->model_bytes + disk->optimizer_bytes;
  if (while_saving > *disk->free_bytes) {
    outlook.warnings.push_back(
        "the disk is too small for the checkpoints: lower "
        "save_total_limit, or choose another output_dir");
  }
}

}  // namespace

Outlook look_ahead(const config::Resolved& resolved, const launch::Hardware& hardware,
                   const launch::LaunchPlan& launch) {
  const auto& config = resolved.config;
  Outlook outlook{.hardware = hardware, .host_memory = memory_of_host(), .launch = launch};
  outlook.warnings = launch.warnings;
  outlook.batches = config::plan_batches(resolved, launch.size());
  outlook.stage = stage_of(config.parallel.distributed_strategy);
  const auto dtype = working_dtype(config.model.dtype, launch.device);
  outlook.dtype = name_of(dtype);
  const bool wide = config.optimizer.grad_accum_fp32 || outlook.batches.accumulation > 1;
  outlook.gradient_bytes = wide ? std::max<int64_t>(4, bytes_of(dtype)) : bytes_of(dtype);
  resolve_autos(config, outlook);
  outlook.peak_learning_rate = scaled_learning_rate(config, outlook.batches);
  outlook.data = look_at_data(config);
  outlook.steps = count_steps(config, outlook.batches, outlook.data);
  if (!config.model.model_name_or_path.empty()) {
    measure_model(config, dtype, outlook);
    outlook.disk = count_disk(config, outlook.shapes, dtype, outlook.steps);
  }
  outlook.files = files_to_write(config, outlook.steps);
  warn_of_shortage(outlook);
  return outlook;
}

}  // namespace skein::cli
