// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/generate.h"

#include <ATen/ops/tensor.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "skein/core/error.h"
#include "skein/model/tiny_models.h"

namespace skein::rollout {
namespace {

using Tokens = std::vector<int64_t>;

const Tokens kLongPrompt{1, 2, 3, 4, 5}, kShortPrompt{7}, kOtherPrompt{9, 9, 2};

std::vector<plan::HfConfig> generate_cases() {
  return {model::tiny_config(model::kTinyLlama),
          model::tiny_config(model::kTinyGpt, R"(, "n_positions": 40)")};
}

std::vector<Continuation> run(const model::Model& model, const std::vector<Request>& requests,
                              const GenerateOptions& options) {
  tensor::PlainUnits units;
  return generate(model, units, at::kCPU, requests, options);
}

// Without a cache: the whole row again for every token.
Tokens slow_greedy(const model::Model& model, Tokens row, size_t count) {
  tensor::PlainUnits units;
  Tokens found;
  for (size_t i = 0; i < count; ++i) {
    tensor::Batch batch;
    batch.tokens = at::tensor(row).unsqueeze(0);
    const auto hidden = model.forward(batch, {.training = false}, units);
    found.push_back(model.head_logits(hidden, units)[0][-1].argmax().item<int64_t>());
    row.push_back(found.back());
  }
  return found;
}

// Each row begins anew where it outgrows the short factors, at five tokens: none, all, or some of
// its new ones come after. How many are asked for does not matter.
TEST(Generate, LongropeTurnsByTheLengthThatTheTextHas) {
  const auto model = model::tiny_model(model::tiny_config(model::kTinyPhi, model::kTinyLongRope));
  for (const int64_t count : {2, 4}) {
    const auto found = run(*model, {{kLongPrompt}, {kShortPrompt}, {kOtherPrompt}},
                           {.sampling = {.temperature = 0}, .max_new_tokens = count});
    const auto size = static_cast<size_t>(count);
    EXPECT_EQ(found[0].tokens, slow_greedy(*model, kLongPrompt, size));
    EXPECT_EQ(found[1].tokens, slow_greedy(*model, kShortPrompt, size));
    EXPECT_EQ(found[2].tokens, slow_greedy(*model, kOtherPrompt, size));
  }
}

TEST(Generate, GreedyEqualsTheSlowWayForEveryRowOfABatch) {
  for (const auto& config : generate_cases()) {
    const auto model = model::tiny_model(config);
    const auto found = run(*model, {{kLongPrompt}, {kShortPrompt}, {kOtherPrompt}},
                           {.sampling = {.temperature = 0}, .max_new_tokens = 20});
    EXPECT_EQ(found[0].tokens, slow_greedy(*model, kLongPrompt, 20));
    EXPECT_EQ(found[1].tokens, slow_greedy(*model, kShortPrompt, 20));
    EXPECT_EQ(found[2].tokens, slow_greedy(*model, kOtherPrompt, 20));
    EXPECT_EQ(found[2].finish, Finish::kLength);
  }
}

// Calls of an operator by this thread.
class CallCounter {
 public:
  explicit CallCounter(std::string name) {
    name_ = std::move(name);
    calls_ = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function) {
          calls_ += name_ == function.name() ? 1 : 0;
          return std::unique_ptr<at::ObserverContext>();
        }));
  }
  ~CallCounter() { at::removeCallback(handle_); }
  CallCounter(const CallCounter&) = delete;
  CallCounter& operator=(const CallCounter&) = delete;

  int calls() const { return calls_; }

 private:
  inline static std::string name_;
  inline static int calls_ = 0;
  at::CallbackHandle handle_;
};

// They take as long as a token does. Not longer than the generation: weights may change after it.
TEST(Generate, MeasuresDorasRowsOnce) {
  const auto tuning = model::tiny_lora(
      R"("target_modules": ".*(q_proj|down_proj|embed_tokens|lm_head)$", "use_dora": true)");
  const auto model = model::tiny_model(model::tiny_config(model::kTinyLlama), {.tuning = tuning});
  const auto expected = slow_greedy(*model, kLongPrompt, 12);
  const CallCounter norms("aten::linalg_vector_norm");
  for (int round = 1; round <= 2; ++round) {
    const auto found = run(*model, {{kLongPrompt}, {kShortPrompt}},
                           {.sampling = {.temperature = 0}, .max_new_tokens = 12});
    EXPECT_EQ(found[0].tokens, expected);
    EXPECT_EQ(norms.calls(), round * (2 + 2 + 1 + 1));
  }
}

