// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <set>

#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/parallel.h"
#include "skein/core/progress.h"
#include "skein/core/stop_signals.h"
#include "skein/gradient_features/files/merged_file.h"
#include "skein/gradient_features/files/pt_writer.h"
#include "skein/gradient_features/files/row_reader.h"
#include "skein/gradient_features/files/survey.h"

namespace skein::gradient_features {
namespace {

constexpr double kLeastLength = 1e-12;  // torch.nn.functional.normalize's

// One of the files that rows go to.
class Output {
 public:
  virtual ~Output() = default;
  virtual void add(const ReadBlock& block) = 0;
  virtual void commit() = 0;
};

class MergedOutput final : public Output {
 public:
  MergedOutput(const fs::path& path, const RowReader& reader) : file_(path, reader) {}
  void add(const ReadBlock& block) override { file_.append(block); }
  void commit() override { file_.commit(); }

 private:
  MergedFile file_;
};

// The beginnings of a block's rows, one for every sample of the block: zeros where it has none.
class AllRows {
 public:
  AllRows(int64_t whole, int64_t columns)
      : whole_(static_cast<size_t>(whole)), zeros_(static_cast<size_t>(columns)) {}

  std::vector<std::span<const float>> of(const ReadBlock& block) const {
    std::vector<std::span<const float>> rows(
        static_cast<size_t>(block.range.last - block.range.first), zeros_);
    for (size_t i = 0; i < block.samples.size(); ++i) {
      rows[static_cast<size_t>(block.samples[i] - block.range.first)] =
          block.rows.subspan(i * whole_, zeros_.size());
    }
    return rows;
  }

 private:
  size_t whole_;
  std::vector<float> zeros_;
};

// Four rows at a time, each from its front: sums wait for the one before.
std::vector<float> factors_to_length_one(const std::vector<std::span<const float>>& rows) {
  constexpr size_t kTogether = 4;
  std::vector<float> factors;
  for (size_t first = 0; first < rows.size(); first += kTogether) {
    std::array<const float*, kTogether> values{};
    std::array<double, kTogether> squares{};
    for (size_t i = 0; i < kTogether; ++i)
      values[i] = rows[std::min(first + i, rows.size() - 1)].data();
    for (size_t c = 0; c < rows.front().size(); ++c) {
      for (size_t i = 0; i < kTogether; ++i) {
        squares[i] += static_cast<double>(values[i][c]) * values[i][c];
      }
    }
    for (size_t i = 0; i < std::min(kTogether, rows.size() - first); ++i) {
      factors.push_back(static_cast<float>(1 / std::max(std::sqrt(squares[i]), kLeastLength)));
    }
  }
  return factors;
}

// dimD/all_unormalized.pt or dimD/all_orig.pt.
class WholeOutput final : public Output {
 public:
  WholeOutput(const fs::path& path, const CollectionFacts& facts, int64_t columns, bool normalised)
      : rows_(facts.dimension(), columns),
        normalised_(normalised),
        scaled_(static_cast<size_t>(columns)),
        writer_(path, facts.output_dtype, {facts.num_samples, columns}) {}

  void add(const ReadBlock& block) override {
    const auto rows = rows_.of(block);
    const auto factors = normalised_ ? factors_to_length_one(rows) : std::vector<float>();
    for (size_t i = 0; i < rows.size(); ++i) {
      if (normalised_) {
        std::ranges::transform(rows[i], scaled_.begin(),
                               [factor = factors[i]](float value) { return value * factor; });
      }
      writer_.append(normalised_ ? scaled_ : rows[i]);
    }
  }
  void commit() override { writer_.commit(); }

 private:
  AllRows rows_;
  bool normalised_;
  std::vector<float> scaled_;
  PtWriter writer_;
};

// Which samples does each dimD/grads-N.pt hold? N is how many there are up to its end.
int64_t part_end(const CollectionFacts& facts, int64_t first) {
  return std::min(first + kSamplesPerPart, facts.num_samples);
}

fs::path part_path(const fs::path& folder, int64_t end) {
  return folder / fmt::format("grads-{}.pt", end);
}

class PartsOutput final : public Output {
 public:
  PartsOutput(fs::path folder, const CollectionFacts& facts, int64_t columns)
      : folder_(std::move(folder)),
        facts_(facts),
        columns_(columns),
        rows_(facts.dimension(), columns) {}

  void add(const ReadBlock& block) override {
    int64_t sample = block.range.first;
    for (const auto row : rows_.of(block)) {
      const int64_t first = sample / kSamplesPerPart * kSamplesPerPart;
      const int64_t end = part_end(facts_, first);
      if (!writer_) {
        writer_.emplace(part_path(folder_, end), facts_.output_dtype,
                        std::vector{end - first, columns_});
      }
      writer_->append(row);
      if (++sample == end) {
        writer_->commit();
        writer_.reset();
      }
    }
  }
  void commit() override {}

