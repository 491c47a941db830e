// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/survey.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/system_failure.h"

namespace skein::gradient_features {
namespace {

bool is_rank_folder(const fs::path& path) {
  const auto name = path.filename().string();
  std::error_code ignored;
  return name.starts_with("rank_") && name.size() > 5 &&
         name.find_first_not_of("0123456789", 5) == std::string::npos &&
         fs::is_directory(path, ignored);
}

void add_shard(const fs::path& path, int64_t block, const KnownCollection& collection,
               Survey& survey) try {
  survey.shards[block].push_back(find_shard(path, collection));
} catch (const SystemFailure&) {
  throw;  // a disk that does not answer is no damaged file
} catch (const IoError& error) {
  if (survey.shards[block].empty()) survey.shards.erase(block);
  survey.damaged[block].emplace_back(error.what());
}

}  // namespace

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  auto entry = fs::directory_iterator(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    entries.push_back(entry->path());
  }
  if (error) {
    throw SystemFailure(fmt::format("cannot list {}: {}", folder.string(), error.message()),
                        error.value());
  }
  std::ranges::sort(entries);
  return entries;
}

std::vector<fs::path> shard_folders(const fs::path& output) {
  std::vector<fs::path> folders = {output};
  for (const auto& path : sorted_entries(output)) {
    if (is_rank_folder(path)) folders.push_back(path);
  }
  return folders;
}

Survey survey_shards(const std::vector<fs::path>& folders, const KnownCollection& collection) {
  Survey survey;
  for (const auto& folder : folders) {
    for (const auto& path : sorted_entries(folder)) {
      const auto block = block_of_name(path.filename().string());
      if (block) refuse_folder(path);
      if (block) add_shard(path, *block, collection, survey);
    }
  }
  return survey;
}

int64_t num_rows(const fs::path& output, const CollectionFacts& facts) {
  const auto survey = survey_shards(shard_folders(output), KnownCollection(facts));
  int64_t count = 0;
  for (const auto& [block, copies] : survey.shards) count += copies.front().header.num_rows;
  return count;
}

std::string name_blocks(const NamedBlocks& blocks, const CollectionFacts& facts) {
  std::vector<std::string> ranges;
  const auto named =
      std::span(blocks.first).first(std::min(blocks.first.size(), size_t{kMostNamedBlocks}));
  for (const int64_t block : named) {
    const auto [first, last] = samples_of_block(facts, block);
    ranges.push_back(fmt::format("{} to {}", first, last - 1));
  }
  const auto more = blocks.count > kMostNamedBlocks
                        ? fmt::format(", and {} more", blocks.count - kMostNamedBlocks)
                        : "";
  return fmt::format("block{} {}{} (samples {}{})", blocks.count == 1 ? "" : "s",
                     fmt::join(named, ", "), more, fmt::join(ranges, ", "),
                     more.empty() ? "" : ", …");
}

void refuse_folder(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(fs::symlink_status(path, ignored))) return;
  throw UserError(fmt::format("{} is a folder, where a file belongs: remove it", path.string()));
}

}  // namespace skein::gradient_features
