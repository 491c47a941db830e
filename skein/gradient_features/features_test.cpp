// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Per-sample gradients against plain autograd, one sample at a time, in float64; their forms and
// projections against what the formulas say.
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <map>
#include <mutex>

#include "skein/core/testing.h"
#include "skein/gradient_features/document_pieces.h"
#include "skein/gradient_features/feature_rows.h"
#include "skein/gradient_features/files/projection.h"
#include "skein/gradient_features/files/projection_signs.h"
#include "skein/gradient_features/sign_projection.h"
#include "skein/gradient_features/test_models.h"

namespace skein::gradient_features {
namespace {

using model::tiny_config;
using model::tiny_lora;
using Rows = std::map<std::string, at::Tensor>;  // by parameter: (documents, elements)

constexpr int64_t kMemory = int64_t{1} << 20;

Rows computed_rows(HeldModel& held, const std::vector<std::string>& words,
                   const tensor::HostBatch& run, int64_t memory = kMemory) {
  const auto names = choose_parameters(held.model->table(), words);
  SampleGradients gradients(*held.model, held.sharded, names, memory);
  Rows rows;
  for (const auto& name : names) {
    const auto numel = held.model->table().find(name)->numel();
    rows[name] = at::zeros({std::ssize(run.document_ends), numel}, at::kDouble);
  }
  gradients.compute(run, [&](const SampleGradients::Part& part) {
    rows.at(part.name)
        .narrow(0, part.first_document, part.rows.size(0))
        .narrow(1, part.first_element, part.rows.size(1))
        .add_(part.rows);  // each element once: twice would show
    return true;
  });
  return rows;
}

// A document's mean loss, with a model that nobody shards.
at::Tensor loss_of(const model::Model& model, const tensor::HostBatch& run, size_t document) {
  const int64_t begin = document == 0 ? 0 : run.document_ends[document - 1];
  const int64_t length = run.document_ends[document] - begin;
  const auto cut = [&](const std::vector<int64_t>& values) {
    const std::vector<int64_t> own(values.begin() + begin, values.begin() + begin + length);
    return at::tensor(own, at::kLong).unsqueeze(0);
  };
  tensor::Batch batch{.tokens = cut(run.tokens), .targets = cut(run.targets)};
  batch.documents = at::tensor(std::vector<int64_t>{0}, at::kLong);
  const auto count = (batch.targets != tensor::kIgnore).sum().item<int64_t>();
  tensor::PlainUnits units;
  const auto hidden = model.forward(batch, {.training = false}, units);
  return model.head_loss_sum(hidden, batch.targets, {}, units) / static_cast<double>(count);
}

Rows expected_rows(const plan::HfConfig& config, const plan::Tuning& tuning,
                   const std::vector<std::string>& words, const tensor::HostBatch& run) {
  const auto model = model::build(config, {.dtype = at::kDouble, .tuning = tuning});
  for (const auto& parameter : model->table().parameters) {
    auto leaf = model::make_leaf(parameter, at::kCPU);
    model::without_padding(parameter, leaf).copy_(drawn_values(parameter.name, parameter.shape));
    *parameter.slot = leaf.set_requires_grad(true);
  }
  Rows rows;
  const auto names = choose_parameters(model->table(), words);
  std::vector<at::Tensor> leaves;
  for (const auto& name : names) {
    const auto& parameter = *model->table().find(name);
    leaves.push_back(*parameter.slot);
    rows[name] = at::zeros({std::ssize(run.document_ends), parameter.numel()}, at::kDouble);
  }
  for (size_t i = 0; i < run.document_ends.size(); ++i) {
    const auto found = torch::autograd::grad({loss_of(*model, run, i)}, leaves, {}, false, false,
                                             /*allow_unused=*/true);
    for (size_t k = 0; k < names.size(); ++k) {
      if (!found[k].defined()) continue;
      const auto& parameter = *model->table().find(names[k]);
      rows[names[k]][static_cast<int64_t>(i)] =
          model::without_padding(parameter, found[k]).flatten();
    }
  }
  return rows;
}

void expect_close(const Rows& expected, const Rows& found, const std::string& what) {
  ASSERT_EQ(expected.size(), found.size()) << what;
  for (const auto& [name, rows] : expected) {
    EXPECT_GT(rows.abs().sum().item<double>(), 0) << what << ", " << name;
    const auto scale = rows.norm().item<double>() + 1e-3;
    EXPECT_LT((rows - found.at(name)).norm().item<double>() / scale, 1e-10) << what << ", " << name;
  }
}

struct Case {
  std::string name;
  plan::HfConfig config;
  plan::Tuning tuning;
  std::vector<std::string> words;
};

std::vector<Case> cases() {
  const auto all = tiny_lora(R"("target_modules": "all-linear")");
  std::vector<Case> list = {
      {"weights and biases",
       tiny_config(model::kTinyLlama),
       {},
       {"self_attn.q_proj", "mlp.down_proj"}},
      {"weights of Conv1D", tiny_config(model::kTinyGpt), {}, {"attn.c_attn", "mlp.c_fc"}},
      {"adapters of one block",
       tiny_config(model::kTinyLlama),
       tiny_lora(R"("target_modules": ["v_proj"], "layers_to_transform": [1])"),
       {"adapter"}},
  };
  for (const auto& family : model::tiny_families()) {
    const auto config = tiny_config(family);
    list.push_back({config.family + " adapters", config, all, {"adapter"}});
  }
  return list;
}

TEST(SampleGradients, OfARunEqualPlainAutogradSampleBySample) {
  const auto run = tiny_run({5, 2, 9, 3});
  for (const auto& c : cases()) {
    const auto expected = expected_rows(c.config, c.tuning, c.words, run);
    for (const bool recompute : {false, true}) {
      HeldModel held(c.config, c.tuning, /*stage=*/0, recompute);
      expect_close(expected, computed_rows(held, c.words, run), c.name);
      expect_close(expected, computed_rows(held, c.words, run, /*memory=*/1),
                   c.name + ", bit by bit");
    }
  }
}

TEST(SampleGradients, OfOneSampleAreThoseInARun) {
  const auto c = cases().back();
  HeldModel held(c.config, c.tuning, 0, false);
  const auto together = computed_rows(held, c.words, tiny_run({5}));
  expect_close(expected_rows(c.config, c.tuning, c.words, tiny_run({5})), together, c.name);
}

// Every rank has samples of its own, and the first none at the end.
TEST(SampleGradients, OfShardedParametersAreTheSame) {
  const auto c = cases().at(3);
  const auto run_of = [](int rank) { return tiny_run({4, 3 + rank}, rank); };
  comm::run_ranks(2, [&](comm::Group& group) {
    const auto expected = expected_rows(c.config, c.tuning, c.words, run_of(group.rank()));
    for (const bool recompute : {false, true}) {
      HeldModel held(c.config, c.tuning, /*stage=*/3, recompute, group);
      for (int i = 0; i < 2; ++i) {
        expect_close(expected, computed_rows(held, c.words, run_of(group.rank())), c.name);
      }
      tensor::HostBatch none{.rows = 1,
                             .length = 1,
                             .tokens = {0},
                             .targets = {tensor::kIgnore},
                             .documents = {0},
                             .document_ends = {1}};
      computed_rows(held, c.words, group.rank() == 0 ? none : run_of(1));
    }
  });
}

TEST(SampleGradients, WhatHasNoTapGoesOneSampleAtATime) {
  const auto run = tiny_run({5, 2, 9});
  const auto dora = tiny_lora(R"("target_modules": ["q_proj", "up_proj"], "use_dora": true)");
  const auto tied = tiny_config(model::kTinyLlama, R"(, "tie_word_embeddings": true)");
  const std::vector<Case> list = {
      {"dora", tiny_config(model::kTinyLlama), dora, {"adapter"}},
      {"all of a tied model", tied, {}, {"full"}},
      {"norms", tiny_config(model::kTinyLlama), {}, {"norm", "input_layernorm"}},
  };
  for (const auto& c : list) {
    HeldModel held(c.config, c.tuning, 0, false);
    const auto names = choose_parameters(held.model->table(), c.words);
    EXPECT_FALSE(SampleGradients(*held.model, held.sharded, names, kMemory).untapped().empty());
    expect_close(expected_rows(c.config, c.tuning, c.words, run), computed_rows(held, c.words, run),
                 c.name);
  }
}

TEST(SampleGradients, WordsThatMeanNothingAreRefused) {
  const auto config = tiny_config(model::kTinyLlama);
  HeldModel held(config, {}, 0, false);
  const auto why = [&](const std::string& word) {
    return refusal<UserError>([&] { choose_parameters(held.model->table(), {word}); });
  };
  EXPECT_NE(why("adapter").find("no adapter"), std::string::npos);
  EXPECT_NE(why("q_prj").find("'q_prj'"), std::string::npos);
  EXPECT_EQ(choose_parameters(held.model->table(), {"full"}).size(),
            held.model->table().parameters.size());
}

TEST(GradientForm, IsThatOfTheFormulas) {
  const auto g = at::tensor({0.5, -2.0, 0.0, 1e-6}, at::kDouble).unsqueeze(0);
  const auto m = at::tensor({0.1, 0.2, -0.3, 0.0}, at::kDouble);
  const auto v = at::tensor({0.04, 0.0, 0.01, 0.0}, at::kDouble);
  const auto form = [&](GradientType type, AdamForm adam) {
    GradientForm made(type, adam);
    const auto pad = [](const at::Tensor& x) { return at::cat({at::zeros({3}, at::kDouble), x}); };
    made.set_moments({{"p", {pad(m), pad(v)}}}, /*num_updates=*/4);
    auto rows = g.clone();
    made.apply(rows, "p", /*first_element=*/3);
    return rows;
  };
  EXPECT_TRUE(at::equal(form(GradientType::kSgd, AdamForm::kLess), g));
  EXPECT_TRUE(at::equal(form(GradientType::kSign, AdamForm::kLess), g.sign()));
  const auto first = 0.9 * m + 0.1 * g, second = 0.999 * v + 0.001 * g * g;
  EXPECT_TRUE(at::allclose(form(GradientType::kAdam, AdamForm::kLess),
                           first / (second + 1e-8).sqrt(), 1e-12, 1e-12));
  const auto standard =
      first / (1 - std::pow(0.9, 5)) / ((second / (1 - std::pow(0.999, 5))).sqrt() + 1e-8);
  EXPECT_TRUE(at::allclose(form(GradientType::kAdam, AdamForm::kStandard), standard, 1e-12, 1e-12));
}

// Adam's second moment is formed beside the rows.
TEST(GradientForm, CountsItsBuffers) {
  EXPECT_EQ(GradientForm(GradientType::kSgd).buffers(), 1);
  EXPECT_EQ(GradientForm(GradientType::kSign).buffers(), 1);
  EXPECT_EQ(GradientForm(GradientType::kAdam).buffers(), 2);
}

// Whatever the form makes of it, the sample is known for it.
TEST(GradientForm, WhatIsNotFiniteStaysSo) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto rows = [&] {
    auto made = at::ones({5, 4}, at::kFloat);
    made[1][2] = std::numeric_limits<float>::quiet_NaN();
    made[2][3] = kInfinity;
    made[3][1] = -kInfinity;
    made[4][0] = 3e38F;  // its square is infinite
    return made;
  };
  for (const auto type : {GradientType::kSgd, GradientType::kSign, GradientType::kAdam}) {
    for (const auto adam : {AdamForm::kLess, AdamForm::kStandard}) {
      GradientForm form(type, adam);
      form.set_moments({{"p", {at::zeros({4}), at::zeros({4})}}}, 3);
      const auto formed = rows();
      form.apply(formed, "p", 0);
      const auto finite = formed.isfinite().all(1);
      EXPECT_TRUE(finite[0].item<bool>());
      for (int64_t i = 1; i < 4; ++i) EXPECT_FALSE(finite[i].item<bool>()) << i;
      EXPECT_EQ(finite[4].item<bool>(), type != GradientType::kAdam);
      // And in the projection, which sums it with others.
      auto sums = at::zeros({5, 130});
      add_projection(sums, formed, projection_stream(0, "p"), 0);
      EXPECT_TRUE(at::equal(sums.isfinite().all(1), finite));
    }
  }
}

at::Tensor signs(uint64_t stream, int64_t first, int64_t elements, int64_t columns) {
  auto matrix = at::zeros({elements, columns}, at::kDouble);
  auto* next = matrix.mutable_data_ptr<double>();
  for (int64_t e = 0; e < elements; ++e) {
    for (int64_t c = 0; c < columns; ++c) {
      *next++ = random::projection_sign(stream, static_cast<uint64_t>(first + e),
                                        static_cast<uint64_t>(c));
    }
  }
  return matrix;
}

TEST(SignProjection, IsTheProductWithTheSigns) {
  const auto stream = projection_stream(7, "a.weight");
  at::manual_seed(3);
  for (const int64_t columns : {1, 100, 128, 300}) {
    const auto rows = at::randn({3, 50}, at::kDouble);
    auto sums = at::zeros({3, columns}, at::kDouble);
    add_projection(sums, rows, stream, /*first_element=*/11);
    EXPECT_TRUE(at::allclose(sums, rows.mm(signs(stream, 11, 50, columns)), 1e-12, 1e-12));
    // In pieces it is the same sum.
    auto pieces = at::zeros({3, columns}, at::kDouble);
    for (int64_t first = 0; first < 50; first += 20) {
      const auto count = std::min<int64_t>(20, 50 - first);
      add_projection(pieces, rows.narrow(1, first, count), stream, 11 + first);
    }
    EXPECT_TRUE(at::allclose(sums, pieces, 1e-12, 1e-12));
  }
}

// Many tiles of signs.
TEST(SignProjection, FewerColumnsAreTheBeginningOfMore) {
  const auto stream = projection_stream(0, "b");
  const auto rows = at::randn({2, 5000}, at::kDouble);
  auto few = at::zeros({2, 256}, at::kDouble), many = at::zeros({2, 1024}, at::kDouble);
  add_projection(few, rows, stream, 0);
  add_projection(many, rows, stream, 0);
  EXPECT_TRUE(at::allclose(many.narrow(1, 0, 256), few, 1e-9, 1e-9));
}

// The estimate of an inner product: its mean is the product, its variance that of the theory,
// (|a|²|b|² + (a·b)² - 2 Σ a²b²) / D.
TEST(SignProjection, InnerProductsAreThoseOfTheTheory) {
  constexpr int64_t kProducts = 10'000, kElements = 64, kColumns = 128;
  at::manual_seed(11);
  double sum = 0, square_sum = 0;
  for (int64_t i = 0; i < kProducts; ++i) {
    const auto pair = at::randn({2, kElements}, at::kDouble);
    auto projected = at::zeros({2, kColumns}, at::kDouble);
    add_projection(projected, pair, projection_stream(static_cast<uint64_t>(i), "p"), 0);
    const auto dot = (pair[0] * pair[1]).sum().item<double>();
    const auto found = (projected[0] * projected[1]).sum().item<double>() / kColumns;
    const auto squares = pair * pair;
    const double variance = ((squares[0].sum() * squares[1].sum()).item<double>() + dot * dot -
                             2 * (squares[0] * squares[1]).sum().item<double>()) /
                            kColumns;
    const double score = (found - dot) / std::sqrt(variance);
    sum += score;
    square_sum += score * score;
  }
  EXPECT_LT(std::abs(sum / kProducts), 3 / std::sqrt(kProducts));
  // Of a normal variable's square the variance is 2; products of signs have slightly more.
  EXPECT_NEAR(square_sum / kProducts, 1, 3 * std::sqrt(2.2 / kProducts));
}

// Whatever the samples of a run, the parameters that are formed at a time, and the split.
TEST(FeatureRows, AreTheProjectedGradients) {
  const auto c = cases().at(3);
  const auto run = tiny_run({5, 2, 9, 3});
  const auto rows = expected_rows(c.config, c.tuning, c.words, run);
  auto expected = at::zeros({4, 200}, at::kDouble);
  for (const auto& [name, gradients] : rows) {
    expected += gradients.mm(signs(projection_stream(5, name), 0, gradients.size(1), 200));
  }
  HeldModel held(c.config, c.tuning, 0, false);
  FeatureOptions options{
      .parameters = choose_parameters(held.model->table(), c.words), .seed = 5, .dimension = 200};
  for (const int64_t memory : {int64_t{1}, kMemory}) {
    options.memory = memory;
    FeatureRows features(*held.model, held.sharded, options);
    EXPECT_TRUE(features.untapped().empty());
    EXPECT_TRUE(at::allclose(features.compute(run), expected, 1e-10, 1e-10));
    EXPECT_TRUE(
        at::allclose(features.compute(tiny_run({5})), expected.narrow(0, 0, 1), 1e-10, 1e-10));
  }
}

std::vector<ProjectedParameter> with_sides(const tensor::ParameterTable& table,
                                           const std::vector<std::string>& names, int64_t share) {
  std::vector<ProjectedParameter> parameters;
  for (const auto& name : names) parameters.push_back({name, table.find(name)->shape});
  choose_sides(parameters, share * std::ssize(parameters));
  return parameters;
}

FeatureOptions factor_options(const std::vector<ProjectedParameter>& parameters) {
  FeatureOptions options{.seed = 5};
  for (const auto& parameter : parameters) {
    options.parameters.push_back(parameter.name);
    options.sides.push_back(parameter.sides);
  }
  return options;
}

// gradients (documents, p · q) -> (documents, a · b): the signs multiplied out.
at::Tensor factorised(const at::Tensor& gradients, const ProjectedParameter& parameter,
                      uint64_t seed) {
  const auto own = [&](Side side, int64_t elements, int64_t columns) {
    return signs(factor_stream(seed, parameter.name, side), 0, elements, columns);
  };
  const auto left = own(Side::kLeft, parameter.height(), parameter.sides.left);
  const auto right = own(Side::kRight, parameter.width(), parameter.sides.right);
  const auto whole = gradients.view({-1, parameter.height(), parameter.width()});
  return left.t().matmul(whole).matmul(right).flatten(1);
}

at::Tensor factorised(const Rows& gradients, const std::vector<ProjectedParameter>& parameters) {
  std::vector<at::Tensor> parts;
  for (const auto& parameter : parameters) {
    parts.push_back(factorised(gradients.at(parameter.name), parameter, 5));
  }
  return at::cat(parts, 1);
}

void expect_rows(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  const auto scale = expected.norm().item<double>() + 1e-3;
  EXPECT_LT((found - expected).norm().item<double>() / scale, 1e-10) << what;
}

// Also where the sides are all that there is.
TEST(FactorProjection, IsThatOfTheGradients) {
  const auto run = tiny_run({5, 2, 9, 3});
  for (const auto& c : cases()) {
    const auto gradients = expected_rows(c.config, c.tuning, c.words, run);
    for (const int64_t share : {1, 7, 40, 10'000}) {
      HeldModel held(c.config, c.tuning, 0, /*recompute=*/share == 7);
      const auto& table = held.model->table();
      const auto parameters = with_sides(table, choose_parameters(table, c.words), share);
      const auto expected = factorised(gradients, parameters);
      FeatureRows features(*held.model, held.sharded, factor_options(parameters));
      EXPECT_EQ(columns_of(parameters), expected.size(1));
      expect_rows(features.compute(run), expected, c.name);
      expect_rows(features.compute(tiny_run({5})), expected.narrow(0, 0, 1), c.name + ", alone");
    }
  }
}

TEST(FactorProjection, OfLongDocumentsIsThatOfTheirPieces) {
  const auto c = cases().at(3);
  const auto run = tiny_run({5, kPieceTokens + 5, kPieceTokens, 3 * kPieceTokens - 1});
  HeldModel held(c.config, c.tuning, 0, false);
  const auto& table = held.model->table();
  const auto parameters = with_sides(table, choose_parameters(table, c.words), 20);
  FeatureRows features(*held.model, held.sharded, factor_options(parameters));
  expect_rows(features.compute(run),
              factorised(expected_rows(c.config, c.tuning, c.words, run), parameters), c.name);
}

TEST(FactorProjection, OfShardedParametersIsTheSame) {
  const auto c = cases().at(3);
  const auto run_of = [](int rank) { return tiny_run({4, 3 + rank}, rank); };
  comm::run_ranks(2, [&](comm::Group& group) {
    const auto run = run_of(group.rank());
    const auto gradients = expected_rows(c.config, c.tuning, c.words, run);
    HeldModel held(c.config, c.tuning, /*stage=*/3, /*recompute=*/false, group);
    const auto& table = held.model->table();
    const auto parameters = with_sides(table, choose_parameters(table, c.words), 20);
    FeatureRows features(*held.model, held.sharded, factor_options(parameters));
    for (int i = 0; i < 2; ++i) {
      expect_rows(features.compute(run), factorised(gradients, parameters), "sharded");
    }
  });
}

TEST(FactorProjection, OfFewerParametersIsPartOfThatOfMore) {
  const auto c = cases().at(0);  // two parts of a block's layers
  const auto run = tiny_run({5, 9});
  HeldModel held(c.config, c.tuning, 0, false);
  const auto& table = held.model->table();
  const auto all = with_sides(table, choose_parameters(table, c.words), 12);
  const auto some = with_sides(table, choose_parameters(table, {c.words[1]}), 12);
  const auto compute = [&](const std::vector<ProjectedParameter>& parameters) {
    return FeatureRows(*held.model, held.sharded, factor_options(parameters)).compute(run);
  };
  std::vector<at::Tensor> parts;
  const auto whole = compute(all);
  int64_t first = 0;
  for (const auto& parameter : all) {
    const auto own = whole.narrow(1, first, parameter.sides.columns());
    first += parameter.sides.columns();
    for (const auto& wanted : some) {
      if (wanted.name == parameter.name) parts.push_back(own);
    }
  }
  ASSERT_EQ(parts.size(), some.size());
  expect_rows(compute(some), at::cat(parts, 1), "some");
}

// The mean estimate of an inner product is the product, over matrices with streams of their own.
TEST(FactorProjection, InnerProductsAreUnbiased) {
  constexpr int64_t kProducts = 4'000;
  std::vector<ProjectedParameter> parameters = {{"w", {6, 9}}, {"v", {8, 5}}, {"b", {7}}};
  choose_sides(parameters, 30);
  at::manual_seed(11);
  double sum = 0, square_sum = 0;
  for (int64_t i = 0; i < kProducts; ++i) {
    double error = 0;
    for (const auto& parameter : parameters) {
      const auto pair = at::randn({2, parameter.height() * parameter.width()}, at::kDouble);
      const auto projected = factorised(pair, parameter, static_cast<uint64_t>(i));
      const auto dot = [](const at::Tensor& two) { return (two[0] * two[1]).sum().item<double>(); };
      error += dot(projected) / static_cast<double>(parameter.sides.columns()) - dot(pair);
    }
    sum += error;
    square_sum += error * error;
  }
  EXPECT_LT(std::abs(sum), 3 * std::sqrt(square_sum));
}

TEST(FactorProjection, WhatHasNoTapIsNamed) {
  HeldModel held(tiny_config(model::kTinyLlama), {}, 0, false);
  const auto names = choose_parameters(held.model->table(), {"q_proj", "norm"});
  EXPECT_EQ(untapped_parameters(*held.model, names), std::vector<std::string>{"model.norm.weight"});
}

TEST(DocumentPieces, AddUpToTheirDocuments) {
  const std::vector<int32_t> ends = {3, 3 + kPieceTokens, 4 + kPieceTokens, 300};
  const DocumentPieces pieces(ends, at::kCPU);
  EXPECT_EQ(pieces.count(), 1 + 1 + 1 + 4);
  at::manual_seed(3);
  auto tokens = at::randn({300, 2}, at::kDouble);
  const auto sums = [&] { return pieces.sum(pieces.cut(tokens).sum(1)); };
  const auto before = sums();
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto own = tokens.narrow(0, begin, ends[i] - begin).sum(0);
    EXPECT_TRUE(at::allclose(before[static_cast<int64_t>(i)], own, 1e-12, 1e-12)) << i;
    begin = ends[i];
  }
  // What is not finite stays where it is.
  tokens[5].fill_(std::numeric_limits<double>::infinity());
  const auto after = sums();
  for (const int64_t i : {0, 2, 3}) EXPECT_TRUE(at::equal(before[i], after[i])) << i;
}

}  // namespace
}  // namespace skein::gradient_features
