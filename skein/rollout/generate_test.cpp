// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "skein/core/error.h"
#include "skein/model/tiny_models.h"
#include "skein/ops/decode/sampling_kernel.h"

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
    const std::vector<Request> requests{
        {kLongPrompt, 1, 0}, {kShortPrompt, 2, 0}, {kShortPrompt, 2, 1}};
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

// Twenty texts of five prompts, four of each, sampled; `free` is what they are in a roomy cache.
struct Crowd {
  std::vector<Request> requests;
  GenerateOptions options{
      .sampling = {.seed = 9, .step = 3}, .max_new_tokens = 40, .log_probs = true};

  Crowd() {
    for (uint64_t prompt = 0; prompt < 5; ++prompt) {
      Tokens tokens;
      for (uint64_t i = 0; i < 1 + 9 * prompt; ++i) {
        tokens.push_back(static_cast<int64_t>((i * i + prompt) % 17));
      }
      for (uint64_t sample = 0; sample < 4; ++sample) requests.push_back({tokens, prompt, sample});
    }
  }
};

void expect_equal(const std::vector<Continuation>& found,
                  const std::vector<Continuation>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    EXPECT_EQ(found[i].finish, expected[i].finish) << i;
    for (size_t j = 0; j < expected[i].log_probs.size(); ++j) {
      EXPECT_NEAR(found[i].log_probs[j], expected[i].log_probs[j], 1e-10);
    }
  }
}

std::unique_ptr<model::Model> roomy_model() {
  return model::tiny_model(
      model::tiny_config(model::kTinyLlama, R"(, "max_position_embeddings": 90)"));
}

// Rows that wait, give way and begin anew, prompts in pieces, one row at a time: nothing is told
// apart by its texts.
void expect_texts_in_any_cache(const model::Model& model) {
  Crowd crowd;
  crowd.options.stop_tokens = {4};
  const auto free = run(model, crowd.requests, crowd.options);
  auto cache = model.make_cache();
  for (const int64_t pages : {7, 11, 17, 30}) {
    auto options = crowd.options;
    options.cache_bytes = pages * cache.page_bytes();
    expect_equal(run(model, crowd.requests, options), free);
  }
  for (const auto& [rows, tokens] : {std::pair<int64_t, int64_t>{1, 0}, {3, 0}, {0, 5}, {2, 17}}) {
    auto options = crowd.options;
    options.max_rows = rows;
    options.pass_tokens = tokens;
    expect_equal(run(model, crowd.requests, options), free);
  }
  auto reversed = crowd.requests;
  std::ranges::reverse(reversed);
  auto found = run(model, reversed, crowd.options);
  std::ranges::reverse(found);
  expect_equal(found, free);
}

