// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/log.h"
#include "skein/core/system_failure.h"

namespace skein::checkpoint {
namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kTemporary = ".tmp-";

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && step >= 0 && std::to_string(step) == name ? std::optional(step) : std::nullopt;
}

// Files that a run replaces as a whole, each through temporary_beside().
constexpr std::string_view kReplaced[] = {"latest",
                                          "config.yaml",
                                          "skein-config.yaml",
                                          ".skein-run",
                                          "config.json",
                                          "adapter_config.json",
                                          "generation_config.json",
                                          "trainer_state.json",
                                          "trainer_log.jsonl",
                                          "training_loss.svg",
                                          "training_reward.svg",
                                          "completions.jsonl",
                                          "failures.json",
                                          "tokenizer.json",
                                          "tokenizer_config.json",
                                          "special_tokens_map.json",
                                          "tokenizer.model",
                                          "vocab.json",
                                          "merges.txt",
                                          "chat_template.jinja",
                                          ".skein-lease",
                                          ".skein-node-token",
                                          ".skein-secret",
                                          "wandb-resume.json",
                                          "latest-run"};

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A start's token; where every node has a folder of its own the folder's follows.
bool is_token(std::string_view text) {
  return is_hex(text.substr(0, text.find('-')), 8) &&
         (text.size() == 8 || is_hex(text.substr(9), 8));
}

// A name that only an interrupted write of ours leaves: a user's backup may hold ".tmp-" too.
bool is_our_temporary(std::string_view name) {
  const auto end = name.find(kTemporary);
  if (end == std::string_view::npos) return false;
  const auto target = name.substr(0, end), rest = name.substr(end + kTemporary.size());
  if (step_of(target)) return is_token(rest) || rest == "removed" || rest == "replaced";
  if (is_weights_name(target)) return is_token(rest) || is_hex(rest, 16);
  return std::ranges::count(kReplaced, target) > 0 && is_hex(rest, 16);
}

// Chat templates that a model has under names of its own lie in a folder.
constexpr const char* kTemplates = "additional_chat_templates";
bool is_temporary_template(std::string_view name) {
  const auto end = name.find(kTemporary);
  return end != std::string_view::npos && name.substr(0, end).ends_with(".jinja") &&
         is_hex(name.substr(end + kTemporary.size()), 16);
}

[[noreturn]] void fail_to_list(const fs::path& folder, const std::error_code& error) {
  throw SystemFailure(fmt::format("cannot list {}: {}", folder.string(), error.message()),
                      error.value());
}

std::vector<ListedCheckpoint> list_once(const fs::path& output) {
  std::vector<ListedCheckpoint> found;
  std::error_code error;
  for (auto entry = fs::directory_iterator(output, error); !error && entry != fs::end(entry);
       entry.increment(error)) {
    const auto step = step_of(entry->path().filename().string());
    if (!step) continue;
    std::error_code failure;
    const bool is_folder = entry->is_directory(failure);
    // A folder that is not seen would be a run that begins anew.
    if (failure && !says_absent(failure.value())) fail_to_list(entry->path(), failure);
    if (is_folder) found.push_back({*step, entry->path()});
  }
  if (error && error != std::errc::no_such_file_or_directory) fail_to_list(output, error);
  return found;
}

SurveyedCheckpoint survey_one(const ListedCheckpoint& listed,
                              const std::optional<RunRecord>& record) {
  SurveyedCheckpoint seen{.listed = listed};
  Manifest manifest;
  try {
    manifest = read_manifest(listed.path);
  } catch (const SystemFailure& failure) {
    if (!says_absent(failure.code)) throw;
    seen.has_manifest = false;
    return seen;
  } catch (const IoError&) {
    return seen;  // damaged, or not a manifest
  }
  seen.run = manifest.run;
  const bool is_own = !record || record->has_start(manifest.run);
  const bool is_left = record && (record->has_left(manifest.run, listed.step) ||
                                  record->is_being_removed(manifest.run));
  seen.relation = is_left ? Relation::kLeft : is_own ? Relation::kOwn : Relation::kStranger;
  return seen;
}

RunRecord record_with(const fs::path& output, const std::string& token) {
  auto record = read_record(output).value_or(RunRecord{});
  if (!record.has_start(token)) record.starts.push_back({.token = token});
  return record;
}

