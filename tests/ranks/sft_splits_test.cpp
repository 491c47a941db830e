// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Fine-tuning on rows, packed or not, of all weights, some or adapters: the same losses however a
// global batch is split over ranks and micro-batches, whatever is sharded, and the same as of rows
// that are padded.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>

#include "skein/adapter/adapter_config.h"
#include "skein/algorithms/algorithm.h"
#include "skein/core/log.h"
#include "skein/data/loader.h"
#include "skein/data/rows/run_rows.h"
#include "skein/data/rows/test_rows.h"
#include "skein/model/model.h"
#include "skein/optim/adamw.h"
#include "skein/parallel/sharded.h"
#include "skein/train/update.h"
#include "tests/ranks/sample.h"

namespace skein::ranks {
namespace {

constexpr int64_t kGlobalBatch = 4, kSteps = 5;
constexpr const char* kModel =
    R"({"model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "tie_word_embeddings": false, "initializer_range": 0.2})";

enum class Tuned { kWhole, kFrozen, kAdapters, kNoisy };
constexpr Tuned kAllTuned[] = {Tuned::kWhole, Tuned::kFrozen, Tuned::kAdapters, Tuned::kNoisy};

const char* word_of(Tuned tuned) {
  switch (tuned) {
    case Tuned::kWhole:
      return "whole";
    case Tuned::kFrozen:
      return "frozen blocks";
    case Tuned::kAdapters:
      return "adapters with dropout";
    case Tuned::kNoisy:
      return "noisy embeddings";
  }
  return "";
}

model::BuildOptions build_options(Tuned tuned, bool float64) {
  model::BuildOptions options{.dtype = float64 ? at::kDouble : at::kFloat};
  if (tuned == Tuned::kFrozen) {
    options.tuning.freeze = plan::FreezeOptions{.trainable_layers = 1};
  } else if (tuned == Tuned::kAdapters) {
    options.tuning.lora = adapter::parse_adapter_config(
        R"({"peft_type": "LORA", "r": 4, "lora_alpha": 16, "lora_dropout": 0.1,
            "target_modules": ["q_proj", "down_proj"]})",
        "adapter_config.json");
  } else if (tuned == Tuned::kNoisy) {
    options.embedding_noise = 5;
  }
  return options;
}

struct Split {
  int ranks = 1;
  int64_t accumulation = 1;
  int stage = 0;
  bool packing = false;
  bool float64 = false;
  bool padded = false;  // rows of a batch instead of documents behind each other
  Tuned tuned = Tuned::kWhole;

  std::string text() const {
    return fmt::format("{} ranks, accumulation {}, stage {}, {}, {}, {}{}", ranks, accumulation,
                       stage, word_of(tuned), packing ? "packed" : "alone",
                       float64 ? "float64" : "float32", padded ? ", padded" : "");
  }
};

class SftSplits : public data::RowsTest {
 protected:
  SftSplits() {
    std::string rows;
    for (int64_t i = 0; i < 41; ++i) rows += row_of(1 + i * 7 % 13, 2 + i * 5 % 11);
    options_ = {.data = data_,
                .encoder = data::byte_encoder(),
                .limits = {.cutoff_len = 40},
                .seed = 7,
                .vocab_size = 257};
    options_.data.train_file = write("train.jsonl", rows).string();
    options_.data.dataloader_num_workers = 0;
  }

  data::Loader loader_of(const Split& split, int rank) const {
    auto options = options_;
    options.packing = split.packing;
    auto samples = data::open_rows(options);
    samples.are_runs = !split.padded;
    const int64_t per_device = kGlobalBatch / (split.ranks * split.accumulation);
    return {std::move(samples),
            {.data = options.data,
             .per_device_batch = per_device,
             .accumulation = split.accumulation,
             .seed = options.seed},
            rank,
            split.ranks};
  }

