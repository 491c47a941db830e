// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/watch/node_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/json.h"
#include "skein/launch/process/slow_disk.h"

namespace skein::launch {
namespace {

constexpr const char* kToken = ".skein-node-token";

// Keys that say where things lie or how a machine is used, not what is computed.
constexpr std::array<std::string_view, 8> kLocalKeys = {"train_file",
                                                        "train_file_dir",
                                                        "eval_file",
                                                        "validation_file_dir",
                                                        "data_cache_dir",
                                                        "overwrite_cache",
                                                        "preprocessing_num_workers",
                                                        "dataloader_num_workers"};

using Lines = std::map<std::string, std::string>;

Lines lines_of(const std::string& yaml) {
  Lines lines;
  std::istringstream text(yaml);
  for (std::string line; std::getline(text, line);) {
    const auto colon = line.find(": ");
    if (colon == std::string::npos) continue;
    lines[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return lines;
}

std::string value_in(const Lines& lines, const std::string& key) {
  const auto found = lines.find(key);
  return found == lines.end() ? "absent" : found->second;
}

// "learning_rate: 0.001 there, 0.0003 here (first of 2 lines that differ)"
std::string first_difference(const NodeIdentity& there, const NodeIdentity& here) {
  const auto far = lines_of(there.configuration_text), near = lines_of(here.configuration_text);
  auto all = far;
  all.insert(near.begin(), near.end());
  std::erase_if(all, [&](const auto& line) {
    return far.contains(line.first) && near.contains(line.first) &&
           far.at(line.first) == near.at(line.first);
  });
  if (all.empty()) return "digests differ";
  const auto& key = all.begin()->first;
  const auto count =
      all.size() > 1 ? fmt::format(" (first of {} lines that differ)", all.size()) : "";
  return fmt::format("{}: {} there, {} here{}", key, value_in(far, key), value_in(near, key),
                     count);
}

std::string named(const NodeIdentity& node) {
  return fmt::format("node {} ({})", node.node, node.host);
}

std::optional<std::string> compare_runs(const NodeIdentity& there, const NodeIdentity& here) {
  const auto differs = [&](const char* what, const std::string& how, const char* advice) {
    return fmt::format("{} {} than {}: {}; {}", named(there), what, named(here), how, advice);
  };
  const auto digests = [](const std::string& far, const std::string& near) {
    return fmt::format("digest {} there, {} here", far, near);
  };
  if (there.binary != here.binary) {
    return differs("runs another build of skein", digests(there.binary, here.binary),
                   "install the same files on all nodes");
  }
  if (there.configuration != here.configuration) {
    return differs("runs another configuration", first_difference(there, here),
                   "give the same file and flags on all nodes");
  }
  if (there.data != here.data) {
    return differs("has other training data", digests(there.data, here.data),
                   "share or copy the same files, then start again");
  }
  if (there.device != here.device) {
    return fmt::format(
        "{} trains on {}, {} on {}: all must use the same; set device=cpu, or look "
        "at the GPUs there (skein doctor)",
        named(there), there.device, named(here), here.device);
  }
  if (there.local_ranks != here.local_ranks) {
    return differs("starts another number of ranks",
                   fmt::format("{} there, {} here", there.local_ranks, here.local_ranks),
                   "give all nodes the same --nproc-per-node");
  }
  return std::nullopt;
}

std::optional<std::string> compare_folders(const NodeIdentity& there, const NodeIdentity& here,
                                           bool needs_shared_output) {
  if (needs_shared_output && !there.sees_token) {
    return fmt::format(
        "output_dir is not one shared folder: {} does not find in {} what {} wrote into {}; use a "
        "shared file system, or save_on_each_node=true (with ddp)",
        named(there), there.output_dir, named(here), here.output_dir);
  }
  if (!needs_shared_output && there.sees_token) {
    return fmt::format(
        "save_on_each_node=true, but {} and {} have one output_dir, {}: drop save_on_each_node",
        named(here), named(there), there.output_dir);
  }
  return std::nullopt;
}

std::string problem_of(const std::function<void()>& attempt) try {
  attempt();
  return "";
} catch (const IoError& error) {
  return error.what();
}

}  // namespace

void set_configuration(NodeIdentity& identity, const std::string& yaml) {
  auto lines = lines_of(yaml);
  const bool own_folders = value_in(lines, "save_on_each_node") == "true";
  std::erase_if(lines, [&](const auto& line) {
    return std::ranges::count(kLocalKeys, line.first) > 0 ||
           (own_folders && line.first == "output_dir");
  });
  identity.configuration_text.clear();
  for (const auto& [key, value] : lines) identity.configuration_text += key + ": " + value + "\n";
  identity.configuration = digest(identity.configuration_text);
}

std::string encode(const NodeIdentity& identity) {
  const nlohmann::ordered_json json = {{"node", identity.node},
                                       {"host", identity.host},
                                       {"local_ranks", identity.local_ranks},
                                       {"device", identity.device},
                                       {"binary", identity.binary},
                                       {"configuration", identity.configuration},
                                       {"configuration_text", identity.configuration_text},
                                       {"data", identity.data},
                                       {"output_dir", identity.output_dir},
                                       {"output_problem", identity.output_problem},
                                       {"sees_token", identity.sees_token}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<NodeIdentity> decode_identity(const std::string& text) try {
  const auto json = parse_json(text, kMessageLimits);
  return NodeIdentity{.node = json.at("node"),
                      .host = json.at("host"),
                      .local_ranks = json.at("local_ranks"),
                      .device = json.at("device"),
                      .binary = json.at("binary"),
                      .configuration = json.at("configuration"),
                      .configuration_text = json.at("configuration_text"),
                      .data = json.at("data"),
                      .output_dir = json.at("output_dir"),
                      .output_problem = json.at("output_problem"),
                      .sees_token = json.at("sees_token")};
} catch (const std::exception&) {
  return std::nullopt;
}

std::string binary_digest() {
  const fs::path self = fs::read_symlink("/proc/self/exe");
  std::string digests;
  for (const auto& path : {self.parent_path() / "skein", self.parent_path() / "skein-worker"}) {
    if (fs::exists(path)) digests += digest(read_file(path));
  }
  return digest(digests.empty() ? digest(read_file(self)) : digests);
}

std::string write_token(const fs::path& output, const std::string& token) {
  return problem_of([&] {
    make_directories(output);
    write_file_atomically(output / kToken, token);
  });
}

std::string try_to_write(const fs::path& output) {
  const auto path = temporary_beside(output / kToken);
  std::string problem;
  run_apart([&] {
    problem = problem_of([&] {
      make_directories(output);
      File::create(path).write_at(0, std::as_bytes(std::span("x", 1)));
    });
    std::error_code ignored;
    fs::remove(path, ignored);
  });
  return problem;
}

bool sees_token(const fs::path& output, const std::string& token) try {
  // Listing the folder makes a network file system forget that the file was not there.
  for (const auto& entry : fs::directory_iterator(output)) {
    if (entry.path().filename() == kToken) return read_file(entry.path(), 4096) == token;
  }
  return false;
} catch (const std::exception&) {
  return false;
}

void remove_token(const fs::path& output) {
  std::error_code ignored;
  fs::remove(output / kToken, ignored);
}

std::optional<std::string> find_difference(std::span<const NodeIdentity> nodes,
                                           bool needs_shared_output) {
  for (const auto& node : nodes) {
    if (!node.output_problem.empty()) {
      return fmt::format("{} cannot use output_dir: {}", named(node), node.output_problem);
    }
  }
  for (const auto& node : nodes.subspan(std::min<size_t>(1, nodes.size()))) {
    if (auto difference = compare_runs(node, nodes[0])) return difference;
    if (auto difference = compare_folders(node, nodes[0], needs_shared_output)) return difference;
  }
  return std::nullopt;
}

}  // namespace skein::launch
