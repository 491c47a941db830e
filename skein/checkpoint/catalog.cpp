// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "skein/checkpoint/plan.h"
#include "skein/core/error.h"
#include "skein/core/log.h"

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

// Files that a run replaces as a whole, each through temporary_beside() (once NAME.tmp-PID).
constexpr std::string_view kReplaced[] = {"latest",
                                          "config.yaml",
                                          "config.json",
                                          "generation_config.json",
                                          "trainer_state.json",
                                          "trainer_log.jsonl",
                                          "training_loss.svg",
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

bool is_random_or_number(std::string_view text) {
  if (text.size() == 16)
    return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// A name that only an interrupted write of ours leaves; a user's file may hold ".tmp-" too.
bool is_our_temporary(std::string_view name) {
  const auto end = name.find(kTemporary);
  if (end == std::string_view::npos) return false;
  const auto target = name.substr(0, end), rest = name.substr(end + kTemporary.size());
  if (step_of(target)) return true;
  if (is_planned_name(target, "model")) return rest.find('.') == std::string_view::npos;
  return std::ranges::count(kReplaced, target) > 0 && is_random_or_number(rest);
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{}", kPrefix, step); }

std::vector<ListedCheckpoint> list_checkpoints(const fs::path& output) {
  std::vector<ListedCheckpoint> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output, error)) {
    const auto step = step_of(entry.path().filename().string());
    std::error_code ignored;
    if (step && entry.is_directory(ignored)) found.push_back({*step, entry.path()});
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw IoError(fmt::format("cannot list {}: {}", output.string(), error.message()));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

std::vector<Problem> verify(const ListedCheckpoint& listed, Manifest* manifest, Share share) {
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

std::optional<FoundCheckpoint> find_latest(const fs::path& output, int64_t at_most) {
  for (const auto& listed : list_checkpoints(output)) {
    if (listed.step > at_most) continue;
    FoundCheckpoint found{.path = listed.path};
    const auto problems = verify(listed, &found.manifest);
    if (problems.empty()) return found;
    warn_skipped(listed.path, problems);
  }
  return std::nullopt;
}

std::vector<fs::path> list_temporaries(const fs::path& output) {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (const auto& folder : {output, output / "wandb"}) {
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (is_our_temporary(entry.path().filename().string())) left.push_back(entry.path());
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

void remove_old_checkpoints(const fs::path& output, int64_t limit,
                            const std::vector<int64_t>& keep_steps) {
  if (limit <= 0) return;
  auto listed = list_checkpoints(output);
  auto excess = static_cast<int64_t>(listed.size()) - limit;
  for (auto oldest = listed.rbegin(); oldest != listed.rend() && excess > 0; ++oldest) {
    if (std::ranges::count(keep_steps, oldest->step) > 0) continue;
    remove_folder(oldest->path);
    --excess;
  }
}

bool give_up_oldest(const fs::path& output, int64_t verified_step,
                    const std::vector<int64_t>& keep_steps) {
  const auto listed = list_checkpoints(output);
  if (std::ranges::count(listed, verified_step, &ListedCheckpoint::step) == 0) {
    const auto found = find_latest(output);
    if (!found) return false;
    verified_step = static_cast<int64_t>(found->manifest.step);
  }
  for (auto oldest = listed.rbegin(); oldest != listed.rend(); ++oldest) {
    if (oldest->step >= verified_step) return false;
    if (std::ranges::count(keep_steps, oldest->step) > 0) continue;
    log_warning("the disk is full: giving up {} (save_total_limit is set; {} stays)",
                oldest->path.string(), checkpoint_name(verified_step));
    remove_folder(oldest->path);
    return true;
  }
  return false;
}

void remove_folder(const fs::path& folder) {
  fs::path doomed = folder;
  if (folder.filename().string().find(kTemporary) == std::string::npos) {
    doomed += std::string(kTemporary) + "removed";
    remove_tree(doomed);
    if (fs::exists(folder)) rename_path(folder, doomed);
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
