// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/verify/verify_strategy.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "skein/board/board.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/plan/finetune.h"
#include "skein/plan/refusals.h"
#include "skein/plan/run_data.h"
#include "skein/plan/run_model.h"
#include "skein/train/nan_guard.h"
#include "skein/train/place.h"
#include "skein/train/session.h"
#include "skein/train/update.h"
#include "skein/train/verify/trained_weights.h"

namespace skein::train {
namespace {

using config::Offload;
using config::Strategy;

// A new way to hold memory joins here. Those with nvme run where nvme_path is given.
constexpr Variant kVariants[] = {
    {Strategy::kDdp},
    {Strategy::kZero1},
    {Strategy::kZero2},
    {Strategy::kZero3},
    {Strategy::kDdp, Offload::kCpu},
    {Strategy::kZero1, Offload::kCpu},
    {Strategy::kZero2, Offload::kCpu},
    {Strategy::kZero3, Offload::kCpu},
    {Strategy::kZero3, Offload::kCpu, Offload::kCpu},
    {Strategy::kDdp, Offload::kNvme},
    {Strategy::kZero1, Offload::kNvme},
    {Strategy::kZero2, Offload::kNvme},
    {Strategy::kZero3, Offload::kNvme},
    {Strategy::kZero3, Offload::kNvme, Offload::kNvme},
};

bool is_asked(const Variant& variant, const VerifyOptions& options, const std::string& nvme_path) {
  const auto& strategies = options.strategies;
  const bool named = strategies.empty() || std::ranges::count(strategies, variant.strategy) > 0;
  return named && (variant.optimizer != Offload::kNvme || !nvme_path.empty());
}

config::Resolved with_variant(config::Resolved resolved, const Variant& variant) {
  resolved.config.parallel.distributed_strategy = variant.strategy;
  resolved.config.offload.offload_optimizer = variant.optimizer;
  resolved.config.offload.offload_param = variant.parameters;
  return resolved;
}

std::optional<std::string> reason_to_leave_out(const config::Resolved& resolved) try {
  plan::check_supported(resolved);
  return std::nullopt;
} catch (const UserError& error) {
  return error.what();
}

// What the variants share.
struct Steps {
  Steps(const config::Resolved& resolved, const config::BatchPlan& plan_of_batches, World& world)
      : batches(plan_of_batches),
        architecture(plan::read_run_model(resolved.config)),
        dtype(agreed_dtype(resolved.config.model, world)),
        loader(plan::open_samples(resolved.config, architecture),
               loader_options(resolved.config, batches), world.group.rank(), world.group.size()),
        total(plan::plan_run(resolved.config, loader.epoch_steps()).total_steps) {}

  const config::BatchPlan& batches;
  plan::HfConfig architecture;
  DType dtype;
  data::Loader loader;
  int64_t total;  // of the run
};

// What computes the steps of one variant.
struct Engine {
  Engine(const config::RunConfig& given, const Steps& steps, World& world)
      : config(given),
        model(build_model(config, steps.batches, steps.architecture, steps.dtype)),
        sharded(model->table(), shard_options(config, steps.batches, world), world.group),
        optimizer(build_optimizer(config, sharded)),
        reference(build_reference(config, steps.architecture, steps.dtype, world)),
        algorithm(build_algorithm(config, *model)),
        onlookers(*algorithm, *model, sharded, reference.get()),
        scaler(make_scaler(config, steps.dtype)),
        metrics({}),
        state({steps.architecture, *model, sharded, *optimizer, metrics, scaler.get()},
              {.identity = {.tuning = {.adapter_config =
                                           plan::adapter_config_of(config, steps.architecture)}},
               .epochs_of = {}}),
        guard(config.optimizer.nan_policy, sharded, scaler.get()),
        peak_rate(plan::peak_learning_rate(config, steps.batches)) {}

