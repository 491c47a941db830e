// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "tests/ranks/skip_case.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <sstream>
#include <tuple>

#include "skein/ops/init.h"
#include "skein/parallel/sharded.h"

namespace skein::ranks {
namespace {

using tensor::Tensors;

constexpr int kBlocks = 6;
constexpr int64_t kWidth = 8, kVocabulary = 12, kTokens = 3;
constexpr uint64_t kSeed = 9;
constexpr std::array kLoop{1, 2, 3};

// Another subset for a second traversal.
Subset turned(Subset subset) { return (subset * 2 + subset / 32) % kNumSubsets; }

bool is_frozen(Frozen frozen, int block) {  // block -1: the embedding
  switch (frozen) {
    case Frozen::kNothing:
      return false;
    case Frozen::kBeginning:
      return block < 2;
    case Frozen::kAllBlocks:
      return true;
    case Frozen::kMiddle:
      return block == 2 || block == 3;
  }
  return false;
}

struct Net {
  tensor::ParameterTable table;
  at::Tensor embedding, norm, head;
  std::array<at::Tensor, kBlocks> weights, ballast;
  Uses uses;

  Net(Frozen frozen, Uses uses) : uses(uses) {
    const int root = table.add_unit("embedding", /*root=*/true);
    add("embedding", {kVocabulary, kWidth}, root, !is_frozen(frozen, -1), embedding);
    for (int i = 0; i < kBlocks; ++i) {
      const int unit = table.add_unit(fmt::format("block {}", i));
      const bool trainable = !is_frozen(frozen, i);
      add(fmt::format("{}.weight", i), {kWidth, kWidth}, unit, trainable, weights[i]);
      // No two units are equally large: collectives that do not belong together are seen.
      add(fmt::format("{}.ballast", i), {32 * (i + 1), kWidth}, unit, trainable, ballast[i]);
    }
    const int last = table.add_unit("head", /*root=*/true);
    add("norm", {kWidth}, last, true, norm);
    add("head", {kVocabulary, kWidth}, last, true, head);
    if (uses != Uses::kLooped) return;
    table.forward_order = table.turns();
    for (const int block : kLoop) table.forward_order.push_back(block + 1);
  }

  void add(const std::string& name, std::vector<int64_t> shape, int unit, bool trainable,
           at::Tensor& slot) {
    table.add({.name = name,
               .shape = std::move(shape),
               .dtype = at::kDouble,
               .unit = unit,
               .init = {tensor::Init::Kind::kNormal, 0.2},
               .trainable = trainable,
               .slot = &slot});
  }

  // Whole leaves for plain autograd, with the values that a sharding draws.
  void materialise() {
    for (const auto& parameter : table.parameters) {
      auto leaf = at::empty(parameter.shape, at::TensorOptions().dtype(parameter.dtype));
      ops::initialise(leaf.view(-1), 0, parameter.init, ops::init_key(kSeed, parameter.name));
      *parameter.slot = leaf.set_requires_grad(parameter.trainable);
    }
  }

  at::Tensor run_block(tensor::Units& units, int i, const at::Tensor& x) const {
    return units.run(
        i + 1,
        [this, i](const Tensors& in) {
          return Tensors{at::tanh(at::linear(in[0], weights[i]) + ballast[i].sum(0)) + in[0]};
        },
        {x})[0];
  }

  // Hidden states after the final norm, as a model's forward gives them.
  at::Tensor forward(tensor::Units& units, const at::Tensor& tokens, Subset skipped) const {
    const tensor::ForwardPass pass(units);
    auto x = units.run(0, [&](const Tensors&) { return Tensors{at::embedding(embedding, tokens)}; },
                       {})[0];
    for (int i = 0; i < kBlocks; ++i) {
      if ((skipped >> i & 1) != 0) continue;
      x = run_block(units, i, x);
      if (uses == Uses::kTwiceInARow && i % 2 == 1) x = run_block(units, i, x);
    }
    if (uses == Uses::kLooped) {
      for (const int i : kLoop) {
        if ((turned(skipped) >> i & 1) == 0) x = run_block(units, i, x);
      }
    }
    return units.run(kBlocks + 1, [this](const Tensors& in) { return Tensors{in[0] * norm}; },
                     {x})[0];
  }

