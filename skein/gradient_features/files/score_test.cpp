// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/gradient_features/files/checkpoint_weights.h"
#include "skein/gradient_features/files/dot_products.h"
#include "skein/gradient_features/files/groups.h"
#include "skein/gradient_features/files/score_file.h"
#include "skein/gradient_features/files/testing.h"

namespace skein::gradient_features {
namespace {

TEST(DotProducts, EqualTheSumsInDouble) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const auto& [rows, others, columns] :
       {std::array<int64_t, 3>{1, 1, 1}, {4, 3, 8}, {5, 4, 7}, {33, 7, 1031}, {18, 2, 4100}}) {
    const int64_t stride = columns + 3;
    std::vector<float> a(static_cast<size_t>(rows * stride)),
        b(static_cast<size_t>(others * stride));
    for (auto& value : a) value = normal(random);
    for (auto& value : b) value = normal(random);
    const RowsView many{a.data(), rows, stride}, few{b.data(), others, stride};
    const auto products = dot_products(many, few, columns, 1).products;
    EXPECT_EQ(products, dot_products(many, few, columns, 3).products);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < others; ++j) {
        double sum = 0;
        for (int64_t c = 0; c < columns; ++c) {
          sum += static_cast<double>(a[static_cast<size_t>(i * stride + c)]) *
                 b[static_cast<size_t>(j * stride + c)];
        }
        EXPECT_NEAR(products[static_cast<size_t>(i * others + j)], sum,
                    1e-6 * static_cast<double>(columns) + 1e-6);
      }
    }
  }
}

double cosine(const CollectionFacts& facts, std::pair<int64_t, int> t, std::pair<int64_t, int> v) {
  double product = 0, a = 0, b = 0;
  for (int64_t c = 0; c < facts.dimension(); ++c) {
    const double x = known_value(t.first, c, t.second), y = known_value(v.first, c, v.second);
    product += x * y;
    a += x * x;
    b += y * y;
  }
  return product / std::sqrt(a * b);
}

class ScoreTest : public TemporaryFolder {
 protected:
  ScoreTest() { validation_.num_samples = 7; }

  // Collections whose values follow from a salt.
  fs::path make(const std::string& name, const CollectionFacts& facts, int salt,
                const std::vector<SkippedSample>& skipped = {}) const {
    collect_known(folder_ / name, facts, 2, skipped, salt);
    return folder_ / name;
  }

  CollectionFacts train_ = small_facts(), validation_ = small_facts();
};

