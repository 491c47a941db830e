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

// A name that only an interrupted write of ours leaves; a user's file may hold ".tmp-" too.
bool is_our_temporary(std::string_view name) {
  const auto end = name.find(kTemporary);
  if (end == std::string_view::npos) return false;
  const auto target = name.substr(0, end);
  return step_of(target) || target == "latest" || is_planned_name(target, "model") ||
         target.ends_with(".json") || target.ends_with(".yaml");
}

void warn_about(const fs::path& path, const std::vector<Problem>& problems) {
  const std::string more =
      problems.size() > 1 ? fmt::format(" ({} more problems)", problems.size() - 1) : "";
  log_warning("skipping {}: {}{}", path.string(), problems.front().message(), more);
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

std::optional<FoundCheckpoint> find_latest(const fs::path& output, int64_t at_most) {
  for (const auto& listed : list_checkpoints(output)) {
    if (listed.step > at_most) continue;
    FoundCheckpoint found{.path = listed.path};
    auto problems = verify(listed.path, &found.manifest);
    if (problems.empty() && found.manifest.step != static_cast<uint64_t>(listed.step)) {
      problems.push_back({std::string(kManifestName), "",
                          fmt::format("it is the manifest of step {}", found.manifest.step)});
    }
    if (problems.empty()) return found;
    warn_about(listed.path, problems);
  }
  return std::nullopt;
}

void sweep_temporaries(const fs::path& output) {
  std::error_code error;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(output, error)) {
    if (is_our_temporary(entry.path().filename().string())) left.push_back(entry.path());
  }
  for (const auto& path : left) {
    log_info("removing {}, left by an interrupted run", path.string());
    fs::remove_all(path, error);
    if (error) log_warning("cannot remove {}: {}", path.string(), error.message());
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

void remove_folder(const fs::path& folder) {
  fs::path doomed = folder;
  std::error_code error;
  if (folder.filename().string().find(kTemporary) == std::string::npos) {
    doomed += std::string(kTemporary) + "removed";
    fs::remove_all(doomed, error);
    fs::rename(folder, doomed, error);
    if (error && error != std::errc::no_such_file_or_directory) {
      throw IoError(fmt::format("cannot remove {}: {}", folder.string(), error.message()));
    }
  }
  // A late writer may put one more file into the folder while it is being emptied.
  for (int attempt = 0; attempt < 3 && (attempt == 0 || error); ++attempt) {
    fs::remove_all(doomed, error);
  }
  if (error) throw IoError(fmt::format("cannot remove {}: {}", doomed.string(), error.message()));
}

}  // namespace skein::checkpoint
