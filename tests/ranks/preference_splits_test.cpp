// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Training on answers that people have judged: the same losses, norms and numbers however a global
// batch is split over ranks and micro-batches, whatever is sharded or computed again, and whether a
// pair's prompt is computed once or for each answer.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

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

using algorithms::Options;
using enum config::PreferenceLoss;

constexpr int64_t kGlobalBatch = 4, kSteps = 4;
constexpr const char* kModel =
    R"({"model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "tie_word_embeddings": false, "initializer_range": 0.2})";

enum class Learns { kDpo, kLossList, kOrpo, kReward, kKto };
constexpr Learns kAll[] = {Learns::kDpo, Learns::kLossList, Learns::kOrpo, Learns::kReward,
                           Learns::kKto};

const char* word_of(Learns learns) {
  constexpr const char* kWords[] = {"dpo", "a list of losses", "orpo", "rm", "kto"};
  return kWords[static_cast<size_t>(learns)];
}

Options options_of(Learns learns) {
  switch (learns) {
    case Learns::kDpo:
      return algorithms::PreferenceOptions{};
    case Learns::kLossList:
      return algorithms::PreferenceOptions{.losses = {kSigmoid, kHinge, kSft},
                                           .weights = {0.5, 2, 0.25},
                                           .chosen_alpha = 0.2,
                                           .ld_alpha = 0.3};
    case Learns::kOrpo:
      return algorithms::PreferenceOptions{
          .losses = {kOrpo}, .weights = {1}, .has_reference = false};
    case Learns::kReward:
      return algorithms::RewardOptions{.centring = 0.1};
    case Learns::kKto:
      break;
  }
  return algorithms::FeedbackOptions{.chosen_alpha = 0.1};
}

// What is learned: every split of it has the same numbers.
struct Kind {
  Learns learns = Learns::kDpo;
  bool adapters = false;  // the reference is the policy without them; else a frozen copy
  bool packing = false;
  bool float64 = false;

  bool has_pairs() const { return learns != Learns::kKto; }
  std::string text() const {
    return fmt::format("{} of {}, {}, {}", word_of(learns), adapters ? "adapters" : "all weights",
                       packing ? "packed" : "alone", float64 ? "float64" : "float32");
  }
};

struct Split {
  Kind kind;
  int ranks = 1;
  int64_t accumulation = 1;
  int stage = 0;
  bool shares = false;  // prompts
  bool recompute = false;
  bool offload = false;

  std::string text() const {
    return fmt::format("{}, {} ranks, accumulation {}, stage {}, prompts {}{}{}", kind.text(),
                       ranks, accumulation, stage, shares ? "shared" : "computed for each answer",
                       recompute ? ", recomputed" : "", offload ? ", offloaded" : "");
  }
};

std::unique_ptr<model::Model> build_model(const Kind& kind) {
  model::BuildOptions options{.dtype = kind.float64 ? at::kDouble : at::kFloat};
  if (kind.adapters) {
    options.tuning.lora = adapter::parse_adapter_config(
        R"({"peft_type": "LORA", "r": 4, "lora_alpha": 16, "target_modules": ["q_proj", "down_proj"]})",
        "adapter_config.json");
  }
  auto config = plan::parse_hf_config(kModel, "config.json");
  if (kind.learns == Learns::kReward) config = plan::with_score(config);
  return model::build(config, options);
}

// A frozen copy of the first weights; null: the policy without its adapters, or nobody asks.
std::unique_ptr<train::Reference> build_reference(const Split& split,
                                                  const algorithms::Algorithm& algorithm,
                                                  comm::Group& world) {
  if (split.kind.adapters || algorithm.passes().empty()) return nullptr;
  auto reference = std::make_unique<train::Reference>();
  reference->model = build_model(split.kind);
  reference->sharded = std::make_unique<parallel::Sharded>(
      reference->model->table(),
      parallel::ShardOptions{.stage = parallel::kStages[split.stage == 3 ? 3 : 0],
                             .inference = true},
      world);
  reference->sharded->initialise(5);
  return reference;
}

class PreferenceSplits : public data::RowsTest {
 protected:
  PreferenceSplits() {
    pairs_ = options_of_rows(data::RowKind::kPairs, "pairs.jsonl");
    feedback_ = options_of_rows(data::RowKind::kFeedback, "judged.jsonl");
  }

