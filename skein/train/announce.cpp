// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/announce.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "skein/config/plain_values.h"
#include "skein/core/error.h"
#include "skein/core/host.h"
#include "skein/core/json.h"
#include "skein/core/log.h"
#include "skein/plan/finetune.h"
#include "skein/plan/preferences.h"
#include "skein/plan/rules.h"
#include "skein/report/banner.h"
#include "skein/report/hardware.h"
#include "skein/report/hparams.h"
#include "skein/train/place.h"
#include "skein/train/run_folder.h"

namespace skein::train {
namespace {

std::string device_text(at::Device device) {
  if (device.is_cuda()) return fmt::format("{} {}", device.str(), device_name(device));
  return fmt::format("cpu, {} thread{}", at::get_num_threads(),
                     at::get_num_threads() == 1 ? "" : "s");
}

// One row per rank, told through the store.
std::vector<report::RankRow> rank_rows(Session& run) {
  auto& world = run.world;
  const auto key = [&](int rank) { return fmt::format("run/{}/rank/{}", world.token, rank); };
  const nlohmann::json own = {world.local_rank, host_name(), device_text(world.device)};
  world.store.set(key(world.group.rank()), own.dump());
  std::vector<report::RankRow> rows;
  for (int rank = 0; world.is_first() && rank < world.group.size(); ++rank) {
    const auto row = parse_json<CommError>(world.store.get(key(rank), std::chrono::seconds(60)),
                                           fmt::format("rank {}", rank), kMessageLimits);
    rows.push_back({rank, row[0].get<int>(), row[1].get<std::string>(), row[2].get<std::string>(),
                    run.batches.per_device});
  }
  return rows;
}

std::string banner_of(Session& run) {
  constexpr const char* kStrategies[] = {"DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"};
  const auto& table = run.model->table();
  const auto trainable = plan::tuned_model(run.config, run.architecture).shapes.trainable_numel();
  return report::banner_text(
      {.strategy = kStrategies[plan::zero_stage(run.config.parallel.distributed_strategy)],
       .on_gpus = run.world.device.is_cuda(),
       .per_device_batch = run.batches.per_device,
       .accumulation = run.batches.accumulation,
       .global_batch = run.batches.global,
       .tokens_per_step = run.batches.tokens_per_step,
       .num_samples = run.loader.num_samples(),
       .num_epochs = static_cast<double>(run.plan.total_steps) /
                     static_cast<double>(run.plan.steps_per_epoch),
       .total_steps = run.plan.total_steps,
       .num_parameters = table.num_elements(),
       .num_trainable = trainable,
       .dtype = std::string(dtype_word(run.dtype)),
       .peak = report::describe_peak(device_name(run.world.device), run.dtype),
       .ranks = rank_rows(run)},
      report::user_language());
}

// What was asked for, or `auto` has chosen, so that the run needs less of the device's memory;
// empty: nothing.
std::string memory_keys(const config::RunConfig& config) {
  std::vector<std::string> keys;
  const auto offload = plan::offload_of(config.offload);
  const auto place = [](Medium medium) {
    return medium == Medium::kDisk ? "on nvme_path" : "in host memory";
  };
  if (offload.any()) {
    keys.push_back(fmt::format("{:g} % of the optimizer states {}", 100 * offload.ratio,
                               place(offload.states)));
  }
  if (offload.parameters != Medium::kDevice) {
    keys.push_back(fmt::format("shards of parameters {}", place(offload.parameters)));
  }
  if (config.optimizer.optim == config::OptimizerKind::kAdamW8bit) {
    keys.emplace_back("moments in 8 bits");
  }
  if (config.model.quantization_bit != config::QuantizationBit::kNone) {
    keys.emplace_back("frozen weights in 4 bits");
  }
  if (config.optimizer.pure_bf16) keys.emplace_back("pure_bf16");
  if (config.model.gradient_checkpointing) {
    keys.emplace_back(config.model.offload_activations
                          ? "gradient_checkpointing with inputs in host memory"
                          : "gradient_checkpointing");
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

// The configuration with what `auto` and absent keys became.
report::Hparams hparams_of(const Session& run) {
  auto config = run.config;
  config.model.dtype = run.dtype;
  config.batch.per_device_train_batch_size = run.batches.per_device;
  config.batch.gradient_accumulation_steps = run.batches.accumulation;
  config.batch.global_batch_size = run.batches.global;
  auto values = config::plain_values(config);
  values.emplace_back("ranks", static_cast<double>(run.batches.ranks));
  return values;
}

}  // namespace

void announce(Session& run, int64_t step) {
  const auto& config = run.config;
  const auto banner = banner_of(run);
  if (run.world.is_first()) log_info("{}", banner);
  if (const auto keys = memory_keys(config); run.world.is_first() && !keys.empty()) {
    log_info("memory: {}", keys);
  }
  if (const auto note = plan::sharing_note(config, run.architecture);
      run.world.is_first() && !note.empty()) {
    log_info("{}", note);
  }
  if (run.beginning.checkpoint) {
    log_info("continuing {} at step {} of {}", run.beginning.checkpoint->string(), step,
             run.plan.total_steps);
  }
  run.metrics.show({.total_steps = run.plan.total_steps,
                    .first_step = step,
                    .live = report::stderr_shows_live_line() && !config.log.disable_tqdm},
                   {.output = run.output,
                    .report_to = config.log.report_to,
                    .run_name = config.log.run_name.empty() ? run.output.filename().string()
                                                            : config.log.run_name,
                    .config_text = config::to_yaml(run.resolved),
                    .hparams = hparams_of(run),
                    .resume_step = run.beginning.checkpoint ? std::optional(step) : std::nullopt,
                    .announce = [&](const auto& paths) {
                      record_files(run.output, start_token(run.output, run.world), paths);
                    }});
}

}  // namespace skein::train
