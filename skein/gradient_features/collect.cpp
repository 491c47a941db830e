// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/collect.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/progress.h"
#include "skein/data/loader.h"
#include "skein/gradient_features/files/merge.h"
#include "skein/gradient_features/files/survey.h"
#include "skein/gradient_features/same_facts.h"
#include "skein/gradient_features/sample_losses.h"

namespace skein::gradient_features {
namespace {

constexpr int64_t kBits = 63;  // of a word: sums stay positive
constexpr const char* kLookAtWeights =
    "look at the model's weights and its adapter's, of which some are not finite or very large, "
    "and at dtype";

// Names that this start will write to. Shards are looked at with what they hold.
void refuse_planted(const CollectTask& task, int64_t ranks) {
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto folder = folder_of_rank(task.output, rank, ranks);
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(folder, ignored)) && !fs::is_directory(folder, ignored)) {
      throw UserError(fmt::format("{} is no folder, where the rows of a rank belong: remove it",
                                  folder.string()));
    }
    refuse_folder(folder / kRankFile);
  }
}

void check_room_for(const CollectTask& task, int64_t num_blocks) {
  check_room(task.output, bytes_to_come(task.facts, num_blocks) + rank_pt_bytes(task.facts),
             "the rows to come and gradients.pt");
}

// One rank looks, so that all agree whatever their file system shows them.
std::vector<int64_t> share_missing_blocks(const CollectTask& task, comm::Group& group) {
  const int64_t blocks = task.facts.num_blocks();
  std::vector<int64_t> words(static_cast<size_t>((blocks + kBits - 1) / kBits), 0);
  if (group.rank() == 0) {
    const board::HostWork work("looking at what has been collected");
    refuse_planted(task, group.size());
    // A disk that is too small is not left with the facts of what it cannot hold.
    std::error_code ignored;
    if (!fs::exists(task.output / kCollectionFile, ignored)) check_room_for(task, blocks);
    open_collection(task.output, task.facts);
    const auto missing = missing_blocks(task.output, task.facts);
    check_room_for(task, std::ssize(missing));
    for (const int64_t block : missing) {
      words[static_cast<size_t>(block / kBits)] |= int64_t{1} << (block % kBits);
    }
  }
  words = group.sum(words);
  std::vector<int64_t> missing;
  for (int64_t block = 0; block < blocks; ++block) {
    if (words[static_cast<size_t>(block / kBits)] >> (block % kBits) & 1) missing.push_back(block);
  }
  return missing;
}

// Blocks are what is dealt. Those of a collection that was begun stay as they are.
void tell_idle_ranks(const CollectionFacts& facts, int64_t missing, int64_t ranks) {
  if (missing >= ranks || missing < facts.num_blocks()) return;
  const int64_t samples = (facts.num_samples + ranks - 1) / ranks;
  log_warning("there {} for {} ranks, of which {} nothing to do: {}",
              missing == 1 ? "is 1 block" : fmt::format("are {} blocks", missing), ranks,
              ranks - missing == 1 ? "1 has" : fmt::format("{} have", ranks - missing),
              samples < facts.samples_per_block
                  ? fmt::format("--block_samples {} makes more of them", samples)
                  : fmt::format("{} samples are too few", facts.num_samples));
}

// The samples of a rank's blocks, as they are done.
std::unique_ptr<Progress> progress_of(const CollectTask& task, const std::vector<int64_t>& blocks,
                                      const comm::Group& group) {
  if (group.rank() > 0) return nullptr;
  int64_t samples = 0;
  for (const int64_t block : blocks) {
    const auto range = samples_of_block(task.facts, block);
    samples += range.last - range.first;
  }
  return std::make_unique<Progress>("collecting", static_cast<uint64_t>(samples),
                                    group.size() > 1 ? "samples of this rank" : "samples");
}

// All of them take every so many-th of the blocks that are missing.
std::vector<int64_t> blocks_of_rank(const std::vector<int64_t>& missing, const comm::Group& group) {
  std::vector<int64_t> own;
  for (int64_t i = group.rank(); i < std::ssize(missing); i += group.size()) {
    own.push_back(missing[static_cast<size_t>(i)]);
  }
  return own;
}

// Commits blocks on a thread, one at a time: digests and disks take a while.
class BlockWriter {
 public:
  BlockWriter(fs::path folder, const CollectionFacts& facts)
      : folder_(std::move(folder)), facts_(facts) {}

