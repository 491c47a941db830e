// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "skein/adapter/tensor_names.h"
#include "skein/checkpoint/files/weights_digest.h"
#include "skein/cli/commands.h"
#include "skein/cli/gradients/collect_flags.h"
#include "skein/cli/rank_run.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/json.h"
#include "skein/core/log.h"
#include "skein/data/rows/row_source.h"
#include "skein/gradient_features/collect.h"
#include "skein/gradient_features/moments.h"
#include "skein/plan/rules.h"
#include "skein/plan/run_data.h"
#include "skein/plan/trainer_state.h"
#include "skein/tensor/dtype.h"
#include "skein/train/check_once.h"
#include "skein/train/folder_model.h"
#include "skein/train/place.h"

namespace skein::cli {
namespace {

namespace gf = gradient_features;

// A model to listen to, with its parameters in memory.
struct OpenModel {
  OpenModel(const CollectFlags& flags, train::World& world)
      : opened(train::build_folder_model(flags.model, flags.run.config.model.dtype, world.device,
                                         flags.new_adapter)),
        is_sharded(flags.run.config.parallel.distributed_strategy == config::Strategy::kZero3),
        sharded(opened.model->table(),
                {.stage = parallel::kStages[is_sharded ? 3 : 0],
                 .recompute = flags.run.config.model.gradient_checkpointing,
                 .inference = true,
                 .device = world.device},
                is_sharded ? world.group : comm::Group()) {
    for (const auto& part : flags.model.parts()) train::check_once(part, world);
    opened.load(sharded.kept_slices(Access::kSet));
    if (!flags.new_adapter) return;
    sharded.initialise(static_cast<uint64_t>(flags.run.config.seed), [](const auto& parameter) {
      return adapter::is_adapter_tensor(parameter.name);
    });
  }

  DType dtype() const {  // of the weights; adapters have their own
    return tensor::dtype_of(opened.model->table().parameters.front().slot->scalar_type());
  }