// Of this run's, newest first, those that the limit does not keep, oldest first.
std::vector<ListedCheckpoint> beyond_limit(const std::vector<ListedCheckpoint>& own,
                                           const Rotation& rotation) {
  std::vector<ListedCheckpoint> beyond;
  auto excess = static_cast<int64_t>(own.size()) - rotation.limit;
  for (auto oldest = own.rbegin(); oldest != own.rend() && excess > 0; ++oldest) {
    if (oldest->step == rotation.written_step) continue;
    if (std::ranges::count(rotation.protected_steps, oldest->step) > 0) continue;
    beyond.push_back(*oldest);
    --excess;
  }
  return beyond;
}

// Of those that stay, what has to be read before others may go: the one just written, and the
// newest other.
std::optional<ListedCheckpoint> next_to_read(const std::vector<ListedCheckpoint>& own,
                                             const std::vector<ListedCheckpoint>& beyond,
                                             const Rotation& rotation,
                                             const std::set<int64_t>& read) {
  const auto stays = [&](const ListedCheckpoint& one) {
    return std::ranges::none_of(beyond, [&](const auto& other) { return other.step == one.step; });
  };
  for (const auto& one : own) {
    if (one.step == rotation.written_step && !read.contains(one.step)) return one;
  }
  if (rotation.limit < 2 || read.size() >= 2) return std::nullopt;
  for (const auto& one : own) {
    if (stays(one) && !read.contains(one.step)) return one;
  }
  return std::nullopt;
}

// Without its manifest the rest counts as nothing.
void empty_where_it_lies(const fs::path& folder) {
  remove_tree(folder / kManifestName);
  std::vector<fs::path> inside;
  for (const auto& entry : fs::directory_iterator(folder)) inside.push_back(entry.path());
  for (const auto& path : inside) remove_tree(path);
  if (file_system().remove(folder) == 0) return;
  if (errno != EBUSY) throw_errno("cannot remove " + folder.string());
  log_warning("{} stays, empty: something is mounted on it", folder.string());
}

// A mount, or a folder of a container's image, takes no other name.
bool renamed(const fs::path& folder, const fs::path& name) try {
  if (fs::exists(folder)) rename_path(folder, name);
  return true;
} catch (const SystemFailure& error) {
  if (error.code != EBUSY && error.code != EXDEV) throw;
  return false;
}

