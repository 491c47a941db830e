// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/files/manifest.h"
#include "skein/cli/flag_set.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"

namespace skein::cli {
namespace {

using checkpoint::Manifest;
using checkpoint::Problem;
using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "skein checkpoint list DIR [--full] [--json]   the checkpoints of a run, newest first\n"
    "skein checkpoint verify DIR [--json]          read every byte of one checkpoint, or of all\n"
    "                                              of a run\n"
    "\n"
    "  --full   list: compare every byte with its digest, not only names and sizes\n"
    "  --json   for machines\n"
    "\n"
    "DIR is a run's folder or one checkpoint-STEP. verify ends with exit code 4 if anything is\n"
    "damaged, and names the file and the tensor. What a live run removes meanwhile is left out.\n";

struct Examined {
  fs::path path;
  Manifest manifest;  // empty when it could not be read
  std::vector<Problem> problems;

  bool whole() const { return problems.empty(); }
  // Not damaged: its run has removed it while it was read (save_total_limit).
  bool is_gone() const { return !whole() && !fs::exists(path); }
  std::string name() const { return path.filename().string(); }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& file : manifest.files) sum += file.size;
    return sum;
  }
};

// The manifest, and whether its files are there with their sizes.
Examined look_at(const fs::path& path) {
  Examined seen{.path = path};
  try {
    seen.manifest = checkpoint::read_manifest(path);
  } catch (const std::exception& error) {
    seen.problems.push_back({std::string(checkpoint::kManifestName), "", error.what()});
    return seen;
  }
  for (const auto& file : seen.manifest.files) {
    std::error_code error;
    const auto size = fs::file_size(path / file.name, error);
    if (error) {
      seen.problems.push_back({file.name, "", error.message()});
    } else if (size != file.size) {
      seen.problems.push_back(
          {file.name, "", fmt::format("it has {} bytes, {} were written", size, file.size)});
    }
  }
  return seen;
}

Examined read_all(const fs::path& path) {
  Examined seen{.path = path};
  seen.problems = checkpoint::verify(path, &seen.manifest);
  return seen;
}

void require_folder(const fs::path& folder) {
  if (fs::is_directory(folder)) return;
  throw UserError(fmt::format("'{}' {}", folder.string(),
                              fs::exists(folder) ? "is not a folder" : "does not exist"));
}

fs::path the_folder(const std::vector<std::string>& words, const char* verb) {
  if (words.size() != 1) {
    throw UserError(
        fmt::format("skein checkpoint {} takes one folder, not {} words", verb, words.size()));
  }
  const fs::path folder = words[0];
  require_folder(folder);
  return fs::canonical(folder);
}

Json summary(const Examined& seen) {
  const auto& manifest = seen.manifest;
  Json problems = Json::array();
  for (const auto& problem : seen.problems) {
    problems.push_back(
        {{"file", problem.file}, {"tensor", problem.tensor}, {"text", problem.text}});
  }
  return {{"path", seen.path.string()},
          {"step", manifest.step},
          {"saved_at", manifest.saved_at},
          {"bytes", seen.bytes()},
          {"ranks", manifest.conditions.size},
          {"stage", manifest.conditions.stage},
          {"tier", manifest.conditions.tier},
          {"whole", seen.whole()},
          {"problems", problems}};
}

// Names on a disk are bytes; JSON holds no others than UTF-8.
void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_row(const Examined& seen, bool full, bool latest) {
  const auto state = !seen.whole() ? "damaged: " + seen.problems.front().message()
                     : full        ? std::string("verified")
                                   : std::string("sizes match");
  const auto& manifest = seen.manifest;
  fmt::print("{:<20} {:>10}  {:<20} {:>5} {:>5} {:>5}  {}{}\n", shown(seen.name()),
             shown_bytes(seen.bytes()), shown(manifest.saved_at), manifest.conditions.size,
             manifest.conditions.stage, shown(manifest.conditions.tier), shown(state),
             latest ? ", the latest" : "");
}