  at::Tensor loss_of(tensor::Units& units, const at::Tensor& hidden) const {
    const auto logits = units.run(
        kBlocks + 1, [this](const Tensors& in) { return Tensors{at::linear(in[0], head)}; },
        {hidden})[0];
    return (logits * logits).sum();
  }
};

at::Tensor tokens_of(int rank, int64_t micro_batch, int pass) {
  return (at::arange(kTokens) * 5 + rank * 7 + micro_batch * 3 + pass) % kVocabulary;
}

// The loss of one rank's micro-batch. `between` runs between its passes.
at::Tensor loss_of(
    const Net& net, tensor::Units& units, int rank, int64_t micro_batch, Subset skipped,
    const std::function<void()>& between = [] {}) {
  const auto hidden = net.forward(units, tokens_of(rank, micro_batch, 0), skipped);
  if (net.uses != Uses::kTwoPasses) return net.loss_of(units, hidden);
  between();
  const auto second = net.forward(units, tokens_of(rank, micro_batch, 1), turned(skipped));
  const auto loss = net.loss_of(units, hidden);
  return loss + net.loss_of(units, second);
}

bool runs_backward(Uses uses, Subset skipped) {
  return uses != Uses::kWithoutBackward || std::popcount(skipped) % 2 == 0;
}

using Gradients = std::map<std::string, at::Tensor>;

// What plain autograd finds for one rank's micro-batch.
Gradients plain_gradients(Net& net, int rank, int64_t micro_batch, Subset skipped) {
  Gradients gradients;
  if (!runs_backward(net.uses, skipped)) return gradients;
  tensor::PlainUnits units;
  Tensors leaves;
  for (const auto& parameter : net.table.parameters) {
    if (parameter.trainable) leaves.push_back(*parameter.slot);
  }
  const auto found = torch::autograd::grad({loss_of(net, units, rank, micro_batch, skipped)},
                                           leaves, {}, {}, false, /*allow_unused=*/true);
  size_t next = 0;
  for (const auto& parameter : net.table.parameters) {
    if (!parameter.trainable) continue;
    if (found[next].defined()) gradients[parameter.name] = found[next].flatten();
    ++next;
  }
  return gradients;
}

// Sums over ranks and micro-batches; every part is computed once.
class Expectation {
 public:
  explicit Expectation(const SkipCase& c) : case_(c), net_(c.frozen, c.uses) { net_.materialise(); }

  at::Tensor of(const tensor::Parameter& parameter, const SkipPair& pair) {
    auto sum = at::zeros({parameter.numel()}, at::kDouble);
    for (int64_t k = 0; k < case_.micro_batches; ++k) {
      for (const int rank : {0, 1}) {
        const auto& part = gradients(rank, k, rank == 0 ? pair.first : pair.second);
        const auto found = part.find(parameter.name);
        if (found != part.end()) sum += found->second;
      }
    }
    return sum;
  }
  double reference_loss(int rank, Subset skipped) {
    const at::NoGradGuard no_grad;
    tensor::PlainUnits units;
    const auto hidden = net_.forward(units, tokens_of(rank, 0, 2), skipped);
    return net_.loss_of(units, hidden).item<double>();
  }

 private:
  const Gradients& gradients(int rank, int64_t micro_batch, Subset skipped) {
    const auto [found, is_new] = cache_.try_emplace({rank, micro_batch, skipped});
    if (is_new) found->second = plain_gradients(net_, rank, micro_batch, skipped);
    return found->second;
  }

