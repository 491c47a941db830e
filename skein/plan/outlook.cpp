// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/outlook.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "skein/config/output_folder.h"
#include "skein/config/syntax/values.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/plan/continuation.h"
#include "skein/plan/disk_space.h"
#include "skein/plan/finetune.h"
#include "skein/plan/ladder.h"
#include "skein/plan/preferences.h"
#include "skein/plan/refusals.h"
#include "skein/plan/run_files.h"
#include "skein/plan/run_model.h"
#include "skein/plan/steps/rollout_plan.h"

namespace skein::plan {
namespace {

DiskOutlook count_disk(const config::RunConfig& config, const Outlook& outlook) {
  const auto bytes = checkpoint_bytes(outlook.model->shapes, config, outlook.dtype);
  const auto optimizer = config.checkpoint.save_only_model ? 0 : bytes.optimizer;
  const auto critic = config.checkpoint.save_only_model ? 0 : bytes.critic;
  DiskOutlook disk{
      .model_bytes = bytes.model, .optimizer_bytes = optimizer, .critic_bytes = critic};
  if (outlook.steps && outlook.steps->save_every > 0) {
    const auto& steps = *outlook.steps;
    disk.checkpoints = (steps.total_steps + steps.save_every - 1) / steps.save_every;
    disk.checkpoints =
        std::min(disk.checkpoints, config.checkpoint.save_total_limit.value_or(disk.checkpoints));
  }
  disk.total_bytes = disk.model_bytes + static_cast<uint64_t>(disk.checkpoints) *
                                            (disk.model_bytes + disk.optimizer_bytes + critic);
  disk.free_bytes = free_space(config::output_folder(config.checkpoint));
  return disk;
}

std::vector<std::string> files_to_write(const config::RunConfig& config, const Outlook& outlook) {
  const auto folder = config::output_folder(config.checkpoint);
  if (folder.empty()) return {};
  auto names = files_of_run({.config = config,
                             .shapes = outlook.model ? &outlook.model->shapes : nullptr,
                             .dtype = outlook.dtype,
                             .saves = outlook.steps && outlook.steps->save_every > 0},
                            folder);
  for (auto& name : names) name = (folder / name).string();
  return names;
}

void resolve_autos(const config::RunConfig& config, const Place& place, Outlook& outlook) {
  const auto add = [&](const char* key, std::string value) {
    outlook.resolved.emplace_back(key, std::move(value));
  };
  const bool wide = has_wide_gradients(config.optimizer, outlook.batches);
  add("device", config::to_text(place.device));
  add("dtype", std::string(dtype_word(outlook.dtype)));
  add("distributed_strategy", config::to_text(strategy_of(outlook.stage)));
  add("ddp_backend", backend(config.parallel, place.device));
  add("data_seed", fmt::format("{}", data_seed(config)));
  add("gradients", std::string(dtype_word(gradient_dtype(outlook.dtype, wide))));
}

// Rows lie behind each other without padding: a micro-batch has at most so many for each.
int64_t tokens_of_row(const config::RunConfig& config, const DataOutlook& data) {
  if (config::is_online(config.stage)) {
    const auto& rollout = config.rollout;
    const auto prompt = data.longest > 0 ? data.longest : rollout.max_prompt_length;
    return prompt + rollout.max_completion_length;
  }
  return data.longest > 0 && !config.rows.packing ? data.longest : config.data.block_size;
}

ModelOutlook measure_model(const config::RunConfig& config, const Machine& machine,
                           Outlook& outlook) {
  const RunMemory memory(config, read_run_model(config), machine,
                         tokens_of_row(config, outlook.data));
  ModelOutlook model{.shapes = memory.shapes(),
                     .dimensions = memory.dimensions(),
                     .choice = asked_choice(config, outlook.batches),
                     .tokens = tokens_of_row(config, outlook.data)};
  for (auto choice = model.choice; int stage : {0, 1, 2, 3}) {
    choice.stage = stage;
    model.stages.push_back(memory.needs(choice));
  }
  const auto& needed = model.stages[static_cast<size_t>(outlook.stage)];
  model.fits = memory.fits(needed);
  if (!model.fits) {
    auto warning =
        fmt::format("{}: {}", memory.comparison(needed), smallest_change(memory, model.choice));
    const bool is_told = std::ranges::count(outlook.warnings, warning) > 0;
    if (!is_told) outlook.warnings.push_back(std::move(warning));
  }
  return model;
}

void warn_of_full_disk(Outlook& outlook) {
  const auto& disk = outlook.disk;
  if (!disk || !disk->free_bytes) return;
  // The old checkpoint goes after the new one is whole; a stop saves one more where none is due.
  const auto while_saving =
      disk->total_bytes + disk->model_bytes + disk->optimizer_bytes + disk->critic_bytes;
  if (while_saving > *disk->free_bytes) {
    outlook.warnings.push_back(fmt::format(
        "the disk is too small for what a run writes there, up to {} with {}, and {} are free: "
        "{}choose another output_dir",
        shown_bytes(while_saving),
        disk->checkpoints > 0 ? "one more checkpoint while it is saved"
                              : "the checkpoint that a stop (SIGTERM) saves",
        shown_bytes(*disk->free_bytes),
        disk->checkpoints > 1 ? "lower save_total_limit, or " : ""));
  }
}

std::optional<Continuation> find_continuation(const config::Resolved& resolved,
                                              const std::optional<fs::path>& checkpoint,
                                              const Outlook& outlook) {
  const auto& config = resolved.config;
  if (config.model.model_name_or_path.empty()) return std::nullopt;
  const int64_t total = outlook.steps ? outlook.steps->total_steps : -1;
  if (checkpoint) {
    const auto state = read_trainer_state(*checkpoint);
    const auto early =
        reason_to_end(config.eval, state.history, judged_since(state, objective_of(config)));
    const bool ended = (total >= 0 && state.step >= total) || early;
    const auto output = config::output_folder(config.checkpoint);
    return Continuation{.checkpoint = *checkpoint,
                        .step = state.step,
                        .nothing_left = ended && has_final_model(output, state.step),
                        .ended_early = early};
  }
  const auto model = read_run_model(config);
  auto identity = identity_before_data(resolved, outlook.batches, model);
  identity.total_steps = total;
  if (!is_finished(config, model, identity)) return std::nullopt;
  const auto output = config::output_folder(config.checkpoint);
  const auto state = read_trainer_state(output);
  return Continuation{.step = state.step,
                      .nothing_left = true,
                      .ended_early = reason_to_end(config.eval, state.history,
                                                   judged_since(state, identity.objective))};
}

// What this machine's disks and memory refuse is a warning where the plan is for another one.
void check_here(const Machine& machine, std::vector<std::string>& warnings,
                const std::function<void()>& check) try {
  check();
} catch (const UserError& error) {
  if (machine.is_here) throw;
  warnings.emplace_back(error.what());
} catch (const IoError& error) {
  if (machine.is_here) throw;
  warnings.emplace_back(error.what());
}

}  // namespace

Outlook look_ahead(const config::Resolved& given, const Machine& machine) {
  std::vector<std::string> of_machine;
  const auto checkpoint = check_run_elsewhere(given, machine.ranks, machine.place);
  check_here(machine, of_machine, [&] { check_nvme_folder(given); });
  check_here(machine, of_machine, [&] { check_folders(given.config); });
  auto resolved = given;
  auto reasons = settle_autos(resolved, machine);
  const Ladder ladder(given, resolved, machine);
  if (const auto given_up = ladder.recorded(); !given_up.empty()) {
    resolved = ladder.without(given_up);
    reasons.push_back(given_up + ", since an earlier start ran out of memory");
  }
  const auto& config = resolved.config;
  Outlook outlook{.batches = config::plan_batches(resolved, machine.ranks),
                  .stage = zero_stage(config.parallel.distributed_strategy),
                  .dtype = working_dtype(config.model.dtype, machine.place),
                  .reasons = std::move(reasons),
                  .warnings = run_warnings(resolved, machine.place)};
  auto& warnings = outlook.warnings;
  warnings.insert(warnings.end(), of_machine.begin(), of_machine.end());
  if (config::is_online(config.stage)) outlook.rollout = rollout_plan(config, outlook.batches);
  resolve_autos(config, machine.place, outlook);
  outlook.peak_learning_rate = peak_learning_rate(config, outlook.batches);
  outlook.data = look_at_data(config, samples_per_step(config, outlook.batches));
  if (config.schedule.max_steps > 0 || outlook.data.steps_per_epoch > 0) {
    outlook.steps = plan_run(config, outlook.data.steps_per_epoch);
  }
  outlook.continues = find_continuation(resolved, checkpoint, outlook);
  if (!config.model.model_name_or_path.empty()) {
    check_here(machine, warnings, [&] {
      if (!config::output_folder(config.checkpoint).empty()) check_disk(config, machine.place);
    });
    check_here(machine, warnings, [&] { check_offload_room(resolved, machine); });
    const auto run_model = read_run_model(config);
    const auto dimensions = run_model.dimensions();
    if (auto note = sharing_note(config, run_model); !note.empty()) {
      outlook.reasons.push_back(std::move(note));
    }
    auto warning = check_longest_row(resolved, dimensions, outlook.data.longest);
    if (!warning.empty()) warnings.push_back(std::move(warning));
    outlook.model = measure_model(config, machine, outlook);
    outlook.disk = count_disk(config, outlook);
  }
  outlook.files = files_to_write(config, outlook);
  warn_of_full_disk(outlook);
  return outlook;
}

}  // namespace skein::plan