  const config::RunConfig& config;
  std::unique_ptr<model::Model> model;
  parallel::Sharded sharded;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<Reference> reference;
  std::unique_ptr<algorithms::Algorithm> algorithm;
  Onlookers onlookers;
  std::unique_ptr<plan::LossScaler> scaler;
  MetricLog metrics;
  RunState state;
  NanGuard guard;
  double peak_rate;
};

// As train::run_offline() makes them.
void run_step(Engine& engine, const Steps& steps, int64_t step, World& world,
              VariantNumbers& numbers) {
  const auto data = steps.loader.batches(step);
  board::set_board_step(step, data.samples);
  const auto micro_batches = on_device(data.micro_batches, world.device);
  const auto mismatched = on_device(data.mismatched, world.device);
  const auto& config = engine.config;
  const auto done =
      update({*engine.algorithm,
              engine.sharded,
              *engine.optimizer,
              engine.metrics.phases(),
              {},
              &engine.onlookers},
             {micro_batches, data.counts, {static_cast<uint64_t>(config.seed), step}, mismatched},
             update_options({config, engine.scaler.get(), engine.peak_rate, steps.total}, step));
  numbers.losses.push_back(world.group.sum(done.loss.item<double>()));
  numbers.norms.push_back(done.norm.norm.item<double>());
  engine.guard.watch(step + 1, done, data.samples);
  if (engine.guard.judge().rolls_back) {
    throw UserError(
        "nan_policy=rollback: there is no checkpoint to go back to; give "
        "nan_policy=skip to compare such steps");
  }
}

struct Finished {
  VariantNumbers numbers;
  TrainedWeights weights;
};

Finished run_variant(const config::RunConfig& config, const Variant& variant, const Steps& steps,
                     int64_t count, World& world) try {
  Engine engine(config, steps, world);
  {
    const board::HostWork work("loading the weights");
    load_first_weights(engine.state.policy(), config, world);
    if (engine.reference) load_reference(*engine.reference, config, steps.architecture, world);
  }
  Finished finished{.numbers = {.variant = variant}, .weights = {}};
  for (int64_t step = 0; step < count; ++step) {
    run_step(engine, steps, step, world, finished.numbers);
  }
  engine.metrics.phases().enter(Phase::kOther);
  const board::HostWork work("comparing the weights");
  finished.weights =
      copy_trained(engine.sharded, engine.model->table(), engine.optimizer->states());
  finished.numbers.tensors = finished.weights.tensors;
  finished.numbers.digest = finished.weights.digest;
  log_info("{}: {} steps, loss {:.6f} to {:.6f}", variant.name(), count,
           finished.numbers.losses.front(), finished.numbers.losses.back());
  return finished;
} catch (const c10::OutOfMemoryError& error) {
  const std::string reason = error.what_without_backtrace();
  throw UserError(fmt::format(
      "{} does not fit into the GPU's memory: {}\nTake a smaller per_device_train_batch_size or "
      "model, or leave it out: --strategies zero2,zero3",
      variant.name(), reason.substr(0, reason.find('\n'))));
}

// On CPUs every stage adds the same terms up in the same order, unless micro-batches meet ranks the
// other way round (ARCHITECTURE.md, "One sharding mechanism").
Tolerance allowed_between(const Variant& a, const Variant& b, const StrategyReport& report,
                          const VerifyOptions& options) {
  if (options.tolerance) return {*options.tolerance, *options.tolerance, "--tolerance"};
  const auto reduces_early = [](const Variant& variant) {
    return parallel::kStages[plan::zero_stage(variant.strategy)].reduces_every_micro_batch;
  };
  if (report.device != "cpu") return rounding_of(report.dtype, report.moments_8bit);
  if (report.batches.accumulation == 1) return bit_equal("CPU, no accumulation");
  if (reduces_early(a) == reduces_early(b)) return bit_equal("CPU, the same order of sums");
  return rounding_of(report.dtype, report.moments_8bit);
}

// The weights that the variants have ended with: those of each outcome once.
class Outcomes {
 public:
  // Returns the number of the outcome, alike on all ranks as digests are.
  size_t add(TrainedWeights weights) {
    const auto known = std::ranges::find(all_, weights.digest, &TrainedWeights::digest);
    if (known != all_.end()) return static_cast<size_t>(known - all_.begin());
    all_.push_back(std::move(weights));
    return all_.size() - 1;
  }

  // Collective.
  const WeightsDifference& between(size_t a, size_t b, comm::Group& group) {
    const auto found = differences_.find({a, b});
    if (found != differences_.end()) return found->second;
    return differences_[{a, b}] = difference(all_[a], all_[b], group);
  }

 private:
  std::vector<TrainedWeights> all_;
  std::map<std::pair<size_t, size_t>, WeightsDifference> differences_;
};

}  // namespace

std::string Variant::name() const {
  auto text = config::to_text(strategy);
  if (optimizer != Offload::kNone) text += " optimizer=" + config::to_text(optimizer);
  if (parameters != Offload::kNone) text += " param=" + config::to_text(parameters);
  return text;
}

bool VariantPair::is_within() const {
  return loss <= allowed.numbers && norm <= allowed.numbers && parameters <= allowed.parameters;
}

bool StrategyReport::is_within() const {
  return std::ranges::all_of(pairs, &VariantPair::is_within);
}

StrategyReport verify_strategies(const config::Resolved& resolved, const VerifyOptions& options,
                                 World& world) {
  const auto place = place_of(world.device);
  const auto batches = config::plan_batches(resolved, world.group.size());
  plan::check_run(resolved, world.group.size(), place);
  const Steps steps(resolved, batches, world);
  StrategyReport report{
      .batches = batches,
      .dtype = steps.dtype,
      .moments_8bit = resolved.config.optimizer.optim == config::OptimizerKind::kAdamW8bit,
      .device = device_name(world.device),
      .steps = std::min(options.steps, steps.total)};
  Outcomes outcomes;
  std::vector<size_t> ends;  // of each variant
  for (const auto& variant : kVariants) {
    if (!is_asked(variant, options, resolved.config.offload.nvme_path)) continue;
    const auto changed = with_variant(resolved, variant);
    if (auto why = reason_to_leave_out(changed)) {
      report.left_out.push_back({variant, *std::move(why)});
      continue;
    }
    auto [numbers, weights] = run_variant(changed.config, variant, steps, report.steps, world);
    report.variants.push_back(std::move(numbers));
    ends.push_back(outcomes.add(std::move(weights)));
  }
  const board::HostWork work("comparing the weights");
  for (size_t a = 0; a < report.variants.size(); ++a) {
    for (size_t b = a + 1; b < report.variants.size(); ++b) {
      const auto &first = report.variants[a], &second = report.variants[b];
      const auto& weights = outcomes.between(ends[a], ends[b], world.group);
      report.pairs.push_back(
          {.first = a,
           .second = b,
           .loss = largest_difference(first.losses, second.losses),
           .norm = largest_difference(first.norms, second.norms),
           .parameters = weights.relative,
           .tensor = weights.tensor,
           .allowed = allowed_between(first.variant, second.variant, report, options)});
    }
  }
  return report;
}

}  // namespace skein::train