TEST_F(ScoreTest, IsTheLargestMeanOverGroupsOfWeightedCosines) {
  auto second = train_, second_validation = validation_;
  second.model_digest = second_validation.model_digest = digest("later");
  const ScoreOptions options{
      .train = {make("t0", train_, 0), make("t1", second, 1, {{3, SkipReason::kNoTarget}})},
      .validation = {make("v0", validation_, 2, {{6, SkipReason::kNotFinite}}),
                     make("v1", second_validation, 3, {{6, SkipReason::kNotFinite}})},
      .weights = {3, 1},
      .groups = {"a", "b", "a", "b", "b", "c", "a"}};
  const auto scores = score(options);
  ASSERT_EQ(scores.values.size(), 11U);
  EXPECT_EQ(scores.num_skipped, 1);
  EXPECT_EQ(scores.dimension, 5);
  EXPECT_EQ(scores.groups, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(scores.weights, (std::vector<double>{0.75, 0.25}));
  for (int64_t t = 0; t < 11; ++t) {
    std::map<std::string, std::pair<double, int>> sums;
    for (int64_t v = 0; v < 6; ++v) {
      auto& [sum, count] = sums[options.groups[static_cast<size_t>(v)]];
      sum += 0.75 * cosine(train_, {t, 0}, {v, 2}) + 0.25 * cosine(train_, {t, 1}, {v, 3});
      ++count;
    }
    double best = -2;
    for (const auto& [name, group] : sums) best = std::max(best, group.first / group.second);
    const auto value = scores.values[static_cast<size_t>(t)];
    if (t == 3) {
      EXPECT_EQ(value, -INFINITY);
    } else {
      EXPECT_NEAR(value, best, 1e-6) << t;
    }
  }
}

TEST_F(ScoreTest, ASmallerDimensionIsTheBeginningOfTheRows) {
  auto small = train_;
  small.dimensions = {3};
  const auto v = make("v", validation_, 2);
  const auto whole =
      score({.train = {make("t", train_, 0)}, .validation = {v}, .weights = {1}, .dimension = 3});
  auto facts = validation_;
  facts.dimensions = {3};
  const auto cut = score(
      {.train = {make("ts", small, 0)}, .validation = {make("vs", facts, 2)}, .weights = {1}});
  EXPECT_EQ(whole.values, cut.values);
  EXPECT_EQ(cut.dimension, 3);
  // Also where the other side was never asked for it.
  auto long_rows = train_;
  long_rows.dimensions = {5};
  const auto mixed = score(
      {.train = {make("tl", long_rows, 0)}, .validation = {make("vc", facts, 2)}, .weights = {1}});
  EXPECT_EQ(mixed.values, cut.values);
  EXPECT_EQ(mixed.dimension, 3);
}

TEST_F(ScoreTest, RefusesWhatDoesNotBelongTogether) {
  const auto train = make("train", train_, 0);
  const auto refused = [&](const std::function<void(CollectionFacts&)>& change,
                           std::optional<int64_t> dimension = {}) {
    static int count = 0;
    auto facts = validation_;
    change(facts);
    const auto validation = make(fmt::format("v{}", count++), facts, 1);
    return refusal<UserError>([&] {
      score({.train = {train}, .validation = {validation}, .weights = {1}, .dimension = dimension});
    });
  };
  auto message = refused([](auto& f) {
    f.projection_digest = digest("other");
    f.parameters = {"w"};
  });
  EXPECT_PRED2(contains, message, "the parameters that are projected are others, ");
  EXPECT_PRED2(contains, message, "collect both with the same seed and --parameters");
  message = refused([](auto& f) {
    f.projection_digest = digest("other");
    f.seed = 7;
  });
  EXPECT_PRED2(contains, message, "the seed of the projection is 0 against 7");
  message = refused([](auto& f) { f.model_digest = digest("x"); });
  EXPECT_PRED2(contains, message, "the model is another");
  EXPECT_FALSE(contains(message, digest("x")));
  EXPECT_PRED2(contains, refused([](auto& f) { f.info_type = InfoType::kReps; }),
               "info_type grads");
  EXPECT_PRED2(contains, refused([](auto&) {}, 4), "dimension 4 is not offered by");
  EXPECT_PRED2(contains, refused([](auto&) {}, 0), "dimension 0 is not offered by");
  EXPECT_EQ(refused([](auto&) {}, 3), "");
}

TEST_F(ScoreTest, RefusesCheckpointsOfDifferentForms) {
  const auto collect = [&](const std::string& name, GradientType type, AdamForm form) {
    auto facts = small_facts();
    facts.gradient_type = type;
    facts.adam_form = form;
    if (type == GradientType::kAdam) facts.moments_digest = digest("moments");
    collect_known(folder_ / name, facts);
    return folder_ / name;
  };
  const auto adam = collect("adam", GradientType::kAdam, AdamForm::kLess);
  const auto other = collect("other", GradientType::kAdam, AdamForm::kStandard);
  const auto sgd = collect("sgd", GradientType::kSgd, AdamForm::kLess);
  const auto message = [&](const fs::path& one, const fs::path& two) {
    return refusal<UserError>(
        [&] { score({.train = {one, two}, .validation = {sgd, sgd}, .weights = {1, 1}}); });
  };
  EXPECT_PRED2(contains, message(adam, sgd), "gradient_type adam");
  EXPECT_PRED2(contains, message(adam, other), "adam_form less");
  EXPECT_EQ(message(adam, adam), "");  // validation rows are of another form, as LESS's
}

TEST_F(ScoreTest, RefusesCountsThatDiffer) {
  const auto train = make("train", train_, 0), validation = make("validation", validation_, 1);
  const auto refused = [](const ScoreOptions& options) {
    return refusal<UserError>([&] { score(options); });
  };
  EXPECT_PRED2(contains, refused({.train = {train}, .validation = {}, .weights = {1}}),
               "1 training collections and 0");
  EXPECT_PRED2(contains, refused({.train = {train}, .validation = {validation}, .weights = {1, 2}}),
               "2 weights for 1");
  EXPECT_PRED2(contains, refused({.train = {train}, .validation = {validation}, .weights = {0}}),
               "are 0");
  EXPECT_PRED2(contains, refused({.train = {train}, .validation = {validation}, .weights = {-1}}),
               "weight -1");
  const auto huge = score(
      {.train = {train, train}, .validation = {validation, validation}, .weights = {1e308, 1e308}});
  EXPECT_EQ(huge.weights, (std::vector<double>{0.5, 0.5}));
  EXPECT_PRED2(
      contains,
      refused({.train = {train}, .validation = {validation}, .weights = {1}, .groups = {"a"}}),
      "1 groups are named for the 7");
  auto other = train_;
  other.data_digest = digest("other data");
  EXPECT_PRED2(contains,
               refused({.train = {train, make("other", other, 0)},
                        .validation = {validation, validation},
                        .weights = {1, 1}}),
               "cannot be compared: the files of rows");
}

TEST_F(ScoreTest, AGroupWithoutRowsIsRefused) {
  const auto validation = make("validation", validation_, 1, {{4, SkipReason::kNoTarget}});
  EXPECT_PRED2(contains, refusal<UserError>([&] {
                 score({.train = {make("train", train_, 0)},
                        .validation = {validation},
                        .weights = {1},
                        .groups = {"a", "a", "a", "a", "lonely", "a", "a"}});
               }),
               "group 'lonely'");
}

TEST_F(ScoreTest, ScoresAreReadBack) {
  const Scores scores{.values = {0.5F, -INFINITY, 0.25F},
                      .max_samples = 9,
                      .data_files = {{3, digest("f")}, {0, digest("g")}}};
  const auto files = write_scores(folder_ / "out", "train", scores);
  EXPECT_EQ(files[0].filename(), "train_influence_score.safetensors");
  EXPECT_EQ(files[1].filename(), "train_influence_score.pt");
  const auto read = read_scores(files[0]);
  EXPECT_EQ(read.values, scores.values);
  EXPECT_EQ(read.max_samples, 9);
  EXPECT_EQ(read.data_files, scores.data_files);
  const auto size = fs::file_size(files[0]);
  for (uint64_t place = 0; place < size; ++place) {
    flip(files[0], place, 1);
    EXPECT_ANY_THROW(read_scores(files[0])) << place;
    flip(files[0], place, 1);
  }
  EXPECT_PRED2(contains, refusal<UserError>([&] { read_scores(files[1]); }),
               "give " + files[0].string());
}

class WeightsTest : public TemporaryFolder {};

TEST_F(WeightsTest, AreMeanLearningRatesSinceTheCheckpointBefore) {
  write("checkpoint-4/trainer_state.json",
        R"({"global_step": 4, "log_history": [{"step": 2, "learning_rate": 4e-5, "loss": 1},
            {"step": 3, "eval_loss": 2}, {"step": 4, "learning_rate": 2e-5}]})");
  write("checkpoint-8/trainer_state.json",
        R"({"global_step": 8, "log_history": [{"step": 2, "learning_rate": 4e-5},
            {"step": 4, "learning_rate": 2e-5}, {"step": 6, "learning_rate": 1e-5},
            {"step": 8, "learning_rate": 5e-6}]})");
  const auto later = folder_ / "checkpoint-8", earlier = folder_ / "checkpoint-4";
  const auto weights = mean_learning_rates({later, earlier});
  EXPECT_DOUBLE_EQ(weights[0], 7.5e-6);
  EXPECT_DOUBLE_EQ(weights[1], 3e-5);
  EXPECT_PRED2(contains, refusal<UserError>([&] { mean_learning_rates({later, later}); }),
               "no learning_rate after step 8 up to 8");
  EXPECT_PRED2(contains, refusal<UserError>([&] { mean_learning_rates({folder_}); }),
               "has no trainer_state.json");
  write("bad/trainer_state.json", R"({"global_step": 4, "log_history": 5})");
  EXPECT_PRED2(contains, refusal<UserError>([&] { mean_learning_rates({folder_ / "bad"}); }),
               "log_history is 5");
}

