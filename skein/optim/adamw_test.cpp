// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/adamw.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>

#include "skein/optim/states.h"
#include "skein/tensor/dtype.h"

namespace skein::optim {
namespace {

const config::OptimizerConfig kOptions{.weight_decay = 0.1, .adam_beta1 = 0.9, .adam_beta2 = 0.95};
const config::OptimizerConfig k8bit{.optim = config::OptimizerKind::kAdamW8bit,
                                    .weight_decay = 0.1,
                                    .adam_beta1 = 0.9,
                                    .adam_beta2 = 0.95};

const config::OptimizerConfig kPure{
    .pure_bf16 = true, .weight_decay = 0.1, .adam_beta1 = 0.9, .adam_beta2 = 0.95};

AdamW::Decision decision(double skip = 0, double factor = 1) {
  return {at::full({}, factor, at::kDouble), at::full({}, skip, at::kFloat)};
}

// [0, decay_end) of `size` elements decays, the rest does not.
std::vector<tensor::UpdateGroup> groups(int64_t decay_end, int64_t size) {
  std::vector<tensor::UpdateGroup> list;
  if (decay_end > 0) list.push_back({{0, decay_end}, true});
  if (decay_end < size) list.push_back({{decay_end, size}, false});
  return list;
}

// The paper's formulas, one element at a time, in double.
double reference_after(double weight, const std::vector<double>& gradients, double lr,
                       double decay) {
  double m = 0, v = 0;
  for (size_t t = 1; t <= gradients.size(); ++t) {
    const double g = gradients[t - 1];
    weight *= 1 - lr * decay;
    m = 0.9 * m + 0.1 * g;
    v = 0.95 * v + 0.05 * g * g;
    const double corrected = std::sqrt(v / (1 - std::pow(0.95, t))) + 1e-8;
    weight -= lr * (m / (1 - std::pow(0.9, t))) / corrected;
  }
  return weight;
}

TEST(AdamW, FollowsThePaperOnBothSidesOfTheDecayBoundary) {
  const auto memory = tensor::FlatMemory::create(at::kCPU);
  auto weights = at::ones({256}, at::kDouble), gradients = at::zeros({256}, at::kDouble);
  AdamW adamw({{weights, gradients, groups(128, 256)}}, kOptions, *memory);
  for (const double g : {0.5, -0.25, 0.125}) {
    gradients.fill_(g);
    adamw.step(0.01, decision());
  }
  EXPECT_NEAR(weights[5].item<double>(), reference_after(1, {0.5, -0.25, 0.125}, 0.01, 0.1), 1e-12);
  EXPECT_NEAR(weights[200].item<double>(), reference_after(1, {0.5, -0.25, 0.125}, 0.01, 0), 1e-12);
  EXPECT_EQ(adamw.num_updates(), 3);
}

// Weights and moments after a hundred steps, by ours or by torch's.
std::vector<at::Tensor> after_a_hundred_steps(at::ScalarType dtype, bool by_torch) {
  at::manual_seed(2);
  const auto memory = tensor::FlatMemory::create(at::kCPU);
  auto weights = at::randn({1024}).to(dtype), gradients = at::zeros({1024}, dtype);
  const auto steps = at::zeros({}, at::kFloat);
  AdamW adamw({{weights, gradients, groups(1024, 1024)}}, kOptions, *memory);
  const auto m = adamw.states()[0][0].data, v = adamw.states()[0][1].data;
  for (int i = 0; i < 100; ++i) {
    gradients.copy_(at::randn({1024}) * 2);
    if (!by_torch) {
      adamw.step(1e-2, decision(0, 0.5));
      continue;
    }
    steps.add_(1);
    at::_fused_adamw_({weights}, {gradients * 0.5}, {m}, {v}, {}, {steps}, 1e-2, 0.9, 0.95, 0.1,
                      1e-8, /*amsgrad=*/false, /*maximize=*/false);
  }
  return {weights.to(at::kDouble), m.to(at::kDouble), v.to(at::kDouble)};
}

// Rounding differs, nothing else; and ours is not the worse one.
TEST(AdamW, StaysWithTorchForAHundredSteps) {
  const auto distance = [](const at::Tensor& a, const at::Tensor& b) {
    return (a - b).abs().max().item<double>();
  };
  const auto truth = after_a_hundred_steps(at::kDouble, /*by_torch=*/true),
             wide = after_a_hundred_steps(at::kDouble, /*by_torch=*/false),
             narrow = after_a_hundred_steps(at::kFloat, /*by_torch=*/false),
             theirs = after_a_hundred_steps(at::kFloat, /*by_torch=*/true);
  for (size_t i = 0; i < truth.size(); ++i) {
    EXPECT_LE(distance(wide[i], truth[i]), 1e-14) << i;
    EXPECT_LE(distance(narrow[i], theirs[i]), 1e-5) << i;
    EXPECT_LE(distance(narrow[i], truth[i]), 2e-6) << i;
  }
  EXPECT_LE(distance(narrow[0], truth[0]), distance(theirs[0], truth[0]));
}

TEST(AdamW, ThreadsChangeNothing) {
  const int before = at::get_num_threads();
  const auto run = [](int threads, const config::OptimizerConfig& options) {
    at::set_num_threads(threads);
    at::manual_seed(3);
    const auto memory = tensor::FlatMemory::create(at::kCPU);
    const int64_t size = 128 * 3000;
    auto weights = at::randn({size}).to(at::kBFloat16);
    const auto gradients = at::randn({size}).to(at::kBFloat16);
    AdamW adamw({{weights, gradients, groups(size / 3, size)}}, options, *memory);
    for (int i = 0; i < 3; ++i) adamw.step(1e-2, decision());
    return adamw.states()[0][0].data;
  };
  EXPECT_TRUE(run(1, kOptions).equal(run(3, kOptions)));
  EXPECT_TRUE(run(1, k8bit).equal(run(3, k8bit)));
  EXPECT_TRUE(run(1, kPure).equal(run(3, kPure)));
  at::set_num_threads(before);
}

TEST(AdamW, ShardsAreBitEqualToTheWhole) {
  at::manual_seed(1);
  const auto start = at::randn({1024}), gradient = at::randn({1024});
  const auto run = [&](const config::OptimizerConfig& options,
                       const std::vector<std::pair<int64_t, int64_t>>& cuts) {
    const auto memory = tensor::FlatMemory::create(at::kCPU);
    auto weights = start.to(options.pure_bf16 ? at::kBFloat16 : at::kFloat, false, /*copy=*/true);
    std::vector<OwnedRange> ranges;
    for (const auto& [begin, end] : cuts) {
      ranges.push_back({weights.slice(0, begin, end), gradient.slice(0, begin, end),
                        groups(std::clamp<int64_t>(640 - begin, 0, end - begin), end - begin),
                        /*host=*/{}, /*segment=*/1, begin});
    }
    AdamW adamw(ranges, options, *memory);
    for (int i = 0; i < 4; ++i) adamw.step(1e-2, decision());
    return weights;
  };
  for (const auto& options : {kOptions, k8bit, kPure}) {
    EXPECT_TRUE(run(options, {{0, 1024}}).equal(run(options, {{0, 384}, {384, 768}, {768, 1024}})));
  }
}

// Rounded moments lead about where exact ones do.
TEST(AdamW, EightBitMomentsFollowFp32Ones) {
  const auto run = [](const config::OptimizerConfig& options) {
    at::manual_seed(5);
    const auto memory = tensor::FlatMemory::create(at::kCPU);
    auto weights = at::randn({4096}), gradients = at::zeros({4096});
    const auto target = at::randn({4096});
    AdamW adamw({{weights, gradients, groups(0, 4096)}}, options, *memory);
    for (int i = 0; i < 300; ++i) {
      gradients.copy_(weights - target + at::randn({4096}) * 0.3);
      adamw.step(1e-2, decision());
    }
    return std::pair((weights - target).norm().item<double>(), weights);
  };
  const auto [exact_distance, exact] = run(kOptions);
  const auto [distance, weights] = run(k8bit);
  EXPECT_NEAR(distance / exact_distance, 1, 0.05);
  EXPECT_LT((weights - exact).norm().item<double>() / exact.norm().item<double>(), 0.01);
  EXPECT_FALSE(weights.equal(exact));
}

TEST(AdamW, GroupsHaveRatesOfTheirOwn) {
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const auto memory = tensor::FlatMemory::create(at::kCPU);
    auto weights = at::ones({384}, dtype), gradients = at::full({384}, 0.5, dtype);
    AdamW adamw({{weights,
                  gradients,
                  {{{0, 128}, true, 1}, {{128, 256}, true, 16}, {{256, 384}, false, 16}}}},
                kOptions, *memory);
    adamw.step(0.01, decision());
    adamw.step(0.01, decision());
    const auto expect = [&](int64_t element, double rate, double decay) {
      EXPECT_NEAR(weights[element].item<double>(), reference_after(1, {0.5, 0.5}, rate, decay),
                  dtype == at::kDouble ? 1e-12 : 1e-6);
    };
    expect(127, 0.01, 0.1);
    expect(128, 0.16, 0.1);
    expect(256, 0.16, 0);
  }
}

TEST(AdamW, SkipLeavesEverythingAsItIs) {
  const auto memory = tensor::FlatMemory::create(at::kCPU);
  auto weights = at::ones({128}), gradients = at::ones({128});
  AdamW adamw({{weights, gradients, groups(128, 128)}}, kOptions, *memory);
  adamw.step(0.1, decision(/*skip=*/1));
  EXPECT_TRUE(weights.equal(at::ones({128})));
  EXPECT_EQ(adamw.num_updates(), 0);
  adamw.step(0.1, decision());
  EXPECT_LT(weights[0].item<float>(), 1);
  EXPECT_EQ(adamw.num_updates(), 1);
}

TEST(AdamW, FactorMultipliesTheGradient) {
  const auto run = [](double gradient, double factor) {
    const auto memory = tensor::FlatMemory::create(at::kCPU);
    auto weights = at::ones({128}), gradients = at::full({128}, gradient);
    AdamW adamw({{weights, gradients, groups(128, 128)}}, {.adam_epsilon = 0.1}, *memory);
    adamw.step(0.1, decision(0, factor));
    return weights;
  };
  EXPECT_TRUE(run(0.5, 0.25).equal(run(0.125, 1)));
  EXPECT_FALSE(run(0.5, 1).equal(run(0.125, 1)));
}

TEST(AdamW, LeavesTheGradientsAsTheyAre) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const auto memory = tensor::FlatMemory::create(at::kCPU);
    auto weights = at::ones({128}, dtype), gradients = at::ones({128}, dtype);
    AdamW adamw({{weights, gradients, groups(128, 128)}}, kOptions, *memory);
    adamw.step(0.1, decision(0, 0.5));
    EXPECT_TRUE(gradients.equal(at::ones({128}, dtype))) << dtype;
  }
}

