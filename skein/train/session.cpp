// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/session.h"

#include <ATen/Parallel.h>
#include <sys/stat.h>

#include <fstream>
#include <variant>

#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/host.h"
#include "skein/core/log.h"
#include "skein/ops/device.h"
#include "skein/plan/flops.h"
#include "skein/plan/schedule.h"
#include "skein/report/banner.h"
#include "skein/report/hardware.h"
#include "skein/train/run_folder.h"

namespace skein::train {
namespace {

fs::path opened_folder(const config::Resolved& resolved, World& world) {
  auto output = output_folder(resolved.config.checkpoint);
  open_folder(output, world);
  return output;
}

plan::ModelShape shape_of(const plan::GptConfig& c) {
  return {.num_layers = c.n_layer,
          .hidden_size = c.n_embd,
          .intermediate_size = c.n_inner > 0 ? c.n_inner : 4 * c.n_embd,
          .num_heads = c.n_head,
          .num_kv_heads = c.n_head,
          .head_dim = c.n_embd / c.n_head,
          .vocab_size = c.vocab_size,
          .gated_mlp = false};
}

plan::ModelShape shape_of(const plan::LlamaConfig& c) {
  return {.num_layers = c.num_hidden_layers,
          .hidden_size = c.hidden_size,
          .intermediate_size = c.intermediate_size,
          .num_heads = c.num_attention_heads,
          .num_kv_heads = c.num_key_value_heads,
          .head_dim = c.head_dim,
          .vocab_size = c.vocab_size};
}

plan::ModelShape shape_of(const plan::HfConfig& config) {
  return std::visit([](const auto& architecture) { return shape_of(architecture); },
                    config.architecture);
}

// Rotary positions have no last one; learned ones do.
void check_block_size(const plan::HfConfig& config, int64_t block_size) {
  const auto* gpt = std::get_if<plan::GptConfig>(&config.architecture);
  if (gpt == nullptr || block_size <= gpt->n_positions) return;
  throw UserError(fmt::format(
      "block_size is {}, but the model knows {} positions (n_positions): lower block_size",
      block_size, gpt->n_positions));
}

report::Arithmetic arithmetic_of(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? report::Arithmetic::kBf16 : report::Arithmetic::kFp32;
}

std::string device_text(at::Device device) {
  if (device.is_cuda()) return fmt::format("{} {}", device.str(), ops::device_name(device.index()));
  return fmt::format("cpu, {} thread{}", at::get_num_threads(),
                     at::get_num_threads() == 1 ? "" : "s");
}

MetricOptions metric_options(const Session& run) {
  const auto dtype = run.model->table().parameters.front().dtype;
  const auto name = run.world.device.is_cuda() ? ops::device_name(run.world.device.index()) : "cpu";
  const double peak = report::peak_flops(name, arithmetic_of(dtype)).value_or(0);
  return {
      .output = run.output,
      .writes = run.world.is_first(),
      .spike_zscore = run.config.log.loss_spike_zscore,
      .flops_per_token =
          plan::training_flops_per_token(shape_of(run.architecture), run.config.data.block_size),
      .peak_flops = peak * run.world.group.size(),
      .pci_bus_id = run.world.device.is_cuda() ? ops::pci_bus_id(run.world.device.index()) : ""};
}

// Alike for the ranks that share the folder, and for no others: host names may repeat.
std::string folder_id(const fs::path& folder) {
  struct stat info{};
  if (::stat(folder.c_str(), &info) != 0) throw_errno("cannot stat " + folder.string());
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format(
      "{:08x}",
      static_cast<uint32_t>(hash64(fmt::format("{} {} {}", boot, info.st_dev, info.st_ino))));
}

checkpoint::StoreOptions store_options(const Session& run) {
  auto conditions = checkpoint::current_conditions(
      run.world.group.size(), stage_of(run.config.parallel.distributed_strategy).number,
      at::get_num_threads());
  if (run.world.device.is_cuda()) {
    conditions.device = ops::device_name(run.world.device.index());
    if (!run.config.full_determinism) conditions.tier = "T2";
  }
  const auto& world = run.world;
  return {.output = run.output,
          .rank = world.output_rank(),
          .size = world.output_size(),
          .token = world.own_output ? fmt::format("{}-{}", world.token, folder_id(run.output))
                                    : world.token,
          .save_total_limit = run.config.checkpoint.save_total_limit.value_or(0),
          .conditions = conditions,
          .engine = checkpoint::make_copy_engine(world.device, world.local_size)};
}

data::LoaderOptions loader_options(const Session& run) {
  const bool evaluates = run.config.eval.eval_strategy != config::EvalStrategy::kNo;
  return {.data = run.config.data,
          .model = run.config.model,
          .per_device_batch = run.batches.per_device,
          .accumulation = run.batches.accumulation,
          .eval_batch = evaluates ? run.config.eval.per_device_eval_batch_size : 0,
          .seed = static_cast<uint64_t>(run.config.data_seed.value_or(run.config.seed)),
          .vocab_size = shape_of(run.architecture).vocab_size};
}

// One row per rank, told through the store.
std::vector<report::RankRow> rank_rows(Session& run) {
  auto& world = run.world;
  const auto key = [&](int rank) { return fmt::format("run/{}/rank/{}", world.token, rank); };
  const nlohmann::json own = {world.local_rank, host_name(), device_text(world.device)};
  world.store.set(key(world.group.rank()), own.dump());
  std::vector<report::RankRow> rows;
  for (int rank = 0; world.is_first() && rank < world.group.size(); ++rank) {
    const auto row = nlohmann::json::parse(world.store.get(key(rank), std::chrono::seconds(60)));
    rows.push_back({rank, row[0].get<int>(), row[1].get<std::string>(), row[2].get<std::string>(),
                    run.batches.per_device});
  }
  return rows;
}

std::string banner_of(Session& run) {
  constexpr const char* kStrategies[] = {"DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"};
  const auto& table = run.model->table();
  const auto dtype = table.parameters.front().dtype;
  int64_t trainable = 0;
  for (const auto& parameter : table.parameters)
    trainable += parameter.trainable ? parameter.numel() : 0;
  const auto name = run.world.device.is_cuda() ? ops::device_name(run.world.device.index()) : "cpu";
  return report::banner_text(
      {.strategy = kStrategies[stage_of(run.config.parallel.distributed_strategy).number],
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
       .dtype = dtype_word(dtype),
       .peak = report::describe_peak(name, arithmetic_of(dtype)),
       .ranks = rank_rows(run)},
      report::user_language());
}

report::Hparams hparams_of(const config::RunConfig& config) {
  return {{"learning_rate", config.optimizer.learning_rate},
          {"weight_decay", config.optimizer.weight_decay},
          {"block_size", static_cast<double>(config.data.block_size)},
          {"seed", static_cast<double>(config.seed)},
          {"model_name_or_path", config.model.model_name_or_path}};
}

}  // namespace

Session::Session(const config::Resolved& given, const config::BatchPlan& plan_of_batches,
                 World& ranks)
    : resolved(given),
      config(given.config),
      batches(plan_of_batches),
      world(ranks),
      output(opened_folder(given, ranks)),
      architecture(plan::read_hf_config(config.model.model_name_or_path)),
      model(model::build(architecture, {.dtype = working_dtype(config.model.dtype, world.device)})),
      sharded(model->table(),
              {.stage = stage_of(config.parallel.distributed_strategy),
               .recompute = config.model.gradient_checkpointing,
               .fp32_gradients = config.optimizer.grad_accum_fp32 || batches.accumulation > 1,
               .device = world.device},
              world.group),
      optimizer(sharded.owned_ranges(), config.optimizer, sharded.memory()),
      algorithm(algorithms::build(config.stage, *model)),
      loader(loader_options(*this), world.group.rank(), world.group.size()),
      plan(plan_run(config, loader.steps_per_epoch())),
      metrics(metric_options(*this)),
      store(store_options(*this), world.store),
      state(architecture, *model, sharded, optimizer, metrics),
      peak_rate(plan::scaled_peak(config.schedule, config.optimizer.learning_rate, batches.global,
                                  batches.per_device * batches.accumulation)) {
  check_block_size(architecture, config.data.block_size);
  state.carry_files(config.model);
  if (world.own_output) state.save_whole_as(world.output_rank(), world.output_size());
  state.set_identity({.data_digest = loader.data_digest(),
                      .global_batch = batches.global,
                      .seed = config.data_seed.value_or(config.seed),
                      .total_steps = plan.total_steps,
                      .steps_per_epoch = plan.steps_per_epoch});
}

int64_t begin(Session& run) {
  const auto& config = run.config;
  const board::HostWork work("loading the weights");
  const auto checkpoint = checkpoint_to_continue(config.checkpoint, run.output, run.world);
  if (run.plan.save_every > 0) {
    run.store.prepare(run.state.contents(0, !config.checkpoint.save_only_model));
  }
  int64_t step = 0;
  if (checkpoint) {
    step = run.state.restore(*checkpoint);
  } else if (config.model.train_from_scratch) {
    run.state.initialise(static_cast<uint64_t>(config.seed));
  } else {
    run.state.load_weights(config.model.model_name_or_path);
  }
  claim_folder(run.output, run.resolved, run.world);
  run.state.restore_log();  // records of steps that were lost do not stay
  if (run.state.best_step()) run.store.protect_saved(*run.state.best_step());
  const auto banner = banner_of(run);
  if (run.world.is_first()) log_info("{}", banner);
  if (checkpoint) {
    log_info("continuing {} at step {} of {}", checkpoint->string(), step, run.plan.total_steps);
  }
  run.metrics.show({.total_steps = run.plan.total_steps,
                    .first_step = step,
                    .live = report::stderr_shows_live_line() && !config.log.disable_tqdm},
                   {.output = run.output,
                    .report_to = config.log.report_to,
                    .run_name = config.log.run_name.empty() ? run.output.filename().string()
                                                            : config.log.run_name,
                    .config_text = config::to_yaml(run.resolved),
                    .hparams = hparams_of(config),
                    .resume_step = checkpoint ? std::optional(step) : std::nullopt});
  run.store.await_prepared();
  return step;
}

void before_update(Session& run) {
  if (!run.store.is_copying()) return;
  const board::HostWork work("saving");  // it waits for the disk where host memory is short
  run.store.before_update();
}

void roll_back(Session& run, int64_t step) {
  const board::HostWork work("going back to a checkpoint");
  run.store.finish();
  const auto newest = newest_checkpoint(run.output, run.world, step);
  if (!newest) {
    throw UserError("nan_policy=rollback: there is no checkpoint to go back to; lower save_steps");
  }
  run.state.restore_tensors(*newest);
}

void settle_best(Session& run) {
  const board::HostWork work("finishing a save");
  const bool failed = !run.store.finish();
  if (run.world.group.sum(int64_t{failed}) > 0) run.state.drop_evaluation(run.store.last_step());
}

void take_best(Session& run) {
  const auto best = run.output / fmt::format("checkpoint-{}", *run.state.best_step());
  // Missing in a run that was continued from another folder; all nodes take the same.
  if (run.world.group.sum(int64_t{!fs::exists(best)}) > 0) {
    log_warning("the best evaluation was {}, which is not here: taking the last model",
                best.string());
    return;
  }
  const board::HostWork work("loading the best model");
  log_info("the best evaluation was at step {}: taking {}", *run.state.best_step(), best.string());
  run.state.restore_weights(best);
}

}  // namespace skein::train
