// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/parallel/sharded.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <mutex>

namespace skein::parallel {
namespace {

using tensor::Tensors;

// A net small enough to read and rich enough to go wrong: a root unit that is used twice, blocks of
// which one is frozen with a trainable adapter, a parameter that no loss depends on.
struct Net {
  static constexpr int kBlocks = 3;
  int64_t width, vocabulary = 40;
  at::Tensor embedding, norm;
  at::Tensor weights[kBlocks], biases[kBlocks], adapter, unused;
  tensor::ParameterTable table;

  Net(int64_t width, at::ScalarType dtype) : width(width) {
    using tensor::Init;
    const Init normal{Init::Kind::kNormal, 0.3};
    const int root = table.add_unit("root", true);
    table.add({.name = "embedding",
               .shape = {vocabulary, width},
               .dtype = dtype,
               .unit = root,
               .init = normal,
               .slot = &embedding});
    table.add({.name = "norm",
               .shape = {width},
               .dtype = dtype,
               .unit = root,
               .init = {Init::Kind::kOnes},
               .decay = false,
               .slot = &norm});
    for (int i = 0; i < kBlocks; ++i) {
      const int unit = table.add_unit("block" + std::to_string(i));
      const auto prefix = table.units[unit].name;
      const bool frozen = i == 1;
      table.add({.name = prefix + ".weight",
                 .shape = {width, width},
                 .dtype = dtype,
                 .unit = unit,
                 .init = normal,
                 .trainable = !frozen,
                 .slot = &weights[i]});
      table.add({.name = prefix + ".bias",
                 .shape = {width},
                 .dtype = dtype,
                 .unit = unit,
                 .trainable = !frozen,
                 .decay = false,
                 .slot = &biases[i]});
      if (!frozen) continue;
      table.add({.name = prefix + ".adapter",
                 .shape = {width, 4},
                 .dtype = dtype,
                 .unit = unit,
                 .init = normal,
                 .slot = &adapter});
      table.add({.name = prefix + ".unused",
                 .shape = {5},
                 .dtype = dtype,
                 .unit = unit,
                 .init = normal,
                 .slot = &unused});
    }
  }