TEST(AdamW, SixteenBitWeightsHaveAnFp32Master) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (const auto gradient_dtype : {dtype, at::kFloat}) {
      const auto memory = tensor::FlatMemory::create(at::kCPU);
      auto weights = at::ones({128}, dtype), gradients = at::ones({128}, gradient_dtype);
      AdamW adamw({{weights, gradients, groups(0, 128)}}, kOptions, *memory);
      for (int i = 0; i < 10; ++i) adamw.step(1e-4, decision());
      // Ten steps of 1e-4 are below 16 bits' resolution at 1, and must not be lost.
      const auto& [name, master, block] = adamw.states()[0][0];
      ASSERT_EQ(name, "master");
      EXPECT_NEAR(master[0].item<float>(), 1 - 1e-3, 1e-5);
      EXPECT_TRUE(weights.equal(master.to(dtype)));
      EXPECT_EQ(memory->bytes(), 128 * 12);
    }
  }
}

// Steps of a thousandth of bf16's resolution: rounding to the nearest would lose them all.
TEST(AdamW, PureBf16KeepsSmallStepsOnAverage) {
  for (const auto optim : {config::OptimizerKind::kAdamW, config::OptimizerKind::kAdamW8bit}) {
    const auto memory = tensor::FlatMemory::create(at::kCPU);
    auto weights = at::ones({1 << 16}, at::kBFloat16),
         gradients = at::full({1 << 16}, 0.5, at::kBFloat16);
    auto options = kPure;
    options.optim = optim;
    AdamW adamw({{weights, gradients, groups(0, 1 << 16)}}, options, *memory);
    for (int i = 0; i < 100; ++i) adamw.step(1e-5, decision());
    EXPECT_NEAR(weights.to(at::kDouble).mean().item<double>(), 1 - 1e-3, 5e-5);
    EXPECT_EQ(memory->bytes(), state_bytes(options, DType::kBF16, 1 << 16));
  }
}

