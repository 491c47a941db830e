// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/ladder.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

#include "skein/checkpoint/files/run_record.h"
#include "skein/config/batch_plan.h"
#include "skein/config/output_folder.h"
#include "skein/config/put_words.h"
#include "skein/core/amounts.h"
#include "skein/plan/run_model.h"

namespace skein::plan {
namespace {

// A rung costs a start: it is to need a tenth less, where there is such a one.
constexpr int64_t kWorthwhile = 10;

RunMemory memory_of(const config::Resolved& resolved, const Machine& machine) {
  const auto& config = resolved.config;
  return {config, read_run_model(config), machine, config.data.block_size};
}

Choice choice_of(const config::Resolved& resolved, const Machine& machine) {
  return asked_choice(resolved.config, config::plan_batches(resolved, machine.ranks));
}

bool is_rung(const Choice& from, const Choice& to, const OpenParts& open) {
  if (to.recompute != from.recompute) return open.recompute;
  if (to.per_device != from.per_device) return 2 * to.per_device <= from.per_device;
  return open.stage && to.stage >= from.stage;
}

}  // namespace

std::optional<Choice> one_rung_down(const RunMemory& memory, const Choice& from,
                                    const OpenParts& open) {
  const auto needed = memory.needs(from).needed();
  std::optional<Choice> least;
  auto least_needed = needed;
  for (const auto& change : smaller_choices(memory, from)) {
    const auto all = memory.needs(change);
    if (!is_rung(from, change, open) || !memory.fits_host(all)) continue;
    const auto bytes = all.needed();
    if (bytes <= needed - needed / kWorthwhile) return change;
    if (bytes >= least_needed) continue;
    least = change;
    least_needed = bytes;
  }
  return least;
}

Ladder::Ladder(config::Resolved asked, config::Resolved settled, const Machine& machine)
    : asked_(std::move(asked)), settled_(std::move(settled)), machine_(machine) {}

bool Ladder::is_open() const {
  const auto& config = asked_.config;
  return !config.model.model_name_or_path.empty() &&
         (config.parallel.distributed_strategy == config::Strategy::kAuto ||
          config.batch.auto_find_batch_size);
}

std::string Ladder::recorded() const {
  const auto& checkpoint = asked_.config.checkpoint;
  const auto output = config::output_folder(checkpoint);
  // What could not be settled is refused before any rank starts.
  const bool settled = settled_.config.parallel.distributed_strategy != config::Strategy::kAuto;
  if (!is_open() || !settled || checkpoint.fresh || output.empty()) return "";
  const auto record = checkpoint::read_record(output);
  if (!record || !record->given_up) return "";
  const auto& [words, ranks, rows] = *record->given_up;
  const auto choice = choice_of(settled_, machine_);
  const bool is_same = ranks == machine_.ranks && rows == choice.per_device * choice.accumulation;
  return is_same ? still_open(words) : "";
}

// Of the words those whose keys this start leaves to `auto`: what is typed now counts, a
// micro-batch where it is no larger than the one that was come down to.
std::string Ladder::still_open(const std::string& words) const {
  const bool open_stage = asked_.config.parallel.distributed_strategy == config::Strategy::kAuto;
  const bool offloads = offload_of(asked_.config.offload).any();
  const auto recorded = choice_of(without(words), machine_);
  const bool smaller = choice_of(settled_, machine_).per_device <= recorded.per_device;
  const auto is_open = [&](const std::string& key) {
    if (key == "gradient_checkpointing") return !asked_.origins.contains(key);
    if (key.starts_with("offload_")) return open_stage && !offloads;
    if (key == "distributed_strategy") return open_stage;
    return (asked_.config.batch.auto_find_batch_size || open_stage) && !smaller;
  };
  std::string kept;
  std::istringstream list(words);
  for (std::string word; list >> word;) {
    if (is_open(word.substr(0, word.find('=')))) kept += (kept.empty() ? "" : " ") + word;
  }
  return kept;
}

std::string Ladder::lower(const std::string& given_up) const {
  const auto now = without(given_up);
  const auto& checkpoint = asked_.config.checkpoint;
  const bool given = asked_.origins.contains("gradient_checkpointing");
  const bool open_stage = asked_.config.parallel.distributed_strategy == config::Strategy::kAuto;
  const auto next =
      one_rung_down(memory_of(now, machine_), choice_of(now, machine_),
                    {.recompute = !given, .stage = open_stage && !checkpoint.save_on_each_node});
  return next ? typed_keys(choice_of(settled_, machine_), *next) : "";
}

config::Resolved Ladder::without(const std::string& given_up) const {
  auto resolved = settled_;
  config::put_words(resolved, given_up, "lowered: the first update ran out of memory");
  return resolved;
}

std::string advice_without_memory(const config::Resolved& settled, const Machine& machine) {
  const auto memory = memory_of(settled, machine);
  const auto from = choice_of(settled, machine);
  const auto next = one_rung_down(memory, from);
  if (!next) return beyond_choices(memory.shapes());
  const auto saved = memory.needs(from).needed() - memory.needs(*next).needed();
  return fmt::format("{} needs about {} less{}", typed_keys(from, *next),
                     shown_bytes(static_cast<uint64_t>(saved)),
                     next->per_device == from.per_device ? "" : ", and the global batch stays");
}

}  // namespace skein::plan