std::vector<fs::path> checkpoints_of(const fs::path& folder) {
  if (fs::exists(folder / checkpoint::kManifestName) ||
      folder.filename().string().starts_with("checkpoint-")) {
    return {folder};
  }
  std::vector<fs::path> paths;
  for (const auto& listed : checkpoint::list_checkpoints(folder)) paths.push_back(listed.path);
  if (paths.empty()) throw UserError(fmt::format("'{}' holds no checkpoint", folder.string()));
  return paths;
}

void say_gone(const fs::path& path) {
  fmt::print(stderr, "{} was removed while it was read\n", path.string());
}

int list(std::span<const std::string> arguments) {
  bool json = false, full = false;
  FlagSet flags("skein checkpoint list");
  flags.add("json", json);
  flags.add("full", full);
  const auto folder = the_folder(flags.read(arguments), "list");
  std::vector<Examined> all;
  for (const auto& path : checkpoints_of(folder)) {
    if (full) fmt::print(stderr, "reading {}\n", path.string());
    all.push_back(full ? read_all(path) : look_at(path));
    if (!all.back().is_gone()) continue;
    say_gone(path);
    all.pop_back();
  }
  const Examined* latest = nullptr;
  for (const auto& seen : all) {
    if (!latest && seen.whole()) latest = &seen;
  }
  if (json) {
    Json result = {{"folder", folder.string()},
                   {"checked", full ? "digests" : "sizes"},
                   {"latest", latest ? Json(latest->name()) : Json(nullptr)},
                   {"checkpoints", Json::array()}};
    for (const auto& seen : all) result["checkpoints"].push_back(summary(seen));
    print_json(result);
    return 0;
  }
  fmt::print("{:<20} {:>10}  {:<20} {:>5} {:>5} {:>5}  {}\n", "checkpoint", "size", "saved at",
             "ranks", "stage", "tier", "state");
  for (const auto& seen : all) print_row(seen, full, &seen == latest);
  return 0;
}

int verify(std::span<const std::string> arguments) {
  bool json = false;
  FlagSet flags("skein checkpoint verify");
  flags.add("json", json);
  const auto paths = checkpoints_of(the_folder(flags.read(arguments), "verify"));
  Json results = Json::array();
  size_t damaged = 0;
  std::string first;
  for (size_t i = 0; i < paths.size(); ++i) {
    fmt::print(stderr, "reading {} ({} of {}, {})\n", paths[i].string(), i + 1, paths.size(),
               shown_bytes(look_at(paths[i]).bytes()));
    const auto seen = read_all(paths[i]);
    if (seen.is_gone()) {
      say_gone(paths[i]);
      continue;
    }
    results.push_back(summary(seen));
    if (!json) {
      fmt::print("{}: {}\n", paths[i].string(), seen.whole() ? "whole" : "damaged");
      for (const auto& problem : seen.problems) fmt::print("  {}\n", shown(problem.message()));
    }
    if (seen.whole()) continue;
    ++damaged;
    if (first.empty()) first = fmt::format("{}/{}", seen.name(), seen.problems.front().message());
  }
  if (json) print_json({{"whole", damaged == 0 && !results.empty()}, {"checkpoints", results}});
  if (damaged == 0 && !results.empty()) return 0;
  std::fflush(stdout);
  if (results.empty()) throw IoError("nothing was verified: all was removed meanwhile");
  throw IoError(fmt::format("{} of {} checkpoints damaged: {}", damaged, results.size(), first));
}

}  // namespace

int run_checkpoint_command(std::span<const std::string> arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", kUsage);
    return 0;
  }
  if (arguments.empty()) throw UserError(fmt::format("skein checkpoint needs a word:\n{}", kUsage));
  const auto& verb = arguments[0];
  if (verb == "list") return list(arguments.subspan(1));
  if (verb == "verify") return verify(arguments.subspan(1));
  throw UserError(fmt::format("skein checkpoint has no '{}'{}\n{}", verb,
                              config::did_you_mean(verb, {"list", "verify"}), kUsage));
}

}  // namespace skein::cli