TEST(Generate, TextsDoNotDependOnHowTheyShareTheCache) {
  expect_texts_in_any_cache(*roomy_model());
  // Rotations that depend on a text's length, once and for every token.
  expect_texts_in_any_cache(*model::tiny_model(
      model::tiny_config(model::kTinyLlama, R"(, "max_position_embeddings": 30, "rope_scaling":
                         {"rope_type": "dynamic", "factor": 3.0})")));
}

// 252 texts of 80 tokens.
Crowd large_crowd() {
  Crowd crowd;
  crowd.requests.clear();
  for (uint64_t prompt = 0; prompt < 63; ++prompt) {
    Tokens tokens;
    for (uint64_t i = 0; i <= prompt % 9; ++i) {
      tokens.push_back(static_cast<int64_t>((i * 5 + prompt) % 17));
    }
    for (uint64_t sample = 0; sample < 4; ++sample) {
      crowd.requests.push_back({tokens, prompt, sample});
    }
  }
  crowd.options.max_new_tokens = 80;
  return crowd;
}

// In other batches, another order, and as two ranks would share them.
std::vector<std::vector<Continuation>> in_other_ways(const model::Model& model,
                                                     const Crowd& crowd) {
  std::vector<std::vector<Continuation>> ways;
  for (const int64_t rows : {50, 252}) {
    auto options = crowd.options;
    options.max_rows = rows;
    ways.push_back(run(model, crowd.requests, options));
  }
  auto reversed = crowd.requests;
  std::ranges::reverse(reversed);
  ways.push_back(run(model, reversed, crowd.options));
  std::ranges::reverse(ways.back());
  auto& ranks = ways.emplace_back();
  for (const size_t first : {0U, 126U}) {
    const std::vector<Request> own(crowd.requests.begin() + static_cast<int64_t>(first),
                                   crowd.requests.begin() + static_cast<int64_t>(first) + 126);
    for (auto& text : run(model, own, crowd.options)) ranks.push_back(std::move(text));
  }
  return ways;
}

TEST(Generate, NoneOfTwentyThousandDrawsDependsOnTheBatch) {
  const auto model = roomy_model();
  const auto crowd = large_crowd();
  const auto free = run(*model, crowd.requests, crowd.options);
  size_t tokens = 0;
  for (const auto& text : free) tokens += text.tokens.size();
  EXPECT_GE(tokens, 20000U);
  for (const auto& way : in_other_ways(*model, crowd)) {
    for (size_t i = 0; i < free.size(); ++i) EXPECT_EQ(way[i].tokens, free[i].tokens) << i;
  }
}

// How far is the draw of the token behind `row` from where another token's share begins?
double distance_to_a_boundary(const model::Model& model, const Request& request, const Tokens& row,
                              const SamplingOptions& sampling) {
  tensor::PlainUnits units;
  tensor::Batch batch;
  batch.tokens = at::tensor(row).unsqueeze(0);
  const auto hidden = model.forward(batch, {.training = false}, units);
  const auto ends =
      at::softmax(model.head_logits(hidden, units)[0][-1].to(at::kDouble), 0).cumsum(0);
  const auto key = ops::draw_key(sampling.seed, sampling.step, request.prompt_id);
  const auto bits = ops::draw_bits(key, request.sample, row.size());
  return (ends - static_cast<double>(bits) * 0x1p-64).abs().min().item<double>();
}

// Sums of matrix products depend on the number of rows, in float32 by more than draws are apart.
TEST(Generate, InFloat32TextsPartAtDrawsBesideABoundaryAlone) {
  const auto model =
      model::build(model::tiny_config(model::kTinyLlama, R"(, "max_position_embeddings": 90)"));
  const auto wide = roomy_model();
  for (size_t i = 0; i < model->table().parameters.size(); ++i) {
    *model->table().parameters[i].slot = wide->table().parameters[i].slot->detach().to(at::kFloat);
  }
  const auto crowd = large_crowd();
  const auto free = run(*model, crowd.requests, crowd.options);
  for (const auto& way : in_other_ways(*model, crowd)) {
    int parted = 0;
    for (size_t i = 0; i < free.size(); ++i) {
      const auto& mine = free[i].tokens;
      const auto at = std::ranges::mismatch(mine, way[i].tokens).in1;
      if (at == mine.end()) continue;
      ++parted;
      auto row = crowd.requests[i].prompt;
      row.insert(row.end(), mine.begin(), at);
      EXPECT_LT(distance_to_a_boundary(*model, crowd.requests[i], row, crowd.options.sampling),
                1e-5);
    }
    EXPECT_LE(parted, 2);
  }
}

TEST(Generate, LogProbabilitiesAreThoseOfTheWholeText) {
  const auto model = roomy_model();
  Crowd crowd;
  crowd.options.sampling.temperature = 0.7;
  crowd.options.sampling.top_k = 5;
  const auto found = run(*model, crowd.requests, crowd.options);
  tensor::PlainUnits units;
  for (size_t i = 0; i < found.size(); i += 3) {
    auto row = crowd.requests[i].prompt;
    const auto begin = std::ssize(row);
    row.insert(row.end(), found[i].tokens.begin(), found[i].tokens.end());
    tensor::Batch batch;
    batch.tokens = at::tensor(row).unsqueeze(0);
    const auto hidden = model->forward(batch, {.training = false}, units);
    const auto all = at::log_softmax(model->head_logits(hidden, units)[0] / 0.7, 1);
    for (int64_t at = begin; at < std::ssize(row); ++at) {
      const auto expected = all[at - 1][row[static_cast<size_t>(at)]].item<double>();
      EXPECT_NEAR(found[i].log_probs[static_cast<size_t>(at - begin)], expected, 1e-10);
    }
  }
}

TEST(Generate, APromptIsReadOnceForItsSamples) {
  const auto model = roomy_model();
  Crowd crowd;
  const auto rows_of = [&](const std::vector<Request>& requests) {
    const CallCounter products("aten::linear");
    auto options = crowd.options;
    options.max_new_tokens = 1;
    run(*model, requests, options);
    return products.calls();
  };
  EXPECT_EQ(rows_of(crowd.requests), rows_of({crowd.requests[0]}));  // one pass
  auto options = crowd.options;
  options.max_new_tokens = 1;
  int64_t reported = 0;
  options.on_progress = [&](int64_t tokens, int64_t) { reported = tokens; };
  run(*model, crowd.requests, options);
  EXPECT_LE(reported, 20);
}

// One that has answered half already needs no room for a whole answer.
TEST(Generate, ARequestMayHaveLessRoomThanOthers) {
  const auto model = roomy_model();
  Crowd crowd;
  const auto free = run(*model, crowd.requests, crowd.options);
  auto options = crowd.options;
  for (auto& request : crowd.requests) request.max_new_tokens = 3;
  // Of 37 + 3 tokens; with 40 new ones it would be refused.
  options.cache_bytes = 4 * model->make_cache().page_bytes();
  const auto found = run(*model, crowd.requests, options);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].tokens, Tokens(free[i].tokens.begin(), free[i].tokens.begin() + 3));
    EXPECT_EQ(found[i].finish, Finish::kLength);
  }
}