  train::FolderModel opened;
  bool is_sharded;
  parallel::Sharded sharded;
};

data::RowSource open_rows(const CollectFlags& flags) {
  const auto& run = flags.run.config;
  const auto tokens = data::open_row_tokens(run.model, run.rows);
  const auto limits = plan::rows_options(run, tokens, *plan::vocabulary_of(run)).limits;
  return {data::prepare_rows(run.data, tokens.encoder, data::Split::kTrain), limits};
}

// In the order of the projection; none where nothing is projected.
std::vector<gf::ProjectedParameter> projected_parameters(const CollectFlags& flags,
                                                         const model::Model& model) {
  if (flags.info != gf::InfoType::kGrads) return {};
  const auto names = gf::choose_parameters(model.table(), flags.parameters);
  std::vector<gf::ProjectedParameter> projected;
  for (const auto& name : names) projected.push_back({name, model.table().find(name)->shape});
  if (flags.projection == gf::ProjectionKind::kFactorised) {
    gf::require_taps(model, names, "--projection factorised",
                     "name others, as --parameters q_proj,v_proj, or give --projection dense");
    gf::choose_sides(projected, flags.dimensions.back());
  }
  return projected;
}

int64_t num_elements(const std::vector<gf::ProjectedParameter>& projected) {
  int64_t elements = 0;
  for (const auto& parameter : projected) elements += parameter.height() * parameter.width();
  return elements;
}

// In their order, with the rows of each.
std::vector<gf::DataFile> data_files_of(const data::PreparedRows& prepared) {
  std::vector<gf::DataFile> files;
  for (const auto& path : prepared.files) files.push_back({0, gf::file_digest(path)});
  for (int64_t i = 0; i < prepared.rows.count(); ++i) {
    ++files.at(prepared.rows.entry(i).file).rows;
  }
  return files;
}

// That the moments are of, which Adam's own form needs.
int64_t num_updates(const fs::path& checkpoint) {
  if (const auto state = plan::find_trainer_state(checkpoint)) return state->num_updates;
  int64_t step = 0;  // of another program
  std::error_code ignored;
  if (fs::exists(checkpoint / plan::kStateFile, ignored)) {
    JsonObject::read(checkpoint / plan::kStateFile).read("global_step", step);
  }
  if (step > 0) return step;
  throw UserError(
      fmt::format("--adam_form standard needs the number of updates, and {} has no {} with a "
                  "global_step: give --adam_form less",
                  checkpoint.string(), plan::kStateFile));
}

// Of all that Adam's step depends on besides the gradient.
std::string moments_digest(const CollectFlags& flags) {
  auto moments = checkpoint::weights_digest(
      checkpoint::open_model_files(flags.given_model, checkpoint::kOptimizerStem));
  if (flags.adam_form != gf::AdamForm::kStandard) return moments;
  return digest(fmt::format("{} {}", moments, num_updates(flags.given_model)));
}

gf::CollectionFacts facts_of(const CollectFlags& flags, const OpenModel& model,
                             const data::RowSource& rows,
                             const std::vector<gf::ProjectedParameter>& projected) {
  gf::CollectionFacts facts{.info_type = flags.info,
                            .gradient_type = flags.type,
                            .adam_form = flags.adam_form,
                            .seed = flags.seed,
                            .output_dtype = flags.output_dtype,
                            .model_digest = model_digest(flags.model, flags.fresh()),
                            .dtype = model.dtype(),
                            .data_digest = rows.prepared().digest,
                            .data_files = data_files_of(rows.prepared()),
                            .batch_tokens = flags.batch_tokens};
  const int64_t all = rows.prepared().rows.count();
  facts.num_samples = flags.max_samples > 0 ? std::min(flags.max_samples, all) : all;
  facts.max_samples = flags.max_samples;
  facts.max_length = rows.limits().cutoff_len;
  facts.excess_length = config::to_text(rows.limits().excess_length);
  if (flags.info == gf::InfoType::kGrads) {
    facts.projection = flags.projection;
    facts.dimensions = flags.projection == gf::ProjectionKind::kFactorised
                           ? std::vector{gf::columns_of(projected)}
                           : flags.dimensions;
    for (const auto& parameter : projected) facts.parameters.push_back(parameter.name);
  } else {
    const auto channels = model.opened.config.dimensions().channels;
    facts.projection = gf::ProjectionKind::kNone;
    facts.dimensions = {flags.info == gf::InfoType::kReps ? channels : 1};
    facts.gradient_type = gf::GradientType::kSgd;
  }
  facts.projection_digest = gf::projection_digest(facts.projection, facts.seed, projected);
  if (facts.gradient_type == gf::GradientType::kAdam) {
    facts.moments_digest = moments_digest(flags);
  }
  const int64_t most = gf::most_samples_per_block(facts.dimension());
  facts.samples_per_block =
      flags.block_samples > 0 ? flags.block_samples : std::min<int64_t>(most, 128);
  gf::check_facts(facts);
  gf::check_signs_fit(facts, num_elements(projected));
  return facts;
}

gf::GradientForm form_of(const CollectFlags& flags, const gf::CollectionFacts& facts,
                         const OpenModel& model, at::Device device) {
  gf::GradientForm form(facts.gradient_type, facts.adam_form);
  if (facts.gradient_type != gf::GradientType::kAdam) return form;
  auto moments =
      gf::read_moments(flags.given_model, model.opened.model->table(), facts.parameters, device);
  const bool counts = facts.adam_form == gf::AdamForm::kStandard;
  form.set_moments(std::move(moments), counts ? num_updates(flags.given_model) : 0);
  return form;
}

void announce(const CollectFlags& flags, const gf::CollectionFacts& facts) {
  log_info("collecting {} of {} samples{}", gf::word_of(facts.info_type), facts.num_samples,
           facts.info_type == gf::InfoType::kGrads
               ? fmt::format(": {} gradients of {} parameters, projected to {}",
                             gf::word_of(facts.gradient_type), facts.parameters.size(),
                             fmt::join(facts.dimensions, " and "))
               : std::string());
  if (facts.projection == gf::ProjectionKind::kFactorised) {
    log_info(
        "the factorised projection has {} columns of the {} that were asked for, at most {} a "
        "parameter",
        facts.dimension(), flags.dimensions.back(),
        flags.dimensions.back() / std::ssize(facts.parameters));
  }
  if (facts.info_type == gf::InfoType::kGrads && !flags.why_type.empty()) {
    log_info("gradient_type is {}: {}", gf::word_of(facts.gradient_type), flags.why_type);
  }
  if (flags.new_adapter) {
    log_info(
        "{} has no adapter: one of rank {} and alpha {:g} begins beside it, of which B is zero "
        "(the gradients of A are too)",
        flags.model.weights.string(), flags.new_adapter->rank, flags.new_adapter->alpha);
  }
}

// None of a dense projection.
std::vector<gf::FactorSides> sides_of(const gf::CollectionFacts& facts,
                                      const std::vector<gf::ProjectedParameter>& projected) {
  std::vector<gf::FactorSides> sides;
  if (facts.projection != gf::ProjectionKind::kFactorised) return sides;
  for (const auto& parameter : projected) sides.push_back(parameter.sides);
  return sides;
}

void announce_end(const CollectFlags& flags, const gf::CollectResult& result) {
  if (result.stopped) {
    log_info("stopped; what has been collected is in {}: start again to continue",
             flags.output.string());
    return;
  }
  log_info("collected into {}{}; `skein gradients merge {}` orders the rows", flags.output.string(),
           result.blocks_before > 0 ? fmt::format(" ({} blocks were there)", result.blocks_before)
                                    : std::string(),
           flags.output.string());
}

// What goes one sample at a time, and what that costs.
void announce_untapped(const gf::CollectTask& task) {
  const auto untapped = gf::untapped_parameters(task.model, task.features.parameters);
  const auto& source = task.samples.source;
  if (untapped.empty() || source.count() == 0) return;
  int64_t tokens = 0;
  for (int64_t i = 0; i < source.count(); ++i) tokens += source.length(i);
  const int64_t together = std::max<int64_t>(1, task.facts.batch_tokens * source.count() / tokens);
  log_info(
      "{} {} no linear layer of a block, or one with DoRA: samples go through the model one at a "
      "time, not {} together",
      gf::name_few(untapped), untapped.size() == 1 ? "is of" : "are of", together);
}

int collect(const CollectFlags& flags, train::World& world) {
  OpenModel model(flags, world);
  const auto rows = open_rows(flags);
  const auto projected = projected_parameters(flags, *model.opened.model);
  const auto facts = facts_of(flags, model, rows, projected);
  if (world.is_first()) announce(flags, facts);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < rows.count(); ++i) numbers.push_back(rows.row_of(i));
  const gf::CollectTask task{.model = *model.opened.model,
                             .sharded = model.sharded,
                             .samples = {rows, std::move(numbers)},
                             .facts = facts,
                             .features = {.parameters = facts.parameters,
                                          .form = form_of(flags, facts, model, world.device),
                                          .seed = facts.seed,
                                          .dimension = facts.dimension(),
                                          .memory = flags.memory,
                                          .sides = sides_of(facts, projected)},
                             .output = flags.output,
                             .skips_non_finite = flags.skips_non_finite,
                             .lockstep = model.is_sharded};
  if (world.is_first()) announce_untapped(task);
  gf::CollectRanks ranks{world.group, world.stop_requested};
  const auto result = gf::collect(task, ranks);
  if (world.is_first()) announce_end(flags, result);
  return static_cast<int>(result.stopped ? ExitCode::kStopped : ExitCode::kDone);
}

}  // namespace

int run_gradients_rank(std::span<const std::string> arguments) {
  const auto flags = parse_collect_flags(arguments.subspan(1));  // behind "collect"
  return run_rank(
      {.body = [&](const config::Resolved&, train::World& world) { return collect(flags, world); },
       .ends_by_itself = true});
}

}  // namespace skein::cli