// A folder that does not go, as an immutable one, keeps no other from going.
bool try_to_remove(const fs::path& folder) try {
  remove_folder(folder);
  return true;
} catch (const std::exception& error) {
  log_warning("{} stays: {}", folder.string(), error.what());
  return false;
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{}", kPrefix, step); }

std::vector<ListedCheckpoint> list_checkpoints(const fs::path& output) {
  std::vector<ListedCheckpoint> found;
  try_again([&] { found = list_once(output); });
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

std::vector<SurveyedCheckpoint> survey(const fs::path& output,
                                       const std::optional<RunRecord>& record) {
  std::vector<SurveyedCheckpoint> seen;
  for (const auto& listed : list_checkpoints(output)) seen.push_back(survey_one(listed, record));
  return seen;
}

std::vector<ListedCheckpoint> candidates(const std::vector<SurveyedCheckpoint>& survey) {
  std::vector<ListedCheckpoint> found;
  for (const auto& seen : survey) {
    const bool may_go_on = seen.relation == Relation::kOwn || seen.relation == Relation::kUnknown;
    if (may_go_on) found.push_back(seen.listed);
  }
  return found;
}

bool is_of_run(const fs::path& output, const fs::path& checkpoint, const std::string& token) try {
  const auto record = record_with(output, token);
  const auto run = read_manifest(checkpoint).run;
  return record.has_start(run) || record.is_being_removed(run);
} catch (const IoError&) {
  return false;  // nobody knows
}

fs::path aside_name(const fs::path& checkpoint, const std::string& token) {
  const auto name = fmt::format("{}.aside-{}", checkpoint.string(), token);
  fs::path free = name;
  std::error_code ignored;
  for (int i = 2; fs::exists(fs::symlink_status(free, ignored)); ++i) {
    free = fmt::format("{}-{}", name, i);
  }
  return free;
}

std::vector<Problem> verify(const ListedCheckpoint& listed, Manifest* manifest,
                            const Share& share) {
  Manifest accepted;
  auto problems = verify(listed.path, &accepted, share);
  if (problems.empty() && accepted.step != static_cast<uint64_t>(listed.step)) {
    problems.push_back({std::string(kManifestName), "",
                        fmt::format("it is the manifest of step {}", accepted.step)});
  }
  if (manifest != nullptr) *manifest = std::move(accepted);
  return problems;
}

void warn_skipped(const fs::path& checkpoint, const std::vector<Problem>& problems) {
  const std::string more =
      problems.size() > 1 ? fmt::format(" ({} more problems)", problems.size() - 1) : "";
  log_warning("skipping {}: {}{}", checkpoint.string(), problems.front().message(), more);
}

std::vector<fs::path> list_temporaries(const fs::path& output) {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (const char* folder : {"", "wandb", kTemplates}) {
    for (const auto& entry : fs::directory_iterator(output / folder, ignored)) {
      const auto name = entry.path().filename().string();
      const bool is_template =
          std::string_view(folder) == kTemplates && is_temporary_template(name);
      if (is_template || is_our_temporary(name)) left.push_back(entry.path());
    }
  }
  return left;
}

void sweep_temporaries(const fs::path& output) {
  for (const auto& path : list_temporaries(output)) {
    log_info("removing {}, left by an interrupted run", path.string());
    try {
      remove_tree(path);
    } catch (const IoError& failure) {
      log_warning("{}", failure.what());
    }
  }
}

void remove_old_checkpoints(const fs::path& output, const Rotation& rotation) {
  if (rotation.limit <= 0) return;
  std::vector<ListedCheckpoint> own;
  for (const auto& seen : survey(output, record_with(output, rotation.token))) {
    if (seen.relation == Relation::kOwn) own.push_back(seen.listed);
  }
  std::set<int64_t> read;
  for (auto beyond = beyond_limit(own, rotation); !beyond.empty();
       beyond = beyond_limit(own, rotation)) {
    const auto unread = next_to_read(own, beyond, rotation, read);
    if (!unread) {
      for (const auto& old : beyond) try_to_remove(old.path);
      return;
    }
    const auto problems = verify(*unread, nullptr, {.on_read = rotation.on_read});
    if (problems.empty()) {
      read.insert(unread->step);
      continue;
    }
    log_warning("{} does not count for save_total_limit, and no older one goes for it: {}",
                unread->path.string(), problems.front().message());
    if (unread->step == rotation.written_step) return;
    std::erase_if(own, [&](const auto& one) { return one.step == unread->step; });
  }
}

bool give_up_oldest(const fs::path& output, const GiveUp& what) {
  std::vector<ListedCheckpoint> own;
  for (const auto& seen : survey(output, record_with(output, what.token))) {
    if (seen.relation == Relation::kOwn) own.push_back(seen.listed);
  }
  // Read now: since it was written, or read last, the disk may have changed it.
  const auto is_whole = [](const auto& one) { return verify(one).empty(); };
  const auto verified = std::ranges::find_if(own, is_whole);
  if (verified == own.end()) return false;
  for (auto oldest = own.rbegin(); oldest != own.rend(); ++oldest) {
    if (oldest->step >= verified->step) return false;
    if (std::ranges::count(what.keep_steps, oldest->step) > 0) continue;
    log_warning("the disk is full: giving up {} (save_total_limit is set; {} stays)",
                oldest->path.string(), checkpoint_name(verified->step));
    if (try_to_remove(oldest->path)) return true;
  }
  return false;
}

void remove_folder(const fs::path& folder) {
  fs::path doomed = folder;
  if (folder.filename().string().find(kTemporary) == std::string::npos) {
    doomed += std::string(kTemporary) + "removed";
    remove_tree(doomed);
    if (!renamed(folder, doomed)) return empty_where_it_lies(folder);
  }
  // A late writer may put one more file into the folder while it is being emptied.
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      return remove_tree(doomed);
    } catch (const IoError& error) {
      log_debug("{}; trying again", error.what());
    }
  }
  remove_tree(doomed);
}

}  // namespace skein::checkpoint
