// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "skein/checkpoint/files/catalog.h"
#include "skein/config/batch_plan.h"
#include "skein/config/saved_config.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/host.h"
#include "skein/core/log.h"
#include "skein/plan/continuation.h"
#include "skein/plan/run_files.h"

namespace skein::train {
namespace {

using checkpoint::Relation;
using checkpoint::RunRecord;
using checkpoint::SurveyedCheckpoint;

// Alike for the ranks that share the folder, and for no others: host names may repeat.
std::string folder_id(const fs::path& folder) {
  struct stat info{};
  if (::stat(folder.c_str(), &info) != 0) throw_errno("cannot stat " + folder.string());
  return fmt::format(
      "{:08x}",
      static_cast<uint32_t>(hash64(fmt::format("{} {} {}", boot_id(), info.st_dev, info.st_ino))));
}

void tell_changes(const fs::path& saved, const config::Resolved& resolved) {
  if (!fs::exists(saved)) return;
  const auto changes = config::changed_keys(read_file(saved), resolved);
  if (changes.empty()) return;
  log_info("changed since the last start:\n  {}", fmt::join(changes, "\n  "));
}

// A folder without a record: what older programs have saved there is this run's.
RunRecord adopt(const std::vector<SurveyedCheckpoint>& survey) {
  RunRecord record;
  for (const auto& seen : survey) {
    if (seen.relation != Relation::kOwn || record.has_start(seen.run)) continue;
    record.starts.push_back({.token = seen.run, .step = {}, .asked = "", .began_at = ""});
  }
  return record;
}

// The run of the record is over: what it lists goes.
RunRecord begin_anew(const RunRecord& old) {
  RunRecord record{.starts = {},
                   .files = {},
                   .removing_starts = old.removing_starts,
                   .removing_files = old.removing_files};
  for (const auto& start : old.starts) record.removing_starts.push_back(start.token);
  record.removing_files.insert(record.removing_files.end(), old.files.begin(), old.files.end());
  return record;
}

// Is it one that this start neither follows nor may save over? Another program's without a manifest
// stays where it is unless the run begins anew.
bool is_in_the_way(const SurveyedCheckpoint& seen, const RunRecord& record, int64_t kept_step,
                   bool fresh) {
  if (record.is_being_removed(seen.run)) return false;
  if (fresh) return true;
  if (seen.relation == Relation::kUnknown) return seen.has_manifest && seen.listed.step > kept_step;
  return record.has_left(seen.run, seen.listed.step);
}

void remove_below(const fs::path& output, const std::string& name) {
  const auto path = output / name;
  std::error_code error;
  // Through no link that leads elsewhere.
  const auto root = fs::canonical(output, error), parent = fs::canonical(path.parent_path(), error);
  if (error || std::ranges::mismatch(root, parent).in1 != root.end()) return;
  remove_tree(path);
  if (parent == root || fs::is_symlink(path.parent_path(), error)) return;
  fs::remove(path.parent_path(), error);  // only when it is empty
}

// A start that goes on from what an interrupted --fresh was about to remove takes that back: of the
// old run nothing more goes.
void take_back(const fs::path& output, RunRecord& record) {
  log_info("{}: a --fresh that was cut off is taken back, since this start goes on from that run",
           output.string());
  for (const auto& token : record.removing_starts) {
    record.starts.push_back({.token = token, .step = {}, .asked = "", .began_at = ""});
  }
  for (const auto& name : record.removing_files) record.add_file(name);
  record.removing_starts.clear();
  record.removing_files.clear();
}

// What --fresh has written down to be removed. An interrupted removal is made up for here.
void finish_removal(const fs::path& output, RunRecord& record) {
  if (!record.is_removing()) return;
  for (const auto& seen : checkpoint::survey(output, record)) {
    if (!record.is_being_removed(seen.run)) continue;
    log_info("removing {}, of the run that --fresh has ended", seen.listed.path.string());
    checkpoint::remove_folder(seen.listed.path);
  }
  for (const auto& name : record.removing_files) remove_below(output, name);
  record.removing_starts.clear();
  record.removing_files.clear();
  checkpoint::write_record(output, record);
}

using Renames = std::vector<std::pair<fs::path, fs::path>>;

// Made up for by the next start where it fails: the record has decided.
void set_aside(const Renames& renames) {
  for (const auto& [from, to] : renames) {
    try {
      rename_path(from, to);
      log_info("{} is not continued by this run: it is {} now", from.string(), to.string());
    } catch (const IoError& error) {
      log_warning("{}; this run does not continue it", error.what());
    }
  }
}

// The checkpoint of this run that the start goes on from; 0 where it begins with anything else:
// another folder's, another run's, one that was set aside.
int64_t kept_step_of(const fs::path& output, const fs::path& begun,
                     const checkpoint::Manifest& manifest, const RunRecord& record) {
  const auto step = static_cast<int64_t>(manifest.step);
  std::error_code error;
  const bool is_followed = record.has_start(manifest.run) && !record.has_left(manifest.run, step) &&
                           fs::equivalent(begun, output / checkpoint::checkpoint_name(step), error);
  return is_followed ? step : 0;
}

// `latest` follows: what it named may have another name now.
void point_latest(const fs::path& output, int64_t step) try {
  if (!fs::is_symlink(output / "latest") || fs::exists(output / "latest")) return;
  if (step == 0) return remove_tree(output / "latest");
  replace_symlink(output / "latest", checkpoint::checkpoint_name(step));
} catch (const IoError& error) {
  log_warning("{}", error.what());
}

// A later start begins with it.
void note_given_up(const config::Resolved& resolved, const World& world, RunRecord& record) {
  if (world.given_up.empty()) return;
  const int64_t ranks = world.group.size();
  const auto batches = config::plan_batches(resolved, ranks);
  record.given_up = {
      .words = world.given_up, .ranks = ranks, .rows = batches.per_device * batches.accumulation};
}

// What the folder's record is before this start enters it, and the step that the start goes on
// from.
std::pair<RunRecord, int64_t> record_before(const fs::path& output,
                                            const std::optional<RunRecord>& old,
                                            const std::vector<SurveyedCheckpoint>& survey,
                                            const Beginning& beginning, bool fresh) {
  auto record = fresh ? begin_anew(old.value_or(RunRecord())) : old ? *old : adopt(survey);
  if (!beginning.checkpoint) return {std::move(record), 0};
  const auto manifest = checkpoint::read_manifest(*beginning.checkpoint);
  if (!fresh && record.is_being_removed(manifest.run)) take_back(output, record);
  const auto step = kept_step_of(output, *beginning.checkpoint, manifest, record);
  return {std::move(record), step};
}

void claim(const fs::path& output, const config::Resolved& resolved, const Beginning& beginning,
           const World& world) {
  const auto token = start_token(output, world);
  const bool fresh = resolved.config.checkpoint.fresh;
  const auto old = checkpoint::read_record(output);
  const auto survey = checkpoint::survey(output, old);
  auto [record, kept_step] = record_before(output, old, survey, beginning, fresh);
  record.starts.push_back(
      {.token = token,
       .step = kept_step,
       .asked = beginning.asked,
       .began_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))});
  Renames renames;
  for (const auto& seen : survey) {
    if (!is_in_the_way(seen, record, kept_step, fresh)) continue;
    renames.emplace_back(seen.listed.path, checkpoint::aside_name(seen.listed.path, token));
    // A folder that nobody can tell to be this run's is a user's: --fresh leaves it.
    if (record.has_start(seen.run)) record.add_file(renames.back().second.filename().string());
  }
  const auto name = plan::config_name(output);
  const bool is_run = plan::is_run_folder(old, survey);
  for (const char* file : plan::kRunFiles) {
    const bool is_users = !is_run && fs::exists(fs::symlink_status(output / file));
    if (!is_users) record.add_file(file);
  }
  record.add_file(name);
  note_given_up(resolved, world, record);
  checkpoint::write_record(output, record);  // the decision
  finish_removal(output, record);
  set_aside(renames);
  point_latest(output, kept_step);
  if (beginning.checkpoint && !fresh) tell_changes(output / name, resolved);
  if (name != "config.yaml") {
    log_info("{} was not written by skein and stays: the configuration of this run is in {}",
             (output / "config.yaml").string(), (output / name).string());
  }
  write_file_atomically(output / name, config::to_yaml(resolved));
}

}  // namespace

