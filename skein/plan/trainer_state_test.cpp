// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/trainer_state.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::plan {
namespace {

using nlohmann::ordered_json;

ordered_json log_of(const std::vector<double>& losses, int64_t first_step = 1) {
  auto history = ordered_json::array();
  for (const double loss : losses) {
    history.push_back({{"step", first_step}, {"loss", 100.0}});  // training does not count
    history.push_back({{"step", first_step++}, {"eval_loss", loss}});
  }
  return history;
}

bool ends(const std::vector<double>& losses, std::optional<int64_t> patience,
          double threshold = 0) {
  const config::EvalConfig config{.early_stopping_patience = patience,
                                  .early_stopping_threshold = threshold};
  return reason_to_end(config, log_of(losses)).has_value();
}

class TrainerStateTest : public TemporaryFolder {
 protected:
  // What is said of a state of 8 steps in which one place holds something else.
  std::string said_of(const std::string& place, const ordered_json& value) {
    auto json = ordered_json::parse(
        trainer_state_text({.step = 8,
                            .tokens_seen = 800,
                            .num_updates = 7,
                            .identity = {.global_batch = 4, .seed = -3, .total_steps = 12},
                            .best = TrainerState::Best{2.5, 4},
                            .history = log_of({3, 2.5})}));
    if (!place.empty()) json[ordered_json::json_pointer(place)] = value;
    write_file_atomically(folder_ / kStateFile, json.dump());
    try {
      read_trainer_state(folder_);
      return "";
    } catch (const IoError& error) {
      return error.what();
    }
  }
};

// Its digest may fit: whoever changes it can change that too.
TEST_F(TrainerStateTest, CountsThatNoRunWritesAreRefused) {
  EXPECT_EQ(said_of("", {}), "");
  const std::string ours = "/stateful_callbacks/skein/";
  for (const auto& place : {std::string("/global_step"), std::string("/num_input_tokens_seen"),
                            std::string("/max_steps"), std::string("/best_global_step"),
                            std::string("/log_history/0/step"), ours + "num_updates",
                            ours + "global_batch", ours + "block_size"}) {
    for (const auto& value : {ordered_json(-1), ordered_json(1.5), ordered_json(1e300),
                              ordered_json(UINT64_MAX), ordered_json("8"), ordered_json()}) {
      const auto said = said_of(place, value);
      EXPECT_NE(said.find("trainer_state.json: not a state that skein wrote"), std::string::npos)
          << place << " " << value << ": " << said;
    }
  }
  EXPECT_NE(said_of(ours + "num_updates", 9).find("9 updates in 8 steps"), std::string::npos);
  EXPECT_NE(said_of(ours + "data_seed", 1.5), "");
  EXPECT_NE(said_of("/log_history", 3), "");
  EXPECT_NE(said_of("/log_history/0", "text"), "");
}

TEST_F(TrainerStateTest, ADamagedFileIsRefusedByItsName) {
  const auto good = trainer_state_text({.step = 8, .num_updates = 7, .history = log_of({3})});
  const auto said = [&](const std::string& text) {
    write_file_atomically(folder_ / kStateFile, text);
    EXPECT_FALSE(find_trainer_state(folder_));
    return refusal<IoError>([&] { read_trainer_state(folder_); });
  };
  const auto name = (folder_ / kStateFile).string();
  EXPECT_EQ(said(""), name + ":1:1: invalid JSON");
  EXPECT_PRED2(contains, said(good.substr(0, good.size() / 2)), name + ":");
  EXPECT_PRED2(contains, said(good + "x"), "invalid JSON");
  EXPECT_PRED2(contains, said("{\"global_step\": 8, " + good.substr(1)),
               name + ": duplicate key 'global_step'");
  EXPECT_PRED2(contains, said("{\"deep\": " + std::string(100'000, '[')), "nested deeper");
  EXPECT_PRED2(contains, said("[8]"), name + ": not a state that skein wrote");
  EXPECT_PRED2(contains, said("{}"), name + ": not a state that skein wrote");
}

TEST_F(TrainerStateTest, KeepsTheLossScaleOfFloat16) {
  TrainerState state{.step = 7, .num_updates = 5};
  EXPECT_EQ(trainer_state_text(state).find("loss_scale"), std::string::npos);
  state.loss_scale = {.scale = 0.25,
                      .first_scale = 8,
                      .rule = config::LossScaleRule::kDeepSpeed,
                      .clean_steps = 3,
                      .hysteresis_left = 2,
                      .num_skipped = 2};
  write_file_atomically(folder_ / kStateFile, trainer_state_text(state));
  EXPECT_EQ(read_trainer_state(folder_).loss_scale, state.loss_scale);
}

TEST_F(TrainerStateTest, ALossScaleThatNoRunWritesIsRefused) {
  TrainerState state{.step = 7, .num_updates = 5};
  state.loss_scale = {.scale = 16, .first_scale = 32, .clean_steps = 3};
  const auto good = nlohmann::ordered_json::parse(trainer_state_text(state));
  const auto refused = [&](const char* key, const nlohmann::ordered_json& value) {
    auto json = good;
    json["stateful_callbacks"]["skein"]["loss_scale"][key] = value;
    write_file_atomically(folder_ / kStateFile, json.dump());
    return !find_trainer_state(folder_);
  };
  EXPECT_FALSE(refused("scale", 16));
  EXPECT_TRUE(refused("scale", 0));
  EXPECT_TRUE(refused("scale", -16));
  EXPECT_TRUE(refused("clean_steps", 1.5));
  EXPECT_TRUE(refused("clean_steps", -1));
  EXPECT_TRUE(refused("num_skipped", 1e30));
  EXPECT_TRUE(refused("rule", "apex"));
}

TEST(EarlyStoppingTest, NeverWithoutPatience) { EXPECT_FALSE(ends({1, 2, 3, 4}, std::nullopt)); }

TEST(EarlyStoppingTest, SoManyInARow) {
  EXPECT_FALSE(ends({}, 1));
  EXPECT_FALSE(ends({5}, 1));
  EXPECT_TRUE(ends({5, 5}, 1));
  EXPECT_FALSE(ends({5, 6}, 2));
  EXPECT_TRUE(ends({5, 6, 7}, 2));
  EXPECT_FALSE(ends({5, 6, 4, 7}, 2)) << "a better one between them";
  EXPECT_TRUE(ends({5, 4, 6, 4.5}, 2)) << "better than the one before is not better than the best";
}

TEST(EarlyStoppingTest, ByMoreThanTheThreshold) {
  EXPECT_TRUE(ends({5, 4.75, 4.5}, 2, 0.25)) << "no more than it";
  EXPECT_FALSE(ends({5, 4.75, 4.25}, 2, 0.25));
  // As in transformers: a small gain moves the best, and the next is measured from there.
  EXPECT_TRUE(ends({5, 4.9, 4.7}, 2, 0.25));
}

TEST(EarlyStoppingTest, WhatIsNoNumberIsNotBetter) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(ends({5, nan, nan}, 2));
  EXPECT_FALSE(ends({nan, 5}, 1)) << "any number is better than none";
  const config::EvalConfig config{.early_stopping_patience = 2};
  const auto reread = ordered_json::parse(log_of({5, nan, nan}).dump());
  EXPECT_TRUE(reason_to_end(config, reread)) << "null in a file";
}

TEST(EarlyStoppingTest, BeforeTheFirstStepIsNoResult) {
  const config::EvalConfig config{.early_stopping_patience = 1};
  EXPECT_FALSE(reason_to_end(config, log_of({1, 2}, 0)));
  EXPECT_TRUE(reason_to_end(config, log_of({1, 2, 2}, 0)));
}

TEST(EarlyStoppingTest, EvaluationsWithoutTheMetricDoNotCount) {
  const config::EvalConfig config{.metric_for_best_model = "rewards/chosen",
                                  .early_stopping_patience = 1};
  EXPECT_FALSE(reason_to_end(config, log_of({1, 2, 3})));
}

TEST(EarlyStoppingTest, AnotherObjectiveBeginsAnew) {
  const config::EvalConfig config{.early_stopping_patience = 1};
  const auto log = log_of({1, 20, 19});  // from step 2 on of another loss
  EXPECT_TRUE(reason_to_end(config, log));
  EXPECT_FALSE(reason_to_end(config, log, 1));
  const TrainerState state{.step = 4, .identity = {.objective = "dpo sigmoid"}, .judged_since = 2};
  EXPECT_EQ(judged_since(state, "dpo sigmoid"), 2);
  EXPECT_EQ(judged_since(state, "dpo ipo"), 4);
  EXPECT_EQ(judged_since({.step = 4}, "dpo ipo"), 0) << "an older program noted none";
}

TEST(BestMetricTest, ItsNameTellsWhichWayIsBetter) {
  using config::GreaterIsBetter;
  const auto grows = [](const std::string& name, GreaterIsBetter asked = GreaterIsBetter::kAuto) {
    const BestMetric metric({.metric_for_best_model = name, .greater_is_better = asked});
    EXPECT_EQ(metric.key, "eval_" + name);
    EXPECT_EQ(metric.is_better(2, 1), metric.greater_wins);
    EXPECT_EQ(metric.is_better(1, 2), !metric.greater_wins);
    EXPECT_TRUE(metric.is_better(1, metric.worst()));
    EXPECT_FALSE(metric.is_better(std::numeric_limits<double>::quiet_NaN(), metric.worst()));
    return metric.greater_wins;
  };
  for (const char* name : {"loss", "nll_loss", "perplexity", "kl", "logps/rejected"})
    EXPECT_FALSE(grows(name)) << name;
  for (const char* name : {"accuracy", "rewards/margins"}) EXPECT_TRUE(grows(name)) << name;
  EXPECT_TRUE(grows("loss", GreaterIsBetter::kYes));
  EXPECT_FALSE(grows("accuracy", GreaterIsBetter::kNo));
}

TEST(EarlyStoppingTest, OfAMetricThatGrows) {
  const config::EvalConfig config{.metric_for_best_model = "accuracy",
                                  .early_stopping_patience = 2};
  auto log = ordered_json::array();
  const auto ends_after = [&](double accuracy) {
    log.push_back({{"step", log.size() + 1}, {"eval_loss", 1}, {"eval_accuracy", accuracy}});
    return reason_to_end(config, log);
  };
  EXPECT_FALSE(ends_after(0.5));
  EXPECT_FALSE(ends_after(0.7));
  EXPECT_FALSE(ends_after(0.6));
  const auto reason = ends_after(0.7);
  ASSERT_TRUE(reason);
  EXPECT_NE(reason->find("highest eval_accuracy is 0.7000, at step 2"), std::string::npos);
}

TEST(EarlyStoppingTest, SaysWhy) {
  const config::EvalConfig config{.early_stopping_patience = 2};
  const auto reason = reason_to_end(config, log_of({3, 2.5, 4, 4}));
  ASSERT_TRUE(reason);
  for (const char* part : {"2 evaluations", "early_stopping_patience 2", "2.5000, at step 2"}) {
    EXPECT_NE(reason->find(part), std::string::npos) << *reason;
  }
}

}  // namespace
}  // namespace skein::plan