// Seed, segment, place and number of the update: each of them changes what is drawn.
TEST(AdamW, PureBf16RoundsByItsKey) {
  const auto run = [](uint64_t seed, uint64_t segment, int64_t begin, int64_t updates) {
    const auto memory = tensor::FlatMemory::create(at::kCPU);
    auto weights = at::ones({256}, at::kBFloat16), gradients = at::ones({256}, at::kBFloat16);
    AdamW adamw({{weights, gradients, groups(0, 256), /*host=*/{}, segment, begin}}, kPure, *memory,
                seed);
    adamw.set_num_updates(updates);
    adamw.step(2e-3, decision());
    return weights;
  };
  EXPECT_TRUE(run(1, 1, 0, 9).equal(run(1, 1, 0, 9)));
  EXPECT_FALSE(run(1, 1, 0, 9).equal(run(2, 1, 0, 9)));
  EXPECT_FALSE(run(1, 1, 0, 9).equal(run(1, 2, 0, 9)));
  EXPECT_FALSE(run(1, 1, 0, 9).equal(run(1, 1, 256, 9)));
  EXPECT_FALSE(run(1, 1, 0, 9).equal(run(1, 1, 0, 10)));
}

// What plans count and checkpoints list is what is there.
TEST(AdamW, StatesAreThoseOfTheList) {
  using Case = std::pair<at::ScalarType, config::OptimizerConfig>;
  for (const auto& [dtype, options] :
       {Case{at::kBFloat16, kOptions}, Case{at::kFloat, kOptions}, Case{at::kDouble, kOptions},
        Case{at::kBFloat16, k8bit}, Case{at::kFloat, k8bit}, Case{at::kBFloat16, kPure},
        Case{at::kFloat, kPure}}) {
    const auto memory = tensor::FlatMemory::create(at::kCPU);
    const auto weights = at::ones({256}, dtype), gradients = at::ones({256}, dtype);
    AdamW adamw({{weights, gradients, groups(0, 256)}, {weights, gradients, groups(0, 256)}},
                options, *memory);
    const auto list = state_tensors(options, tensor::dtype_of(dtype));
    ASSERT_EQ(adamw.states().size(), 2U);
    for (const auto& states : adamw.states()) {
      ASSERT_EQ(states.size(), list.size());
      for (size_t i = 0; i < list.size(); ++i) {
        EXPECT_EQ(states[i].name, list[i].name);
        EXPECT_EQ(tensor::dtype_of(states[i].data.scalar_type()), list[i].dtype);
        EXPECT_EQ(states[i].data.numel(), 256 / list[i].block);
      }
    }
    const auto bytes = state_bytes(options, tensor::dtype_of(dtype), 2 * 256);
    EXPECT_EQ(memory->all_bytes(), MediumBytes{.device = bytes});
  }
}

TEST(AdamW, BytesOfStates) {
  EXPECT_EQ(state_bytes(kOptions, DType::kBF16, 1280), 1280 * 12);
  EXPECT_EQ(state_bytes(k8bit, DType::kBF16, 1280), 1280 * (4 + 2) + 2 * 10 * 4);
  EXPECT_EQ(state_bytes(k8bit, DType::kF32, 1280), 1280 * 2 + 2 * 10 * 4);
  EXPECT_EQ(state_bytes(kPure, DType::kBF16, 1280), 1280 * 4);
  EXPECT_EQ(state_bytes(kPure, DType::kF32, 1280), 1280 * 8) << "adapters";
}

}  // namespace
}  // namespace skein::optim