 private:
  fs::path folder_;
  const CollectionFacts& facts_;
  int64_t columns_;
  AllRows rows_;
  std::optional<PtWriter> writer_;
};

fs::path folder_of_dimension(const fs::path& output, int64_t dimension) {
  return output / fmt::format("dim{}", dimension);
}

// The files that a merge writes, and their sizes.
struct PlannedFile {
  fs::path path;
  uint64_t bytes = 0;
};

std::vector<PlannedFile> plan_files(const MergeOptions& options, const RowReader& reader) {
  const auto& facts = reader.facts();
  std::vector<PlannedFile> files = {{options.output / kMergedFile, merged_file_bytes(reader)}};
  for (const int64_t columns : facts.dimensions) {
    const auto folder = folder_of_dimension(options.output, columns);
    const auto add = [&](const fs::path& path, int64_t samples) {
      files.push_back({path, pt_file_bytes(path, facts.output_dtype, {samples, columns})});
    };
    add(folder / "all_unormalized.pt", facts.num_samples);
    add(folder / "all_orig.pt", facts.num_samples);
    for (int64_t first = 0; options.parts && first < facts.num_samples; first += kSamplesPerPart) {
      const int64_t end = part_end(facts, first);
      add(part_path(folder, end), end - first);
    }
  }
  return files;
}

using Outputs = std::vector<std::unique_ptr<Output>>;

Outputs open_outputs(const MergeOptions& options, const RowReader& reader) {
  const auto& facts = reader.facts();
  Outputs outputs;
  outputs.push_back(std::make_unique<MergedOutput>(options.output / kMergedFile, reader));
  for (const int64_t columns : facts.dimensions) {
    const auto folder = folder_of_dimension(options.output, columns);
    make_directories(folder);
    outputs.push_back(std::make_unique<WholeOutput>(folder / "all_unormalized.pt", facts, columns,
                                                    /*normalised=*/false));
    outputs.push_back(std::make_unique<WholeOutput>(folder / "all_orig.pt", facts, columns,
                                                    /*normalised=*/true));
    if (options.parts) outputs.push_back(std::make_unique<PartsOutput>(folder, facts, columns));
  }
  return outputs;
}

// Each file has a thread: a checksum is a matter of order, and most of the time is the disk's.
void for_each_output(const Outputs& outputs, const std::function<void(Output&)>& work) {
  const auto count = std::ssize(outputs);
  for_each_index(count, static_cast<int>(count),
                 [&](int64_t i) { work(*outputs[static_cast<size_t>(i)]); });
}

void write_all(RowReader& reader, const Outputs& outputs) {
  Progress progress("merging rows", static_cast<uint64_t>(reader.facts().num_samples), "samples");
  while (const auto block = reader.next()) {
    end_if_stop_waits();
    for_each_output(outputs, [&](Output& output) { output.add(*block); });
    progress.add(static_cast<uint64_t>(block->range.last - block->range.first));
  }
  for_each_output(outputs, [](Output& output) { output.commit(); });
}

}  // namespace

MergeSummary merge_collection(const MergeOptions& options) {
  RowReader reader(options.output);
  MergeSummary summary{
      .facts = reader.facts(), .num_rows = reader.num_rows(), .skipped = reader.skipped()};
  for (const auto& [path, bytes] : plan_files(options, reader)) {
    refuse_folder(path);
    sweep_temporaries_of(path);
    summary.files.push_back(path);
    summary.bytes += bytes;
  }
  check_room(options.output, summary.bytes, "the merged rows");
  write_all(reader, open_outputs(options, reader));
  return summary;
}

void write_rank_pt(const fs::path& output, const fs::path& folder, const CollectionFacts& facts) {
  make_directories(folder);  // a rank may have had nothing to do
  const auto path = folder / kRankFile;
  sweep_temporaries_of(path);
  const auto write = [&](const std::set<int64_t>& without) {
    auto reader = RowReader::of_folder(folder, facts, without);
    PtWriter writer(path, facts.output_dtype, {reader.num_rows(), facts.dimension()});
    while (const auto block = reader.next()) writer.append(block->rows);
    writer.commit();
  };
  try {
    write({});
  } catch (const DamagedRows& damage) {
    const auto missing = missing_blocks(output, facts);
    for (const int64_t block : damage.blocks) {
      if (std::ranges::find(missing, block) != missing.end()) throw;
    }
    log_warning("{} goes without {}, of which other folders have whole rows", path.string(),
                name_blocks(all_named(damage.blocks), facts));
    write({damage.blocks.begin(), damage.blocks.end()});
  }
}

uint64_t rank_pt_bytes(const CollectionFacts& facts) {
  return pt_file_bytes(kRankFile, facts.output_dtype, {facts.num_samples, facts.dimension()});
}

}  // namespace skein::gradient_features
