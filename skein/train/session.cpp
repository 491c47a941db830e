// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/session.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "skein/board/board.h"
#include "skein/config/output_folder.h"
#include "skein/config/syntax/suggest.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/core/host.h"
#include "skein/core/log.h"
#include "skein/core/parallel.h"
#include "skein/ops/device.h"
#include "skein/plan/cost/flops.h"
#include "skein/plan/finetune.h"
#include "skein/plan/fit.h"
#include "skein/plan/refusals.h"
#include "skein/plan/run_data.h"
#include "skein/plan/run_model.h"
#include "skein/plan/steps/rollout_plan.h"
#include "skein/report/hardware.h"
#include "skein/tensor/copy_engine.h"
#include "skein/tensor/dtype.h"
#include "skein/tensor/host_stash.h"
#include "skein/train/announce.h"
#include "skein/train/ask_reference.h"
#include "skein/train/check_once.h"
#include "skein/train/group_rates.h"
#include "skein/train/place.h"
#include "skein/train/run_folder.h"

namespace skein::train {
namespace {

fs::path checked_folder(const config::Resolved& resolved, World& world) {
  const auto& config = resolved.config;
  const auto place = place_of(world.device);
  plan::check_given(config);
  plan::check_run(resolved, world.group.size(), place);
  if (world.is_first()) {
    for (const auto& warning : plan::run_warnings(resolved, place)) log_warning("{}", warning);
  }
  auto output = config::output_folder(config.checkpoint);
  open_folder(output, world);
  return output;
}

}  // namespace

// `auto` depends on the GPU: ranks on different ones could disagree, and would wait for ever in a
// collective of different sizes.
DType agreed_dtype(const config::ModelConfig& model, World& world) {
  const auto own = plan::working_dtype(model.dtype, place_of(world.device));
  std::vector<int64_t> votes(static_cast<size_t>(DType::kU64) + 1);
  votes[static_cast<size_t>(own)] = 1;
  if (world.group.sum(votes)[static_cast<size_t>(own)] == world.group.size()) return own;
  throw UserError(
      "dtype: auto means bfloat16 on GPUs that have it and float16 on others, and the ranks have "
      "both kinds: give dtype=float16 or dtype=float32, or leave the older GPUs out");
}

data::LoaderOptions loader_options(const config::RunConfig& config,
                                   const config::BatchPlan& batches) {
  return {.data = config.data,
          .per_device_batch = batches.per_device,
          .accumulation = batches.accumulation,
          .eval_batch = plan::evaluates(config) ? config.eval.per_device_eval_batch_size : 0,
          .seed = plan::data_seed(config)};
}

namespace {

plan::DataIdentity identity_of(const config::Resolved& resolved, const config::BatchPlan& batches,
                               const plan::HfConfig& architecture, const data::Loader& loader,
                               const plan::RunPlan& plan) {
  auto identity = plan::identity_before_data(resolved, batches, architecture);
  identity.data_digest = loader.data_digest();
  identity.total_steps = plan.total_steps;
  return identity;
}

// Collective: where this start begins; a checkpoint is verified and not refused.
Beginning beginning_of(const config::RunConfig& config, const plan::HfConfig& architecture,
                       const plan::DataIdentity& identity, DType dtype, World& world) {
  const board::HostWork work("looking for a checkpoint");
  auto found = decide_beginning(config.checkpoint, config::output_folder(config.checkpoint), world);
  if (!found.checkpoint) return found;
  plan::check_continuation(*found.checkpoint, architecture, identity);
  plan::check_saved_dtype(*found.checkpoint, config, architecture, dtype);
  return found;
}

std::shared_ptr<tensor::HostStash> make_stash(const config::ModelConfig& model,
                                              const World& world) {
  if (!model.offload_activations) return nullptr;
  return std::make_shared<tensor::HostStash>(
      tensor::make_copy_engine(world.device, {.ranks_here = world.local_size}));
}

optim::DiskOptions disk_options(const config::OffloadConfig& config) {
  return {.folder = config.nvme_path,
          .request_bytes = config.nvme_block_size,
          .depth = config.nvme_queue_depth,
          .threads = config.nvme_threads};
}

// Of host memory, for inputs of blocks: it is taken in the first step, and saves must leave it.
int64_t stash_bytes(const config::RunConfig& config, const config::BatchPlan& batches,
                    const plan::HfConfig& architecture, const World& world) {
  if (!config.model.offload_activations) return 0;
  const plan::RunMemory memory(config, architecture,
                               {.ranks = world.group.size(), .place = place_of(world.device)},
                               config.data.block_size);
  return memory.needs(plan::asked_choice(config, batches)).activations.host;
}

}  // namespace

std::unique_ptr<model::Model> build_model(const config::RunConfig& config,
                                          const config::BatchPlan& batches,
                                          const plan::HfConfig& architecture, DType dtype) {
  auto model = model::build(architecture, {.dtype = tensor::scalar_type_of(dtype),
                                           .tuning = plan::tuning_of(config),
                                           .embedding_noise = config.finetune.neftune_noise_alpha});
  set_rates(model->table(), config.finetune.loraplus_lr_ratio,
            plan::peak_learning_rate(config, batches));
  return model;
}

parallel::ShardOptions shard_options(const config::RunConfig& config,
                                     const config::BatchPlan& batches, const World& world) {
  return {
      .stage = parallel::kStages[plan::zero_stage(config.parallel.distributed_strategy)],
      .recompute = config.model.gradient_checkpointing,
      .stash = make_stash(config.model, world),
      .fp32_gradients = plan::has_wide_gradients(config.optimizer, batches),
      .device = world.device,
      .offload = plan::offload_of(config.offload),
      .pin_memory = config.offload.pin_memory,
      .disk = disk_options(config.offload),
      // Others that start ranks leave one thread to each; beside a GPU the cores are idle.
      .update_threads = world.device.is_cpu() ? 0 : std::max(1, num_threads(0) / world.local_size)};
}

std::unique_ptr<optim::Optimizer> build_optimizer(const config::RunConfig& config,
                                                  parallel::Sharded& sharded) {
  return optim::make_optimizer(sharded.owned_ranges(), config.optimizer, sharded.memory(),
                               static_cast<uint64_t>(config.seed));
}

namespace {

// Before anything is trained. Rewards of online stages have their names from whoever gives them.
void check_best_metric(const config::RunConfig& config, const algorithms::Algorithm& algorithm) {
  if (config::is_online(config.stage)) return;
  std::vector<std::string> known{"loss"};
  if (algorithm.is_token_mean()) known.emplace_back("perplexity");
  for (const auto& metric : algorithm.metrics()) known.push_back(metric.name);
  const auto& asked = config.eval.metric_for_best_model;
  if (std::ranges::count(known, asked) > 0) return;
  throw UserError(fmt::format("metric_for_best_model is {}; evaluations of stage: {} have {}{}",
                              asked, config::to_text(config.stage), fmt::join(known, ", "),
                              config::did_you_mean(asked, known)));
}

}  // namespace

std::unique_ptr<algorithms::Algorithm> build_algorithm(const config::RunConfig& config,
                                                       const model::Model& model) {
  auto algorithm = algorithms::build(algorithms::options_of(config), model);
  check_best_metric(config, *algorithm);
  return algorithm;
}

std::unique_ptr<plan::LossScaler> make_scaler(const config::RunConfig& config, DType dtype) {
  if (dtype != DType::kF16) return nullptr;
  return std::make_unique<plan::LossScaler>(config.loss_scale, config.schedule.deepspeed.ds_compat);
}

namespace {

// Of a document: what trains, and who looks at it before.
std::function<double(int64_t)> flops_of(const config::RunConfig& config,
                                        const plan::HfConfig& architecture,
                                        const algorithms::Algorithm& algorithm) {
  const auto dimensions = architecture.dimensions();
  const plan::TrainingFlops training(dimensions, plan::tuned_model(config, architecture).shapes);
  const bool keeps = config.preference.precompute_ref_log_probs;
  const auto passes = static_cast<double>(
      std::ranges::count_if(algorithm.passes(), [&](const algorithms::Pass& pass) {
        return !keeps || pass.role == algorithms::Role::kPolicy;
      }));
  return [=](int64_t tokens) {
    const double forward = plan::training_flops_per_token(dimensions, tokens) / 3;
    return training.of_document(tokens) + passes * forward * static_cast<double>(tokens);
  };
}

MetricOptions metric_options(const config::RunConfig& config, const plan::HfConfig& architecture,
                             DType dtype, const algorithms::Algorithm& algorithm,
                             const World& world) {
  const bool cuda = world.device.is_cuda();
  // Online most of a step is sampling, and prompts are computed once for several answers: what is
  // computed is not what is counted.
  const bool counts_flops = !config::is_online(config.stage);
  const double peak =
      counts_flops ? report::peak_flops(device_name(world.device), dtype).value_or(0) : 0;
  return {.output = config::output_folder(config.checkpoint),
          .writes = world.is_first(),
          .spike_zscore = config.log.loss_spike_zscore,
          .flops_of = flops_of(config, architecture, algorithm),
          .peak_flops = peak * world.group.size(),
          .pci_bus_id = cuda ? ops::pci_bus_id(world.device.index()) : "",
          .metrics = algorithm.metrics(),
          .fence = world.fence};
}

// Alike for ranks that share a kernel, and so its view of a file system.
std::string node_id() { return fmt::format("{} {}", host_name(), boot_id()); }

bool uses_disk(const config::RunConfig& config) {
  return plan::offload_of(config.offload).uses_disk();
}

// Of what a save has copied from a disk.
std::function<void()> comparison(const config::RunConfig& config, parallel::Sharded& sharded,
                                 optim::Optimizer& optimizer) {
  if (!uses_disk(config)) return {};
  return [&sharded, &optimizer] {
    sharded.compare_copied();
    optimizer.compare_copied();
  };
}

checkpoint::StoreOptions store_options(const config::RunConfig& config, const fs::path& output,
                                       const World& world, int64_t host_bytes_of_others,
                                       std::function<void()> compare_copied) {
  auto conditions = checkpoint::current_conditions(
      world.group.size(), plan::zero_stage(config.parallel.distributed_strategy),
      at::get_num_threads());
  if (world.device.is_cuda()) {
    conditions.device = device_name(world.device);
    if (!config.full_determinism) conditions.tier = "T2";
  }
  return {.output = output,
          .rank = world.output_rank(),
          .size = world.output_size(),
          .node = world.output_size() == world.local_size ? "" : node_id(),
          .token = start_token(output, world),
          .save_total_limit = config.checkpoint.save_total_limit.value_or(0),
          .on_each_node = world.own_output,
          .timeout = std::chrono::seconds(config.checkpoint.save_timeout),
          .max_shard_bytes = static_cast<uint64_t>(config.checkpoint.max_shard_size),
          .conditions = conditions,
          .fence = world.fence,
          .engine = tensor::make_copy_engine(world.device, {.ranks_here = world.local_size,
                                                            .left_over = host_bytes_of_others,
                                                            .in_pieces = uses_disk(config)}),
          .compare_copied = std::move(compare_copied)};
}

RunStateOptions state_options(const config::RunConfig& config, const config::BatchPlan& batches,
                              const plan::DataIdentity& identity, const data::Loader& loader,
                              const World& world) {
  RunStateOptions options{
      .identity = identity,
      .epochs_of = [&](int64_t step) { return loader.epoch_steps().epochs_of(step); },
      .texts = plan::texts_beside_weights(config),
      .best = plan::BestMetric(config.eval)};
  if (world.own_output) options.share = {world.output_rank(), world.output_size()};
  if (config::is_online(config.stage)) {
    options.updates_per_step = plan::rollout_plan(config, batches).updates_per_step;
  }
  return options;
}

void load_base(ModelState& model, const config::RunConfig& config, const World& world) {
  if (config.model.train_from_scratch) {
    model.initialise(static_cast<uint64_t>(config.seed));
    return;
  }
  check_once(config.model.model_name_or_path, world);
  model.load_weights(config.model.model_name_or_path, static_cast<uint64_t>(config.seed));
}

// Returns the step that it is of.
int64_t load_first_state(Session& run) {
  const auto& checkpoint = run.beginning.checkpoint;
  if (!checkpoint) {
    load_first_weights(run.state.policy(), run.config, run.world);
    return 0;
  }
  if (run.state.policy().is_adapter()) load_base(run.state.policy(), run.config, run.world);
  return run.state.restore(*checkpoint);
}

}  // namespace

void load_first_weights(ModelState& model, const config::RunConfig& config, const World& world) {
  load_base(model, config, world);
  if (!model.is_adapter()) return;
  const auto& adapter = config.finetune.adapter_name_or_path;
  if (adapter.empty()) {
    model.initialise_adapter(static_cast<uint64_t>(config.seed));
  } else {
    check_once(adapter, world);
    model.load_adapter(adapter);
  }
}

namespace {

data::Loader open_loader(const Session& run) {
  const auto& group = run.world.group;
  auto options = loader_options(run.config, run.batches);
  if (!config::is_online(run.config.stage)) {
    return {run.samples, options, group.rank(), group.size()};
  }
  // A rank samples some of a step's completions, and knows all of its prompts.
  options.per_device_batch = plan::prompts_per_step(run.config, run.batches);
  options.accumulation = 1;
  return {run.samples, options, 0, 1};
}

}  // namespace

Session::Session(const config::Resolved& given, const config::BatchPlan& plan_of_batches,
                 World& ranks)
    : resolved(given),
      config(given.config),
      batches(plan_of_batches),
      world(ranks),
      output(checked_folder(given, world)),
      architecture(plan::read_run_model(config)),
      dtype(agreed_dtype(config.model, world)),
      samples(plan::open_samples(config, architecture)),
      loader(open_loader(*this)),
      plan(plan::plan_run(config, loader.epoch_steps())),
      identity(identity_of(resolved, batches, architecture, loader, plan)),
      beginning(beginning_of(config, architecture, identity, dtype, world)),
      model(build_model(config, batches, architecture, dtype)),
      sharded(model->table(), shard_options(config, batches, world), world.group),
      optimizer(build_optimizer(config, sharded)),
      reference(config.preference.precompute_ref_log_probs
                    ? nullptr  // settle_reference() asks it
                    : build_reference(config, architecture, dtype, world)),
      algorithm(build_algorithm(config, *model)),
      onlookers(std::make_unique<Onlookers>(*algorithm, *model, sharded, reference.get())),
      scaler(make_scaler(config, dtype)),
      metrics(metric_options(config, architecture, dtype, *algorithm, world)),
      store(store_options(config, output, world, stash_bytes(config, batches, architecture, world),
                          comparison(config, sharded, *optimizer)),
            world.store),
      state({architecture, *model, sharded, *optimizer, metrics, scaler.get()},
            state_options(config, batches, identity, loader, world)),
      peak_rate(plan::peak_learning_rate(config, batches)) {}

namespace {

int64_t load_weights(Session& run) {
  const auto& config = run.config;
  const board::HostWork work("loading the weights");
  if (run.plan.save_every > 0 && !uses_disk(config)) {
    run.store.prepare(run.state.contents(0, !config.checkpoint.save_only_model));
  }
  const int64_t step = load_first_state(run);
  if (run.reference) load_reference(*run.reference, config, run.architecture, run.world);
  return step;
}

// With precompute_ref_log_probs: what the reference says is kept, or it is asked now and goes.
void settle_reference(Session& run) {
  const auto& config = run.config;
  if (!config.preference.precompute_ref_log_probs || !run.onlookers->any()) return;
  const auto samples = plan::open_samples(config, run.architecture);
  const Questions questions{config, run.architecture, run.identity, run.dtype, samples};
  // A run that goes on has asked already.
  const bool may_read = !config.data.overwrite_cache || run.beginning.checkpoint;
  if (may_read) {
    if (auto kept = find_looks(questions, run.world)) return run.onlookers->keep(*std::move(kept));
  }
  const auto reference = build_reference(config, run.architecture, run.dtype, run.world);
  if (reference) {
    const board::HostWork work("loading the reference");
    load_reference(*reference, config, run.architecture, run.world);
  }
  const Onlookers asking(*run.algorithm, *run.model, run.sharded, reference.get());
  run.onlookers->keep(ask_reference(questions, *run.algorithm, asking, run.world));
}

}  // namespace

int64_t begin(Session& run) {
  const int64_t step = load_weights(run);
  settle_reference(run);
  const board::HostWork work("beginning");
  claim_folder(run.output, run.resolved, run.beginning, run.world);
  run.state.restore_log();  // records of steps that were lost do not stay
  if (run.state.best_step()) run.store.protect_saved(*run.state.best_step());
  if (run.beginning.checkpoint) run.store.all_nodes_have(step);
  announce(run, step);
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
  const auto newest = newest_checkpoint(run.output, run.world, {.up_to = step});
  if (!newest) {
    throw UserError("nan_policy=rollback: there is no checkpoint to go back to; lower save_steps");
  }
  run.state.restore_tensors(newest->path);
}

std::optional<Update> judge_update(Session& run, NanGuard& guard, int64_t step) try {
  auto verdict = guard.judge();
  if (verdict.rolls_back) roll_back(run, step);
  return std::move(verdict.finite_loss);
} catch (const UserError&) {
  run.store.finish();  // all ranks end together: the save under way is healthy
  throw;
}

void judge_and_log(Session& run, NanGuard& guard, int64_t step) {
  if (const auto left_out = judge_update(run, guard, step)) run.metrics.add_loss(*left_out);
}

bool settle_save(Session& run) {
  const board::HostWork work("finishing a save");
  const bool failed = !run.store.finish();
  const bool all_saved = run.world.group.sum(int64_t{failed}) == 0;
  if (all_saved && run.store.last_committed()) {
    run.store.all_nodes_have(*run.store.last_committed());
  }
  return all_saved;
}

void settle_best(Session& run) {
  if (!settle_save(run)) run.state.drop_evaluation(run.store.last_step());
}

void take_best(Session& run) {
  const board::HostWork work("loading the best model");
  const auto step = *run.state.best_step();
  if (const auto best = newest_checkpoint(run.output, run.world, {step - 1, step})) {
    log_info("the best evaluation was at step {}: taking {}", step, best->path.string());
    run.state.restore_weights(best->path);
    return;
  }
  // Gone, damaged, or in the folder that this run was continued from.
  log_warning(
      "the best evaluation was at step {}, of which {} has no whole checkpoint: taking the "
      "last model",
      step, run.output.string());
}

}  // namespace skein::train
