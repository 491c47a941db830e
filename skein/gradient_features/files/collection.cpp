// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/collection.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/parallel.h"
#include "skein/core/system_failure.h"
#include "skein/gradient_features/files/new_file.h"
#include "skein/gradient_features/files/shard.h"
#include "skein/gradient_features/files/survey.h"

namespace skein::gradient_features {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{16} << 20;

// None where there is no file.
std::optional<CollectionFacts> find_collection(const fs::path& output) {
  std::string text;
  try {
    try_again([&] { text = read_file(output / kCollectionFile, kMaxTextBytes); });
  } catch (const SystemFailure& failure) {
    if (says_absent(failure.code)) return std::nullopt;
    throw;
  }
  return parse_facts(text, (output / kCollectionFile).string());
}

// Shards whose facts are lost are somebody's work: nothing is mixed with them.
void refuse_stray_shards(const fs::path& output) {
  for (const auto& folder : shard_folders(output)) {
    for (const auto& path : sorted_entries(folder)) {
      if (!block_of_name(path.filename().string())) continue;
      throw UserError(
          fmt::format("{} lies in a folder without a {}: give another output_path, or remove it",
                      path.string(), kCollectionFile));
    }
  }
}

// Rows of a collection, or files that were made of them.
bool holds_rows(const fs::path& output) {
  for (const auto& folder : shard_folders(output)) {
    for (const auto& path : sorted_entries(folder)) {
      const auto name = path.filename().string();
      if (block_of_name(name) || name == "gradients.safetensors" || name == "gradients.pt") {
        return true;
      }
    }
  }
  return false;
}

// NAME of NAME.tmp-…
std::string name_before_temporary(const std::string& name) {
  return name.substr(0, name.rfind(".tmp-"));
}

void sweep(const fs::path& output) {
  sweep_temporaries_of(output / kCollectionFile);
  for (const auto& folder : shard_folders(output)) {
    std::vector<fs::path> written;
    for (const auto& path : sorted_entries(folder)) {
      const auto name = path.filename().string();
      const auto before = name_before_temporary(name);
      if (before != name && block_of_name(before)) written.push_back(folder / before);
    }
    for (const auto& path : written) sweep_temporaries_of(path);
  }
}

// The nearest folder that is there: what the user finds with df.
fs::path existing(const fs::path& folder) {
  std::error_code ignored;
  auto path = fs::absolute(folder, ignored).lexically_normal();
  while (!fs::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path;
}

// Is there a whole copy? Warns of those that are not.
bool has_whole_copy(const std::vector<FoundShard>& copies, const KnownCollection& collection) try {
  read_copies(settle_copies(copies, collection), collection);
  return true;
} catch (const SystemFailure&) {
  throw;
} catch (const IoError& error) {
  log_warning("{}; its block is collected again", error.what());
  return false;
}

}  // namespace

fs::path folder_of_rank(const fs::path& output, int64_t rank, int64_t size) {
  return size == 1 ? output : output / fmt::format("rank_{}", rank);
}

void open_collection(const fs::path& output, const CollectionFacts& facts) {
  check_facts(facts);
  if (const auto there = find_collection(output)) {
    const auto difference = first_difference(*there, facts);
    if (difference && holds_rows(output)) {
      throw UserError(fmt::format(
          "{} holds another collection of gradients: {}. Give another output_path, or remove that "
          "folder",
          output.string(), *difference));
    }
    sweep(output);
    if (!difference) return;
    log_info("{}: no row was collected of what it describes; it is written anew",
             (output / kCollectionFile).string());
    write_file_atomically(output / kCollectionFile, facts_text(facts));
    return;
  }
  make_directories(output);
  refuse_stray_shards(output);
  sweep(output);
  write_file_atomically(output / kCollectionFile, facts_text(facts));
}

CollectionFacts read_collection(const fs::path& output) {
  auto facts = find_collection(output);
  if (!facts) {
    throw UserError(fmt::format(
        "{} holds no collection of gradients: it has no {} (`skein gradients collect` makes one)",
        output.string(), kCollectionFile));
  }
  return std::move(*facts);
}

SampleRange samples_of_block(const CollectionFacts& facts, int64_t block) {
  SKEIN_CHECK(block >= 0 && block < facts.num_blocks(), fmt::format("block {}", block));
  const int64_t first = block * facts.samples_per_block;
  return {first, std::min(first + facts.samples_per_block, facts.num_samples)};
}

std::vector<int64_t> missing_blocks(const fs::path& output, const CollectionFacts& facts) {
  const KnownCollection collection(facts);
  const auto survey = survey_shards(shard_folders(output), collection);
  for (const auto& [block, problems] : survey.damaged) {
    for (const auto& problem : problems) log_warning("{}; its block is collected again", problem);
  }
  std::vector<int64_t> blocks;
  for (const auto& [block, copies] : survey.shards) blocks.push_back(block);
  std::vector<char> is_whole(blocks.size());
  for_each_index(static_cast<int64_t>(blocks.size()), num_threads(0), [&](int64_t i) {
    const auto place = static_cast<size_t>(i);
    is_whole[place] = has_whole_copy(survey.shards.at(blocks[place]), collection) ? 1 : 0;
  });
  std::vector<int64_t> missing;
  size_t next = 0;
  for (int64_t block = 0; block < facts.num_blocks(); ++block) {
    const bool is_there = next < blocks.size() && blocks[next] == block;
    if (!is_there || is_whole[next] == 0) missing.push_back(block);
    if (is_there) ++next;
  }
  return missing;
}

void write_block(const fs::path& folder, const CollectionFacts& facts, const BlockRows& rows) {
  write_shard(folder, KnownCollection(facts), rows);
}

uint64_t bytes_to_come(const CollectionFacts& facts, int64_t num_blocks) {
  return static_cast<uint64_t>(num_blocks) * most_shard_bytes(facts, facts.samples_per_block);
}

void check_room(const fs::path& folder, uint64_t bytes, const std::string& what) {
  std::error_code error;
  const auto place = existing(folder);
  const auto space = fs::space(place, error);
  if (error || space.available >= bytes) return;
  throw DiskFull(fmt::format(
      "the disk is too small for {}: {} are needed, {} are free in {}; free some there, or give "
      "another folder",
      what, shown_bytes(bytes), shown_bytes(space.available), place.string()));
}

}  // namespace skein::gradient_features