void open_folder(const fs::path& output, World& world) {
  if (world.leads_output()) {
    make_directories(output / "logs");
    checkpoint::sweep_temporaries(output);
    add_log_file(output / "logs" / "training.log");
  }
  world.group.barrier();
  add_log_file(output / "logs" / fmt::format("rank-{}.log", world.group.rank()));
}

std::string start_token(const fs::path& output, const World& world) {
  return world.own_output ? fmt::format("{}-{}", world.token, folder_id(output)) : world.token;
}

void claim_folder(const fs::path& output, const config::Resolved& resolved,
                  const Beginning& beginning, World& world) {
  world.group.barrier();  // a rank that could not load its part must be able to refuse
  if (world.leads_output()) claim(output, resolved, beginning, world);
  world.group.barrier();
}

void record_files(const fs::path& output, const std::string& token,
                  const std::vector<fs::path>& paths) {
  auto found = checkpoint::read_record(output);
  // Somebody has deleted it: the next start must know this one's checkpoints all the same.
  auto record = found ? *std::move(found) : adopt(checkpoint::survey(output, std::nullopt));
  if (!record.has_start(token)) {
    record.starts.push_back({.token = token, .step = {}, .asked = "", .began_at = ""});
  }
  for (const auto& path : paths) {
    const auto name = path.lexically_relative(output).string();
    if (!name.empty() && !name.starts_with("..")) record.add_file(name);
  }
  checkpoint::write_record(output, record);
}

bool has_final_model(const fs::path& output, int64_t steps, World& world) {
  const bool lacks_it = world.leads_output() && !plan::has_final_model(output, steps);
  return world.group.sum(int64_t{lacks_it}) == 0;
}

}  // namespace skein::train