  // Of nine letters.
  static std::string text_of(int64_t length, int64_t seed, char first) {
    std::string text;
    for (int64_t i = 0; i < length; ++i) {
      text += static_cast<char>(first + (seed * 5 + i * (seed % 3 + 2)) % 9);
    }
    return text;
  }

  data::RunRowsOptions options_of_rows(data::RowKind kind, const std::string& file) {
    std::string rows;
    for (int64_t i = 0; i < 29; ++i) {
      const auto prompt = text_of(1 + i * 7 % 13, i, 'a');
      const auto good = text_of(1 + i * 5 % 9, i, 'h'), bad = text_of(2 + i * 3 % 8, i, 'q');
      rows += kind == data::RowKind::kPairs
                  ? fmt::format(R"({{"prompt": "{}", "chosen": "{}", "rejected": "{}"}})", prompt,
                                good, bad)
                  : fmt::format(R"({{"prompt": "{}", "completion": "{}", "label": {}}})", prompt,
                                i % 3 == 0 ? bad : good, i % 3 != 0);
      rows += "\n";
    }
    data::RunRowsOptions options{.data = data_,
                                 .encoder = data::byte_encoder(kind),
                                 .limits = {.cutoff_len = 20},
                                 .seed = 7,
                                 .vocab_size = 257};
    options.data.train_file = write(file, rows).string();
    options.data.dataloader_num_workers = 0;
    return options;
  }

  data::Loader loader_of(const Split& split, int rank) const {
    auto options = split.kind.has_pairs() ? pairs_ : feedback_;
    options.packing = split.kind.packing;
    auto samples = data::open_rows(options);
    samples.share_prompts = split.shares;
    const int64_t per_device = kGlobalBatch / (split.ranks * split.accumulation);
    return {std::move(samples),
            {.data = options.data,
             .per_device_batch = per_device,
             .accumulation = split.accumulation,
             .seed = options.seed},
            rank,
            split.ranks};
  }

  using Numbers = std::vector<std::pair<std::string, double>>;

  // Of every step: loss, norm of the gradient, metrics.
  Numbers numbers_of_rank(const Split& split, comm::Group& world) const {
    const auto loader = loader_of(split, world.rank());
    const auto model = build_model(split.kind);
    const auto algorithm = algorithms::build(options_of(split.kind.learns), *model);
    parallel::Sharded sharded(
        model->table(),
        {.stage = parallel::kStages[split.stage],
         .recompute = split.recompute,
         .fp32_gradients = split.accumulation > 1,
         .offload = {.states = split.offload ? Medium::kPinnedHost : Medium::kDevice}},
        world);
    sharded.initialise(5);
    const auto reference = build_reference(split, *algorithm, world);
    const train::Onlookers onlookers(*algorithm, *model, sharded, reference.get());
    optim::AdamW optimizer(sharded.owned_ranges(), {.weight_decay = 0.1}, sharded.memory());
    train::Phases phases;
    Numbers numbers;
    for (int64_t step = 0; step < kSteps; ++step) {
      const auto made = loader.batches(step);
      const auto batches = train::on_device(made.micro_batches, at::kCPU);
      const auto mismatched = train::on_device(made.mismatched, at::kCPU);
      const auto done = train::update({*algorithm, sharded, optimizer, phases, {}, &onlookers},
                                      {batches, made.counts, {.seed = 3, .step = step}, mismatched},
                                      {.learning_rate = 3e-3, .max_grad_norm = 1.0});
      numbers.emplace_back("loss", world.sum(done.loss.item<double>()));
      numbers.emplace_back("norm", done.norm.norm.item<double>());
      const auto sums = world.sum(done.metrics.share(world.rank(), world.size()));
      for (auto& number : done.metrics.numbers(sums, world.size())) {
        // Nothing has been learned yet: whose reward is larger is a matter of rounding.
        if (step > 0 || number.first != "rewards/accuracies") numbers.push_back(std::move(number));
      }
    }
    return numbers;
  }

  Numbers run(const Split& split) const {
    Numbers numbers;
    comm::run_ranks(
        split.ranks,
        [&](comm::Group& world) {
          auto own = numbers_of_rank(split, world);
          if (world.rank() == 0) numbers = std::move(own);
        },
        std::chrono::minutes(5));
    return numbers;
  }