  // Losses and gradient norms.
  std::vector<double> numbers_of_rank(const Split& split, comm::Group& world) const {
    const auto loader = loader_of(split, world.rank());
    const auto model = model::build(plan::parse_hf_config(kModel, "config.json"),
                                    build_options(split.tuned, split.float64));
    const auto algorithm = algorithms::build(algorithms::PretrainOptions{}, *model);
    parallel::Sharded sharded(
        model->table(),
        {.stage = parallel::kStages[split.stage], .fp32_gradients = split.accumulation > 1}, world);
    sharded.initialise(5);
    optim::AdamW optimizer(sharded.owned_ranges(), {.weight_decay = 0.1}, sharded.memory());
    train::Phases phases;
    std::vector<double> numbers;
    for (int64_t step = 0; step < kSteps; ++step) {
      const auto made = loader.batches(step);
      std::vector<tensor::Batch> batches;
      for (const auto& batch : made.micro_batches) {
        batches.push_back(tensor::to_device(batch, at::kCPU));
      }
      const auto done = train::update({*algorithm, sharded, optimizer, phases},
                                      {batches, made.counts, {.seed = 3, .step = step}},
                                      {.learning_rate = 1e-2, .max_grad_norm = 1.0});
      numbers.push_back(world.sum(done.loss.item<double>()));
      numbers.push_back(done.norm.norm.item<double>());
    }
    return numbers;
  }

  std::vector<double> run(const Split& split) const {
    std::vector<double> numbers;
    comm::run_ranks(
        split.ranks,
        [&](comm::Group& world) {
          auto own = numbers_of_rank(split, world);
          if (world.rank() == 0) numbers = std::move(own);
        },
        std::chrono::minutes(5));
    return numbers;
  }

  static void expect_close(const std::vector<double>& found, const std::vector<double>& expected,
                           const Split& split) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      const double tolerance = split.float64 ? 1e-10 : 1e-5;
      EXPECT_LE(std::abs(found[i] - expected[i]), tolerance * std::abs(expected[i]))
          << split.text() << ", number " << i;
    }
  }

  data::RunRowsOptions options_;
};

// Each kind on one rank at once.
std::vector<Split> all_kinds() {
  std::vector<Split> kinds;
  for (const auto tuned : kAllTuned) {
    for (const bool float64 : {false, true}) {
      for (const bool packing : {false, true}) {
        kinds.push_back({.packing = packing, .float64 = float64, .tuned = tuned});
      }
    }
  }
  return kinds;
}

std::vector<Split> all_splits() {
  std::vector<Split> splits;
  for (auto split : all_kinds()) {
    for (split.ranks = 1; split.ranks <= kGlobalBatch; split.ranks *= 2) {
      for (split.accumulation = 1; split.ranks * split.accumulation <= kGlobalBatch;
           split.accumulation *= 2) {
        for (split.stage = 0; split.stage < 4; ++split.stage) splits.push_back(split);
      }
    }
  }
  return splits;
}

TEST_F(SftSplits, EverySplitOfAGlobalBatchHasTheSameLosses) {
  std::map<std::string, std::vector<double>> expected;  // by the kind's text
  for (const auto& kind : all_kinds()) {
    const auto& numbers = expected[kind.text()] = run(kind);
    EXPECT_LT(numbers[2 * kSteps - 2], numbers[0]) << "it learns nothing: " << kind.text();
  }
  for (const auto& split : sample(all_splits(), 24)) {
    auto kind = split;
    kind.ranks = 1;
    kind.accumulation = 1;
    kind.stage = 0;
    expect_close(run(split), expected.at(kind.text()), split);
  }
}

TEST_F(SftSplits, StagesAreBitEqual) {
  for (auto kind : all_kinds()) {
    if (kind.float64) continue;
    const auto at = [&](int stage, int64_t accumulation) {
      kind.ranks = 2;
      kind.accumulation = accumulation;
      kind.stage = stage;
      return run(kind);
    };
    const auto expected = at(0, 1);
    for (int stage = 1; stage < 4; ++stage) EXPECT_EQ(at(stage, 1), expected) << kind.text();
    EXPECT_EQ(at(1, 2), at(0, 2)) << kind.text();
    EXPECT_EQ(at(3, 2), at(2, 2)) << kind.text();
  }
}

// A pack's documents see neither each other nor where in the pack they lie.
TEST_F(SftSplits, PackedIsPadded) {
  for (auto kind : all_kinds()) {
    kind.ranks = 2;
    const auto behind_each_other = run(kind);
    kind.padded = true;
    expect_close(run(kind), behind_each_other, kind);
  }
}

}  // namespace
}  // namespace skein::ranks

int main(int argc, char** argv) {
  skein::set_log_level(skein::LogLevel::kWarning);
  at::set_num_threads(1);  // ranks share the machine's cores
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