  struct Block {
    int64_t number = 0;
    std::vector<int64_t> samples;
    at::Tensor rows;  // fp32 on the CPU
    std::vector<SkippedSample> skipped;
  };
  // Throws what the block before it could not be written for.
  void write(Block block) {
    finish();
    writing_ = std::async(std::launch::async, [this, block = std::move(block)] {
      write_block(
          folder_, facts_,
          {.block = block.number,
           .samples = block.samples,
           .rows = {block.rows.const_data_ptr<float>(), static_cast<size_t>(block.rows.numel())},
           .skipped = block.skipped});
    });
  }
  // All of them are durable when it returns.
  void finish() {
    if (!writing_.valid()) return;
    board::enter_phase(board::Phase::kSave);
    const board::HostWork work("writing rows");
    writing_.get();
  }

 private:
  fs::path folder_;
  const CollectionFacts& facts_;
  std::future<void> writing_;  // waits for its thread when it goes
};

class Collector {
 public:
  Collector(const CollectTask& task, CollectRanks& ranks)
      : task_(task),
        ranks_(ranks),
        folder_(folder_of_rank(task.output, ranks.group.rank(), ranks.group.size())),
        writer_(folder_, task.facts) {
    if (task.facts.info_type != InfoType::kGrads) return;
    features_.emplace(task.model, task.sharded, task.features);
  }

  CollectResult run(const std::vector<int64_t>& missing) {
    CollectResult result{.blocks_before = task_.facts.num_blocks() - std::ssize(missing)};
    const auto own = blocks_of_rank(missing, ranks_.group);
    progress_ = progress_of(task_, own, ranks_.group);
    const int64_t size = ranks_.group.size();
    const int64_t rounds =
        task_.lockstep ? (std::ssize(missing) + size - 1) / size : std::ssize(own);
    for (int64_t round = 0; round < rounds && !result.stopped; ++round) {
      const bool has_block = round < std::ssize(own);
      result.stopped = has_block ? !collect_block(own[static_cast<size_t>(round)]) : !compute({});
      if (has_block && !result.stopped) ++result.blocks;
    }
    writer_.finish();
    progress_.reset();
    result.stopped = ranks_.group.sum(int64_t{result.stopped}) > 0;
    if (result.stopped) return result;
    require_rows();
    const board::HostWork work("writing gradients.pt");
    write_rank_pt(task_.output, folder_, task_.facts);
    return result;
  }

 private:
  // All ranks have written theirs. Where every sample was skipped nothing can be scored.
  void require_rows() {
    int64_t count = 0;
    if (ranks_.group.rank() == 0) {
      const board::HostWork work("counting rows");
      count = num_rows(task_.output, task_.facts);
    }
    if (ranks_.group.sum(count) > 0) return;
    throw IoError(
        fmt::format("none of the {} samples has a row: {}", task_.facts.num_samples,
                    task_.skips_non_finite
                        ? kLookAtWeights
                        : "nothing of them is supervised; look at the data and its template"));
  }

  bool is_asked_to_stop() const { return ranks_.stop_requested && ranks_.stop_requested(); }

  // In lockstep all ranks leave together.
  bool is_true_of_any(bool own) {
    return task_.lockstep ? ranks_.group.sum(int64_t{own}) > 0 : own;
  }

  // False: somebody asked for a stop, and nothing of the block is kept.
  bool collect_block(int64_t number) {
    const auto range = samples_of_block(task_.facts, number);
    doing_ = fmt::format("samples {} to {}", range.first, range.last - 1);
    board::report_progress(doing_);
    board::enter_phase(board::Phase::kData);
    auto block = block_batches(task_.samples, range, task_.facts.batch_tokens);
    show(std::ssize(block.skipped));
    const auto rows = compute(block);
    if (!rows) return false;
    const auto kept = finite_places(*rows, block);
    BlockWriter::Block written{.number = number};
    for (const int64_t place : kept) {
      written.samples.push_back(block.rows[static_cast<size_t>(place)]);
    }
    written.rows = rows->index_select(0, at::tensor(kept, at::kLong));
    written.skipped = std::move(block.skipped);
    writer_.write(std::move(written));
    return true;
  }

  // In the order of block.samples, fp32 on the CPU. None: somebody asked for a stop.
  std::optional<at::Tensor> compute(const BlockBatches& block) {
    auto rows = at::empty({std::ssize(block.samples), task_.facts.dimension()}, at::kFloat);
    const int64_t count = most_batches(std::ssize(block.batches));
    for (int64_t i = 0; i < count; ++i) {
      if (is_true_of_any(is_asked_to_stop())) return std::nullopt;
      if (i < std::ssize(block.batches)) {
        compute_batch(block, block.batches[static_cast<size_t>(i)], rows);
      } else {
        compute_run(data::make_run(task_.samples.source, {}, 0), 0);
      }
    }
    if (is_true_of_any(is_cut_short_)) return std::nullopt;
    return rows;
  }

