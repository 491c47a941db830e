// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/row_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/ordered_work.h"
#include "skein/core/parallel.h"
#include "skein/core/system_failure.h"
#include "skein/gradient_features/files/shard.h"
#include "skein/gradient_features/files/survey.h"

namespace skein::gradient_features {
namespace {

constexpr int64_t kMostReadAhead = int64_t{192} << 20;  // bytes of rows as floats
constexpr int64_t kBlocksPerThread = 3;                 // OrderedWork's
constexpr int64_t kReadersPerThread = 2;  // while one waits for the disk, another compares digests
constexpr size_t kMostProblems = 5;

int readers_for(const CollectionFacts& facts, int threads) {
  const int64_t block =
      facts.samples_per_block * facts.dimension() * static_cast<int64_t>(sizeof(float));
  const int64_t most = std::max<int64_t>(1, kMostReadAhead / (kBlocksPerThread * block));
  return static_cast<int>(std::min<int64_t>(kReadersPerThread * num_threads(threads), most));
}

// `count` blocks, of which these are the first.
[[noreturn]] void refuse_blocks(const std::string& what, const NamedBlocks& blocks,
                                const std::vector<std::string>& problems,
                                const CollectionFacts& facts) {
  const auto shown = std::span(problems).first(std::min(problems.size(), kMostProblems));
  throw DamagedRows(
      fmt::format("{}: {}{}{}. Start `skein gradients collect` again as before: it makes "
                  "what is missing",
                  what, name_blocks(blocks, facts), problems.empty() ? "" : ": ",
                  fmt::join(shown, "; ")),
      blocks.first);
}

// Before anything is read.
void require_all_blocks(const Survey& survey, const CollectionFacts& facts,
                        const fs::path& output) {
  // A file can say that it has any number of blocks: nothing is held for each of them.
  NamedBlocks missing{.count = facts.num_blocks() - std::ssize(survey.shards), .first = {}};
  if (missing.count == 0) return;
  const auto named = std::min<int64_t>(missing.count, kMostNamedBlocks);
  for (int64_t block = 0; std::ssize(missing.first) < named; ++block) {
    if (!survey.shards.contains(block)) missing.first.push_back(block);
  }
  std::vector<std::string> problems;
  for (const auto& [block, found] : survey.damaged) {
    if (survey.shards.contains(block)) continue;
    problems.insert(problems.end(), found.begin(), found.end());
  }
  refuse_blocks(
      fmt::format("{} lacks {} of {} blocks", output.string(), missing.count, facts.num_blocks()),
      missing, problems, facts);
}

}  // namespace

struct RowReader::State {
  using Copies = std::vector<FoundShard>;

  State(KnownCollection known, Survey survey, int threads)
      : collection(std::move(known)), readers(readers_for(collection.facts, threads)) {
    for (auto& [block, copies] : survey.shards) {
      blocks.push_back(settle_copies(std::move(copies), collection));
    }
  }

  std::optional<ReadBlock> next() {
    if (!work) {
      work.emplace(
          [this]() -> std::optional<size_t> {
            if (taken == blocks.size()) return std::nullopt;
            return taken++;
          },
          [this](size_t place) { return read_copies(blocks[place], collection, shelf); }, readers);
    }
    auto block = work->next();
    if (block) ++done;
    return block;
  }

  // Damage is rare: what follows is read once more, to name all of it at once.
  [[noreturn]] void report_damage(const IoError& first) {
    std::vector<int64_t> damaged = {blocks[done].front().header.block};
    std::vector<std::string> problems = {first.what()};
    for (size_t place = done + 1; place < blocks.size(); ++place) {
      try {
        read_copies(blocks[place], collection);
      } catch (const SystemFailure&) {
        throw;
      } catch (const IoError& error) {
        damaged.push_back(blocks[place].front().header.block);
        problems.emplace_back(error.what());
      }
    }
    refuse_blocks("rows are damaged", all_named(damaged), problems, collection.facts);
  }

  KnownCollection collection;
  int readers;
  std::vector<Copies> blocks;
  size_t taken = 0;  // by the threads
  size_t done = 0;
  std::shared_ptr<spill::PageShelf> shelf = std::make_shared<spill::PageShelf>();
  std::optional<OrderedWork<size_t, ReadBlock>> work;  // last: its threads use the others
};

RowReader::RowReader(const fs::path& output, int threads) {
  KnownCollection collection(read_collection(output));
  auto survey = survey_shards(shard_folders(output), collection);
  require_all_blocks(survey, collection.facts, output);
  state_ = std::make_unique<State>(std::move(collection), std::move(survey), threads);
}

RowReader RowReader::of_folder(const fs::path& folder, const CollectionFacts& facts,
                               const std::set<int64_t>& without) {
  KnownCollection collection(facts);
  auto survey = survey_shards({folder}, collection);
  for (const int64_t block : without) {
    survey.shards.erase(block);
    survey.damaged.erase(block);
  }
  std::vector<int64_t> damaged;
  std::vector<std::string> problems;
  for (const auto& [block, found] : survey.damaged) {
    if (block < facts.num_blocks()) damaged.push_back(block);
    problems.insert(problems.end(), found.begin(), found.end());
  }
  if (!damaged.empty()) refuse_blocks("rows are damaged", all_named(damaged), problems, facts);
  return RowReader(std::make_unique<State>(std::move(collection), std::move(survey), 0));
}

RowReader::RowReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
RowReader::RowReader(RowReader&&) noexcept = default;
RowReader& RowReader::operator=(RowReader&&) noexcept = default;
RowReader::~RowReader() = default;

const CollectionFacts& RowReader::facts() const { return state_->collection.facts; }
int64_t RowReader::num_blocks() const { return static_cast<int64_t>(state_->blocks.size()); }

int64_t RowReader::num_rows() const {
  int64_t count = 0;
  for (const auto& copies : state_->blocks) count += copies.front().header.num_rows;
  return count;
}

std::vector<SkippedSample> RowReader::skipped() const {
  std::vector<SkippedSample> all;
  for (const auto& copies : state_->blocks) {
    const auto& skipped = copies.front().header.skipped;
    all.insert(all.end(), skipped.begin(), skipped.end());
  }
  return all;
}

std::vector<std::string> RowReader::block_digests() const {
  std::vector<std::string> digests;
  for (const auto& copies : state_->blocks) digests.push_back(copies.front().header.digest);
  return digests;
}

std::optional<ReadBlock> RowReader::next() try {
  return state_->next();
} catch (const SystemFailure&) {
  throw;
} catch (const IoError& error) {
  state_->report_damage(error);
}

}  // namespace skein::gradient_features
