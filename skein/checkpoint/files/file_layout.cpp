// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/file_layout.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <unordered_set>

#include "skein/core/error.h"

namespace skein::checkpoint {
namespace {

using Entries = std::vector<TensorEntry>;

uint64_t bytes_of(const TensorEntry& entry) {
  const auto bytes = byte_count(entry.shape, entry.dtype);
  SKEIN_CHECK(bytes.has_value(), "shape of " + entry.name);
  return *bytes;
}

void check_entries(const Entries& entries) {
  std::unordered_set<std::string_view> names;
  for (const auto& entry : entries) {
    SKEIN_CHECK(!entry.name.empty() && entry.name != "__metadata__", "name of a tensor");
    SKEIN_CHECK(names.insert(entry.name).second, entry.name + " is there twice");
  }
}

// Greedy, in the given order, as Hugging Face deals them.
std::vector<Entries> deal(const Entries& entries, uint64_t max_shard_bytes) {
  std::vector<Entries> shards;
  Entries current;
  uint64_t current_bytes = 0;
  for (const auto& entry : entries) {
    const uint64_t bytes = bytes_of(entry);
    if (bytes > max_shard_bytes) {
      shards.push_back({entry});
      continue;
    }
    if (!current.empty() && current_bytes + bytes > max_shard_bytes) {
      shards.push_back(std::exchange(current, {}));
      current_bytes = 0;
    }
    current.push_back(entry);
    current_bytes += bytes;
  }
  if (!current.empty()) shards.push_back(std::move(current));
  return shards;
}

FileLayout lay_out_file(std::string name, const Entries& entries) {
  FileLayout file{.name = std::move(name)};
  file.header = build_header(entries, file.tensors);
  file.size = file.header.size() + (file.tensors.empty() ? 0 : file.tensors.back().end);
  return file;
}

std::string build_index(const Layout& layout, const Entries& entries) {
  uint64_t total_bytes = 0, total_elements = 0;
  for (const auto& entry : entries) {
    total_bytes += bytes_of(entry);
    total_elements += element_count(entry.shape).value();
  }
  nlohmann::json index;
  index["metadata"] = {{"total_parameters", total_elements}, {"total_size", total_bytes}};
  auto& map = index["weight_map"] = nlohmann::json::object();
  for (const auto& file : layout.files) {
    for (const auto& tensor : file.tensors) map[tensor.name] = file.name;
  }
  return index.dump(2, ' ', /*ensure_ascii=*/true) + "\n";
}

}  // namespace

Layout lay_out_files(const std::string& stem, const Entries& entries, uint64_t max_shard_bytes) {
  check_entries(entries);
  Layout layout;
  if (stem == kAdapterStem) max_shard_bytes = std::numeric_limits<uint64_t>::max();
  const auto shards = deal(entries, max_shard_bytes);
  if (shards.size() == 1) {
    layout.files.push_back(lay_out_file(stem + ".safetensors", shards.front()));
    return layout;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    layout.files.push_back(lay_out_file(
        fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, shards.size()), shards[i]));
  }
  if (!layout.files.empty()) {
    layout.index_name = stem + ".safetensors.index.json";
    layout.index = build_index(layout, entries);
  }
  return layout;
}

bool is_layout_name(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem)) return false;
  static const std::regex rest(R"((-\d{5}-of-\d{5})?\.safetensors|\.safetensors\.index\.json)");
  return std::regex_match(std::string(name.substr(stem.size())), rest);
}

bool is_weights_name(std::string_view name) {
  return is_layout_name(name, kModelStem) || is_layout_name(name, kAdapterStem);
}

}  // namespace skein::checkpoint