  // That a rank has in this round: all run as many.
  int64_t most_batches(int64_t own) {
    if (!task_.lockstep) return own;
    std::vector<int64_t> counts(static_cast<size_t>(ranks_.group.size()), 0);
    counts[static_cast<size_t>(ranks_.group.rank())] = own;
    return std::ranges::max(ranks_.group.sum(counts));
  }

  void compute_batch(const BlockBatches& block, const std::vector<int64_t>& places,
                     const at::Tensor& rows) {
    std::vector<int64_t> samples;
    for (const int64_t place : places) {
      samples.push_back(block.samples[static_cast<size_t>(place)]);
    }
    const int64_t before = num_shown_;
    const auto computed =
        compute_run(data::make_run(task_.samples.source, samples, 0), std::ssize(places));
    rows.index_copy_(0, at::tensor(places, at::kLong), computed.to(at::kCPU, at::kFloat));
    show(before + std::ssize(places) - num_shown_);
  }

  void show(int64_t samples) {
    num_shown_ += samples;
    if (progress_) progress_->add(static_cast<uint64_t>(samples));
  }

  // One batch may take minutes: it tells how far it is, and is cut short where somebody asks for a
  // stop.
  FeatureRows::GoesOn watch(int64_t samples) {
    return [this, samples, before = num_shown_](double done) {
      board::report_progress(doing_);
      show(before + static_cast<int64_t>(done * static_cast<double>(samples)) - num_shown_);
      is_cut_short_ = is_cut_short_ || (done < 1 && is_asked_to_stop());
      return !is_cut_short_;
    };
  }

  at::Tensor compute_run(const tensor::HostBatch& run, int64_t samples) {
    board::enter_phase(board::Phase::kForward);
    if (features_) return features_->compute(run, watch(samples));
    const auto roots = task_.sharded.hold_roots();
    return task_.facts.info_type == InfoType::kReps ? last_states(task_.model, run, task_.sharded)
                                                    : mean_losses(task_.model, run, task_.sharded);
  }

  // Places of rows whose numbers are all finite; the others are skipped, or end the collection.
  std::vector<int64_t> finite_places(const at::Tensor& rows, BlockBatches& block) const {
    const auto finite = at::isfinite(rows).all(1);
    const bool is_hopeless = rows.size(0) > 1 && !finite.any().item<bool>();
    if (is_hopeless && task_.skips_non_finite) {
      log_warning("no sample of {} to {} has a gradient that is finite: {}", block.rows.front(),
                  block.rows.back(), kLookAtWeights);
    }
    std::vector<int64_t> places;
    for (int64_t i = 0; i < rows.size(0); ++i) {
      if (finite[i].item<bool>()) {
        places.push_back(i);
        continue;
      }
      const int64_t row = block.rows[static_cast<size_t>(i)];
      if (!task_.skips_non_finite) {
        throw IoError(
            is_hopeless
                ? fmt::format("no gradient of samples {} to {} is finite: {}", row,
                              block.rows.back(), kLookAtWeights)
                : fmt::format("the gradient of sample {} is not finite: look at that row, or "
                              "give --non_finite skip",
                              row));
      }
      log_warning("sample {} has a gradient that is not finite, and no row", row);
      block.skipped.push_back({row, SkipReason::kNotFinite});
    }
    std::ranges::sort(block.skipped, {}, &SkippedSample::sample);
    return places;
  }

  const CollectTask& task_;
  CollectRanks& ranks_;
  fs::path folder_;
  std::optional<FeatureRows> features_;  // absent: not gradients
  std::unique_ptr<Progress> progress_;   // null: another rank shows its own
  std::string doing_;                    // in words
  int64_t num_shown_ = 0;                // samples, as progress has them
  bool is_cut_short_ = false;            // the batch under way, by a stop
  BlockWriter writer_;
};

}  // namespace

CollectResult collect(const CollectTask& task, CollectRanks& ranks) {
  require_same_facts(task.facts, ranks.group);
  if (task.lockstep) {
    require_taps(task.model, task.features.parameters,
                 "a sharded model (distributed_strategy=zero3)",
                 "name others, as --parameters q_proj,v_proj, or give distributed_strategy=ddp");
  }
  const auto missing = share_missing_blocks(task, ranks.group);
  if (ranks.group.rank() == 0) tell_idle_ranks(task.facts, std::ssize(missing), ranks.group.size());
  return Collector(task, ranks).run(missing);
}

}  // namespace skein::gradient_features