  SkipCase case_;
  Net net_;
  std::map<std::tuple<int, int64_t, Subset>, Gradients> cache_;
};

// This rank's part of the gradients against the expectation. One micro-batch is summed in one
// order, more in an order of the stage.
std::string compare(const SkipCase& c, const SkipPair& pair, const parallel::Sharded& sharded,
                    const tensor::ParameterTable& table, Expectation& expectation) {
  std::string wrong;
  for (const auto& slice : sharded.gradient_slices()) {
    const auto expected =
        expectation.of(*table.find(slice.name), pair).slice(0, slice.begin, slice.end);
    const bool right = c.micro_batches == 1
                           ? slice.data.equal(expected)
                           : slice.data.allclose(expected, /*rtol=*/1e-11, /*atol=*/1e-13);
    if (right) continue;
    wrong += fmt::format("{}, skipping {:06b} and {:06b}: the gradient of {} differs by {}\n",
                         c.text(), pair.first, pair.second, slice.name,
                         (slice.data - expected).abs().max().item<double>());
  }
  return wrong;
}

}  // namespace

std::string SkipCase::text() const {
  return fmt::format("{} {} {} {} {}", stage, static_cast<int>(frozen), static_cast<int>(uses),
                     int{recompute}, micro_batches);
}

SkipCase SkipCase::parse(const std::string& text) {
  SkipCase c;
  int frozen = 0, uses = 0;
  std::istringstream(text) >> c.stage >> frozen >> uses >> c.recompute >> c.micro_batches;
  c.frozen = static_cast<Frozen>(frozen);
  c.uses = static_cast<Uses>(uses);
  return c;
}

std::string run_skip_case(const SkipCase& c, const std::vector<SkipPair>& pairs,
                          comm::Group& world) {
  Net net(c.frozen, c.uses), reference_net(c.frozen, c.uses);
  const parallel::ShardOptions options{.stage = parallel::kStages[c.stage],
                                       .recompute = c.recompute};
  parallel::Sharded sharded(net.table, options, world);
  parallel::Sharded reference(reference_net.table,
                              {.stage = parallel::kStages[c.stage], .inference = true}, world);
  sharded.initialise(kSeed);
  reference.initialise(kSeed);
  Expectation expectation(c);
  std::string wrong;
  for (const auto& pair : pairs) {
    const Subset skipped = world.rank() == 0 ? pair.first : pair.second;
    const auto ask_reference = [&] {
      const at::NoGradGuard no_grad;
      const auto roots = reference.hold_roots();
      const auto hidden = reference_net.forward(reference, tokens_of(world.rank(), 0, 2), skipped);
      const double loss = reference_net.loss_of(reference, hidden).item<double>();
      if (loss == expectation.reference_loss(world.rank(), skipped)) return;
      wrong +=
          fmt::format("{}, skipping {:06b}: the reference's loss differs\n", c.text(), skipped);
    };
    for (int64_t k = 0; k < c.micro_batches; ++k) {
      sharded.begin_micro_batch(k, c.micro_batches);
      const auto loss = loss_of(net, sharded, world.rank(), k, skipped, ask_reference);
      if (runs_backward(c.uses, skipped)) torch::autograd::backward({loss});
      sharded.end_micro_batch();
    }
    wrong += compare(c, pair, sharded, net.table, expectation);
    sharded.publish();  // as after an update; what a rank skips is still on its way then
  }
  return wrong;
}

std::string run_skip_case(const SkipCase& c, const std::vector<SkipPair>& pairs) {
  std::string wrong;
  std::mutex mutex;
  comm::run_ranks(
      2,
      [&](comm::Group& world) {
        const auto found = run_skip_case(c, pairs, world);
        const std::lock_guard lock(mutex);
        wrong += found;
      },
      std::chrono::seconds(60));
  return wrong;
}

std::string skip_text(const SkipCase& c, const std::vector<SkipPair>& pairs) {
  auto text = fmt::format("skip {} /", c.text());
  for (const auto& [first, second] : pairs) text += fmt::format(" {} {}", first, second);
  return text;
}

std::string run_skip_text(const std::string& text, comm::Group& world) {
  const auto cut = text.find('/');
  std::vector<SkipPair> pairs;
  std::istringstream words(text.substr(cut + 1));
  for (SkipPair pair; words >> pair.first >> pair.second;) pairs.push_back(pair);
  return run_skip_case(SkipCase::parse(text.substr(5, cut - 5)), pairs, world);
}

}  // namespace skein::ranks