TEST_F(WeightsTest, GroupsOfFilesAndKeys) {
  const auto names = write("groups.txt", "math\r\n\n law \nmath");
  EXPECT_EQ(groups_of_file(names), (std::vector<std::string>{"math", "law", "math"}));
  const auto rows = write("dev.jsonl", "{\"task\": \"a\"}\n\n{\"task\": 3}\n{\"task\": true}\n");
  EXPECT_EQ(groups_by_key(rows, "task"), (std::vector<std::string>{"a", "3", "true"}));
  EXPECT_PRED2(contains, refusal<UserError>([&] { groups_by_key(rows, "subject"); }),
               "dev.jsonl:1: the row has no 'subject'");
  const auto broken = write("broken.jsonl", "{\"task\": \"a\"}\n\n{\"task\n");
  EXPECT_PRED2(contains, refusal<UserError>([&] { groups_by_key(broken, "task"); }),
               "broken.jsonl:3");
  EXPECT_PRED2(contains, refusal<UserError>([&] { groups_of_file(write("empty.txt", "\n \n")); }),
               "names no group");
  for (const auto& path : {folder_, fs::path("/dev/zero"), fs::path(std::string(5000, 'k'))}) {
    EXPECT_PRED2(contains, refusal<UserError>([&] { groups_of_file(path); }), "is no file");
  }
}

}  // namespace
}  // namespace skein::gradient_features