TEST(Generate, ASampleDoesNotDependOnItsBatch) {
  for (const auto& config : generate_cases()) {
    const auto model = model::tiny_model(config);
    const GenerateOptions options{.sampling = {.seed = 4}, .max_new_tokens = 15};
    const std::vector<Request> requests{{kLongPrompt, 10}, {kShortPrompt, 11}, {kShortPrompt, 12}};
    const auto together = run(*model, requests, options);
    EXPECT_NE(together[1].tokens, together[2].tokens);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(run(*model, {requests[i]}, options)[0].tokens, together[i].tokens);
    }
    auto in_pairs = options;
    in_pairs.max_rows = 2;
    EXPECT_EQ(run(*model, requests, in_pairs)[2].tokens, together[2].tokens);
  }
}

TEST(Generate, AStopTokenEndsItsRowAlone) {
  const auto model = model::tiny_model(generate_cases()[0]);
  GenerateOptions options{.sampling = {.seed = 1}, .max_new_tokens = 30};
  const std::vector<Request> requests{{kLongPrompt, 1}, {kShortPrompt, 2}, {kOtherPrompt, 3}};
  const auto free = run(*model, requests, options);
  options.stop_tokens = {free[1].tokens[3], 1000};
  const auto stopped = run(*model, requests, options);
  for (size_t i = 0; i < 3; ++i) {
    const auto& all = free[i].tokens;
    const auto end = std::ranges::find(all, options.stop_tokens[0]);
    const bool found = end != all.end();
    EXPECT_EQ(stopped[i].tokens, Tokens(all.begin(), found ? end + 1 : end));
    EXPECT_EQ(stopped[i].finish, found ? Finish::kStopToken : Finish::kLength);
  }
  EXPECT_LE(stopped[1].tokens.size(), 4U);
}

TEST(Generate, StopsWhereTheModelsPositionsEnd) {
  const auto model = model::tiny_model(model::tiny_config(model::kTinyGpt));  // 9 positions
  const auto found = run(*model, {{kLongPrompt}, {kShortPrompt}},
                         {.sampling = {.temperature = 0}, .max_new_tokens = 8});
  EXPECT_EQ(found[0].tokens, slow_greedy(*model, kLongPrompt, 4));
  EXPECT_EQ(found[0].finish, Finish::kPositions);
  EXPECT_EQ(found[1].tokens, slow_greedy(*model, kShortPrompt, 8));
  EXPECT_EQ(found[1].finish, Finish::kLength);
}

TEST(Generate, TellsEveryTokenAndEndsARowOnRequest) {
  const auto model = model::tiny_model(generate_cases()[1]);
  std::vector<Tokens> told(2);
  GenerateOptions options{.max_new_tokens = 6};
  options.on_token = [&](size_t request, int64_t token) {
    told[request].push_back(token);
    return request == 1 || told[request].size() < 2;
  };
  const auto found = run(*model, {{kLongPrompt, 1}, {kShortPrompt, 2}}, options);
  EXPECT_EQ(found[0].tokens.size(), 2U);
  EXPECT_EQ(found[0].finish, Finish::kCallback);
  EXPECT_EQ(found[1].tokens.size(), 6U);
  EXPECT_EQ(told[0], found[0].tokens);
  EXPECT_EQ(told[1], found[1].tokens);
}

TEST(Generate, RefusesWhatItCannotContinue) {
  const auto model = model::tiny_model(model::tiny_config(model::kTinyGpt));
  EXPECT_THROW(run(*model, {{Tokens{}}}, {}), UserError);
  EXPECT_THROW(run(*model, {{Tokens{17}}}, {}), UserError);
  EXPECT_THROW(run(*model, {{Tokens(9, 1)}}, {}), UserError);
  EXPECT_THROW(run(*model, {{kShortPrompt}}, {.max_new_tokens = 0}), UserError);
}

}  // namespace
}  // namespace skein::rollout