TEST(Generate, AnotherStepOrSeedDrawsOtherTexts) {
  const auto model = roomy_model();
  Crowd crowd;
  const auto first = run(*model, crowd.requests, crowd.options);
  auto options = crowd.options;
  options.sampling.step = 4;
  EXPECT_NE(run(*model, crowd.requests, options)[0].tokens, first[0].tokens);
  options = crowd.options;
  options.sampling.seed = 10;
  EXPECT_NE(run(*model, crowd.requests, options)[0].tokens, first[0].tokens);
}

TEST(Generate, ThePenaltySeesPromptAndTextWhereverARowGoes) {
  const auto model = roomy_model();
  Crowd crowd;
  crowd.options.sampling.repetition_penalty = 1.3;
  crowd.options.stop_tokens = {2};
  const auto free = run(*model, crowd.requests, crowd.options);
  for (size_t i = 0; i < crowd.requests.size(); i += 7) {
    expect_equal(run(*model, {crowd.requests[i]}, crowd.options), {free[i]});
  }
  auto options = crowd.options;
  options.cache_bytes = 9 * model->make_cache().page_bytes();
  expect_equal(run(*model, crowd.requests, options), free);
}

TEST(Generate, ACacheThatHoldsNoTextIsRefusedWithTheBytesItNeeds) {
  const auto model = roomy_model();
  const auto page = model->make_cache().page_bytes();
  // 37 + 40 tokens are five pages, and one belongs to nobody.
  Crowd crowd;
  crowd.options.cache_bytes = 6 * page - 1;
  EXPECT_THROW(run(*model, crowd.requests, crowd.options), UserError);
  crowd.options.cache_bytes = 6 * page;
  EXPECT_NO_THROW(run(*model, crowd.requests, crowd.options));
}

TEST(Generate, WhatIsAbandonedEndsSoon) {
  const auto model = roomy_model();
  Crowd crowd;
  int tokens = 0;
  crowd.options.on_token = [&](size_t, int64_t) { return ++tokens > 0; };
  crowd.options.is_abandoned = [&] { return tokens > 50; };
  run(*model, crowd.requests, crowd.options);
  EXPECT_LT(tokens, 80);
}

// Two ranks whose passes are collective make equally many.
TEST(Generate, RanksKeepEachOtherCompany) {
  const auto model = roomy_model();
  Crowd crowd;
  const auto free = run(*model, crowd.requests, crowd.options);
  int64_t passes = 0;
  auto options = crowd.options;
  options.goes_on = [&](bool has_work) {
    passes += has_work ? 1 : 0;
    return has_work;
  };
  expect_equal(run(*model, crowd.requests, options), free);
  int64_t left = passes + 12;  // another rank has more to do
  options.goes_on = [&](bool) { return left-- > 0; };
  expect_equal(run(*model, crowd.requests, options), free);
  EXPECT_EQ(left, -1);
  left = 5;
  EXPECT_TRUE(run(*model, {}, options).empty());
  EXPECT_EQ(left, -1);
}

TEST(Generate, AGeneratorIsUsedAgain) {
  const auto model = roomy_model();
  tensor::PlainUnits units;
  Generator generator(*model, units, at::kCPU);
  Crowd crowd;
  const auto all = generator.generate(crowd.requests, crowd.options);
  const std::vector<Request> few{crowd.requests[9], crowd.requests[2]};
  expect_equal(generator.generate(few, crowd.options), {all[9], all[2]});
  crowd.options.max_new_tokens = 50;
  EXPECT_EQ(generator.generate(few, crowd.options)[1].tokens.size(), 50U);
}

TEST(Generate, RefusesLogitsThatAreNoNumbers) {
  auto model = roomy_model();
  for (const auto& parameter : model->table().parameters) {
    const at::NoGradGuard no_grad;
    if (parameter.name == "model.norm.weight") parameter.slot->fill_(std::nan(""));
  }
  EXPECT_THROW(run(*model, {{kShortPrompt}}, {}), UserError);
}

}  // namespace
}  // namespace skein::rollout