  at::Tensor loss(tensor::Units& units, const at::Tensor& tokens) const {
    auto x =
        units.run(0, [&](const Tensors&) { return Tensors{at::embedding(embedding, tokens)}; }, {});
    for (int i = 0; i < kBlocks; ++i) {
      x = units.run(
          i + 1,
          [&, i](const Tensors& in) {
            auto y = at::linear(in[0], weights[i], biases[i]);
            if (i == 1) y = y + at::linear(at::linear(in[0], adapter.t()), adapter);
            return Tensors{at::tanh(y) + in[0]};
          },
          x);
    }
    const auto logits = units.run(
        0, [&](const Tensors& in) { return Tensors{at::linear(in[0] * norm, embedding)}; }, x);
    return (logits[0] * logits[0]).sum() / 64;
  }
};

struct Outcome {
  std::vector<double> norms;
  std::map<std::string, at::Tensor> parameters;  // gathered over ranks
  int64_t peak_bytes = 0;
  int64_t bytes_sent = 0;
};

struct Case {
  int ranks = 1;
  int stage = 0;
  int64_t micro_batches = 1;
  bool recompute = false;
  at::ScalarType dtype = at::kFloat;
  int64_t width = 24;
  int steps = 3;
};

Outcome train(const Case& c) {
  Outcome outcome;
  std::mutex mutex;
  comm::run_ranks(c.ranks, [&](comm::Group& world) {
    Net net(c.width, c.dtype);
    Sharded sharded(
        net.table,
        {.stage = {c.stage}, .recompute = c.recompute, .fp32_gradients = c.micro_batches > 1},
        world);
    sharded.initialise(7);
    optim::AdamW optimizer(sharded.owned_ranges(), {.learning_rate = 1e-2, .weight_decay = 0.1},
                           sharded.memory());
    std::vector<double> norms;
    for (int step = 0; step < c.steps; ++step) {
      for (int64_t k = 0; k < c.micro_batches; ++k) {
        sharded.begin_micro_batch(k, c.micro_batches);
        const auto tokens =
            (at::arange(6) * 7 + step * 5 + k * 11 + world.rank() * 13) % net.vocabulary;
        torch::autograd::backward({net.loss(sharded, tokens)});
        sharded.end_micro_batch();
      }
      const auto [norm, decision, squares] = sharded.gradient_norm(1.0);
      norms.push_back(norm.item<double>());
      optimizer.step(1e-2, decision);
      sharded.publish();
    }
    const auto slices = sharded.slices_to_save();
    world.barrier();
    const std::lock_guard lock(mutex);
    for (const auto& slice : slices) {
      auto& whole = outcome.parameters[slice.name];
      if (!whole.defined()) whole = at::zeros(slice.shape, slice.data.scalar_type()).flatten();
      whole.slice(0, slice.begin, slice.end).copy_(slice.data);
    }
    if (world.rank() == 0) {
      outcome.norms = norms;
      outcome.peak_bytes = sharded.memory().peak_bytes();
      outcome.bytes_sent = world.bytes_sent();
    }
  });
  return outcome;
}

void expect_bit_equal(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(a.norms, b.norms) << what;
  for (const auto& [name, values] : a.parameters) {
    EXPECT_TRUE(values.equal(b.parameters.at(name))) << what << ": " << name;
  }
}

std::string describe(const Case& c) {
  return fmt::format("{} ranks, stage {}, {} micro-batches, recompute {}", c.ranks, c.stage,
                     c.micro_batches, c.recompute);
}

TEST(Sharded, StagesAreBitEqualAtAccumulationOne) {
  for (const int ranks : {1, 2, 3}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const auto reference = train({.ranks = ranks, .dtype = dtype});
      for (const int stage : {0, 1, 2, 3}) {
        for (const bool recompute : {false, true}) {
          const Case c{.ranks = ranks, .stage = stage, .recompute = recompute, .dtype = dtype};
          expect_bit_equal(reference, train(c), describe(c));
        }
      }
    }
  }
}

TEST(Sharded, PairsOfStagesAreBitEqualUnderAccumulation) {
  for (const int ranks : {1, 2, 3}) {
    const Case zero{.ranks = ranks, .stage = 0, .micro_batches = 3},
        one{.ranks = ranks, .stage = 1, .micro_batches = 3};
    const Case two{.ranks = ranks, .stage = 2, .micro_batches = 3},
        three{.ranks = ranks, .stage = 3, .micro_batches = 3};
    const auto whole = train(zero), sharded = train(two);
    expect_bit_equal(whole, train(one), describe(one));
    expect_bit_equal(sharded, train(three), describe(three));
    for (size_t i = 0; i < whole.norms.size(); ++i) {
      EXPECT_NEAR(whole.norms[i], sharded.norms[i], 1e-5 * whole.norms[i]);
    }
  }
}

TEST(Sharded, MoreRanksGiveTheSameTraining) {
  // The same six micro-batches of a step on 1, 2 and 3 ranks, in float64.
  const auto norms = [](int ranks, int64_t micro_batches) {
    std::vector<double> found;
    comm::run_ranks(ranks, [&](comm::Group& world) {
      Net net(16, at::kDouble);
      Sharded sharded(net.table, {.stage = {3}}, world);
      sharded.initialise(7);
      optim::AdamW optimizer(sharded.owned_ranges(), {}, sharded.memory());
      for (int step = 0; step < 3; ++step) {
        for (int64_t k = 0; k < micro_batches; ++k) {
          sharded.begin_micro_batch(k, micro_batches);
          const int64_t part = k * ranks + world.rank();
          torch::autograd::backward(
              {net.loss(sharded, (at::arange(4) * 3 + part * 5 + step) % net.vocabulary)});
          sharded.end_micro_batch();
        }
        const auto [norm, decision, squares] = sharded.gradient_norm(1.0);
        if (world.rank() == 0) found.push_back(norm.item<double>());
        optimizer.step(1e-2, decision);
        sharded.publish();
      }
    });
    return found;
  };
  const auto one = norms(1, 6), two = norms(2, 3), three = norms(3, 2);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(one[i], two[i], 1e-10 * one[i]);
    EXPECT_NEAR(one[i], three[i], 1e-10 * one[i]);
  }
}

// The figures of ARCHITECTURE.md, per trainable and frozen element, with transients named there.
TEST(Sharded, PeakBytesAndBytesSentFollowTheFormulas) {
  const int64_t width = 256, vocabulary = 40;
  const double root = static_cast<double>(vocabulary * width + width);
  const double block = static_cast<double>(width * width + width);
  const double adapter = static_cast<double>(4 * width + 5);
  const double blocks = 2 * block + adapter, frozen = block, trainable = root + blocks;
  for (const int n : {1, 2, 3}) {
    for (const int64_t k : {int64_t{1}, int64_t{2}}) {
      const double unit = block,
                   transients = 2 * 4 * unit + 4 * root;  // gradients at stages 2 and 3
      const double weights = 4 * (trainable + frozen);
      const double peaks[] = {
          16 * trainable + 4 * frozen, weights + (4 + 8.0 / n) * trainable,
          weights + 12.0 / n * trainable + transients,
          (16.0 * trainable + 4 * frozen) / n + 2 * 4 * (block + adapter) + 4 * root + transients};
      const double share = (n - 1.0) / n * 4;
      const double sent[] = {2 * trainable, 2 * trainable, (k + 1.0) * trainable,
                             3 * k * blocks + 2 * root + 2 * k * frozen};
      for (const int stage : {0, 1, 2, 3}) {
        const auto outcome =
            train({.ranks = n, .stage = stage, .micro_batches = k, .width = width, .steps = 1});
        EXPECT_LE(static_cast<double>(outcome.peak_bytes), 1.05 * peaks[stage])
            << stage << " " << n << " " << k;
        EXPECT_LE(static_cast<double>(outcome.bytes_sent), 1.05 * share * sent[stage] + 64)
            << stage << " " << n << " " << k;
      }
    }
  }
}

}  // namespace
}  // namespace skein::parallel
