// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/collect.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/data/loader.h"
#include "skein/gradient_features/files/merge.h"
#include "skein/gradient_features/sample_losses.h"

namespace skein::gradient_features {
namespace {

constexpr int64_t kBits = 63;  // of a word: sums stay positive

// One rank looks, so that all agree whatever their file system shows them.
std::vector<int64_t> share_missing_blocks(const CollectTask& task, comm::Group& group) {
  const int64_t blocks = task.facts.num_blocks();
  std::vector<int64_t> words(static_cast<size_t>((blocks + kBits - 1) / kBits), 0);
  if (group.rank() == 0) {
    const board::HostWork work("looking at what has been collected");
    open_collection(task.output, task.facts);
    const auto missing = missing_blocks(task.output, task.facts);
    check_room(task.output, bytes_to_come(task.facts, std::ssize(missing)), "the rows to come");
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

class Collector {
 public:
  Collector(const CollectTask& task, CollectRanks& ranks,
            const std::function<void(int64_t)>& on_samples)
      : task_(task),
        ranks_(ranks),
        on_samples_(on_samples),
        folder_(folder_of_rank(task.output, ranks.group.rank(), ranks.group.size())) {
    if (task.facts.info_type != InfoType::kGrads) return;
    features_.emplace(task.model, task.sharded, task.features);
  }

  CollectResult run(const std::vector<int64_t>& missing) {
    CollectResult result{.blocks_before = task_.facts.num_blocks() - std::ssize(missing)};
    const int64_t size = ranks_.group.size();
    const int64_t rounds = (std::ssize(missing) + size - 1) / size;
    for (int64_t round = 0; round < rounds; ++round) {
      if (is_asked_to_stop()) {
        result.stopped = true;
        return result;
      }
      const int64_t index = round * size + ranks_.group.rank();
      if (index < std::ssize(missing)) {
        collect_block(missing[static_cast<size_t>(index)]);
        ++result.blocks;
      } else if (task_.lockstep) {
        compute({});
      }
    }
    const board::HostWork work("writing gradients.pt");
    if (fs::exists(folder_)) write_rank_pt(folder_, task_.facts);
    return result;
  }

 private:
  bool is_asked_to_stop() {
    const bool asked = ranks_.stop_requested && ranks_.stop_requested();
    return task_.lockstep ? ranks_.group.sum(int64_t{asked}) > 0 : asked;
  }

  void collect_block(int64_t number) {
    const auto range = samples_of_block(task_.facts, number);
    board::report_progress(fmt::format("samples {} to {}", range.first, range.last - 1));
    auto block = block_batches(task_.samples, range, task_.batch_tokens);
    const auto rows = compute(block);
    const auto kept = finite_places(rows, block);
    std::vector<int64_t> samples;
    for (const int64_t place : kept) samples.push_back(block.rows[static_cast<size_t>(place)]);
    const auto chosen = rows.index_select(0, at::tensor(kept, at::kLong));
    write_block(folder_, task_.facts,
                {.block = number,
                 .samples = samples,
                 .rows = {chosen.const_data_ptr<float>(), static_cast<size_t>(chosen.numel())},
                 .skipped = block.skipped});
    on_samples_(range.last - range.first);
  }

  // In the order of block.samples, fp32 on the CPU.
  at::Tensor compute(const BlockBatches& block) {
    auto rows = at::empty({std::ssize(block.samples), task_.facts.dimension()}, at::kFloat);
    for (const auto& places : block.batches) {
      std::vector<int64_t> samples;
      for (const int64_t place : places) {
        samples.push_back(block.samples[static_cast<size_t>(place)]);
      }
      const auto computed = compute_batch(data::make_run(task_.samples.source, samples, 0));
      rows.index_copy_(0, at::tensor(places, at::kLong), computed.to(at::kCPU, at::kFloat));
    }
    for (int64_t i = std::ssize(block.batches); i < most_batches(block); ++i) {
      compute_batch(data::make_run(task_.samples.source, {}, 0));
    }
    return rows;
  }

  // That a rank has in this round: the others run as many.
  int64_t most_batches(const BlockBatches& block) {
    const auto own = std::ssize(block.batches);
    if (!task_.lockstep) return own;
    std::vector<int64_t> counts(static_cast<size_t>(ranks_.group.size()), 0);
    counts[static_cast<size_t>(ranks_.group.rank())] = own;
    return std::ranges::max(ranks_.group.sum(counts));
  }

  at::Tensor compute_batch(const tensor::HostBatch& run) {
    if (features_) return features_->compute(run);
    const auto roots = task_.sharded.hold_roots();
    return task_.facts.info_type == InfoType::kReps ? last_states(task_.model, run, task_.sharded)
                                                    : mean_losses(task_.model, run, task_.sharded);
  }

  // Places of rows whose numbers are all finite; the others are skipped, or end the collection.
  std::vector<int64_t> finite_places(const at::Tensor& rows, BlockBatches& block) const {
    const auto finite = at::isfinite(rows).all(1);
    std::vector<int64_t> places;
    for (int64_t i = 0; i < rows.size(0); ++i) {
      if (finite[i].item<bool>()) {
        places.push_back(i);
        continue;
      }
      const int64_t row = block.rows[static_cast<size_t>(i)];
      if (!task_.skips_non_finite) {
        throw IoError(
            fmt::format("the gradient of sample {} is not finite: look at that row, or "
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
  const std::function<void(int64_t)>& on_samples_;
  fs::path folder_;
  std::optional<FeatureRows> features_;  // absent: not gradients
};

}  // namespace

CollectResult collect(const CollectTask& task, CollectRanks& ranks,
                      const std::function<void(int64_t)>& on_samples) {
  const auto missing = share_missing_blocks(task, ranks.group);
  auto result = Collector(task, ranks, on_samples).run(missing);
  result.stopped = ranks.group.sum(int64_t{result.stopped}) > 0;
  return result;
}

}  // namespace skein::gradient_features