  static void expect_close(const Numbers& found, const Numbers& expected, const Split& split) {
    ASSERT_EQ(found.size(), expected.size()) << split.text();
    const double tolerance = split.kind.float64 ? 1e-10 : 1e-5;
    for (size_t i = 0; i < found.size(); ++i) {
      const auto& [name, value] = expected[i];
      ASSERT_EQ(found[i].first, name) << split.text();
      // Rewards are differences of sums that are as large as 100.
      const bool is_mean = name != "loss" && name != "norm";
      EXPECT_LE(std::abs(found[i].second - value), tolerance * (std::abs(value) + is_mean))
          << split.text() << ", " << name << ", number " << i;
    }
  }

  data::RunRowsOptions pairs_, feedback_;
};

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (const auto learns : kAll) {
    for (const bool adapters : {false, true}) {
      for (const bool packing : {false, true}) {
        for (const bool float64 : {false, true}) {
          kinds.push_back({learns, adapters, packing, float64});
        }
      }
    }
  }
  return kinds;
}

std::vector<Split> all_splits() {
  std::vector<Split> splits;
  for (const auto& kind : all_kinds()) {
    Split split{.kind = kind};
    for (split.ranks = 1; split.ranks <= kGlobalBatch; split.ranks *= 2) {
      for (split.accumulation = 1; split.ranks * split.accumulation <= kGlobalBatch;
           split.accumulation *= 2) {
        for (split.stage = 0; split.stage < 4; ++split.stage) {
          for (split.shares = false;; split.shares = true) {
            splits.push_back(split);
            if (split.shares || !kind.has_pairs()) break;
          }
        }
      }
    }
  }
  return splits;
}

TEST_F(PreferenceSplits, EverySplitOfAGlobalBatchHasTheSameNumbers) {
  std::map<std::string, Numbers> expected;  // by the kind's text
  for (const auto& split : sample(all_splits(), 60)) {
    auto& numbers = expected[split.kind.text()];
    if (numbers.empty()) numbers = run({.kind = split.kind});
    expect_close(run(split), numbers, split);
  }
}

// Blocks that are computed again, and states that lie elsewhere, see nothing of it.
TEST_F(PreferenceSplits, SharedPromptsGoWithRecomputeAndOffload) {
  for (const auto learns : {Learns::kDpo, Learns::kReward}) {
    const Kind kind{.learns = learns, .float64 = true};
    const auto expected = run({.kind = kind});
    for (const int stage : {0, 3}) {
      Split split{.kind = kind, .ranks = 2, .stage = stage, .shares = true, .recompute = true};
      expect_close(run(split), expected, split);
      split.offload = true;
      expect_close(run(split), expected, split);
    }
  }
}

TEST_F(PreferenceSplits, StagesAreBitEqual) {
  auto kinds = all_kinds();
  std::erase_if(kinds, [](const Kind& kind) { return kind.float64; });
  for (const auto& kind : sample(kinds, 8)) {
    Split split{.kind = kind, .ranks = 2, .shares = kind.has_pairs()};
    const auto at = [&](int stage, int64_t accumulation) {
      split.stage = stage;
      split.accumulation = accumulation;
      return run(split);
    };
    const auto expected = at(0, 1);
    for (int stage = 1; stage < 4; ++stage) EXPECT_EQ(at(stage, 1), expected) << split.text();
    EXPECT_EQ(at(1, 2), at(0, 2)) << split.text();
    EXPECT_EQ(at(3, 2), at(2, 2)) << split.text();
  }
}

// Else the tests above compare nothing: prompts are shared, and what is told of pairs moves.
TEST_F(PreferenceSplits, SharedPromptsSaveTokensAndTheModelLearns) {
  const Split plain{.kind = {.float64 = true}}, shared{.kind = {.float64 = true}, .shares = true};
  const auto one = loader_of(plain, 0).batches(0), other = loader_of(shared, 0).batches(0);
  const auto saved = std::accumulate(other.shared.begin(), other.shared.end(), int64_t{0});
  EXPECT_GT(saved, 0);
  EXPECT_EQ(other.micro_batches[0].length, one.micro_batches[0].length - saved);
  for (const auto learns : kAll) {
    const auto numbers = run({.kind = {.learns = learns, .float64 = true}});
    std::vector<double> losses;
    for (const auto& [name, value] : numbers) {
      if (name == "loss") losses.push_back(value);
    }
    EXPECT_LT(losses.back(), losses.front()) << word_of(learns);
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
