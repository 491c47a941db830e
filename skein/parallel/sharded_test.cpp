// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/parallel/sharded.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <map>
#include <mutex>

#include "skein/comm/backend.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/optim/adamw.h"
#include "skein/tensor/host_stash.h"

namespace skein::parallel {
namespace {

using tensor::Tensors;

// A net small enough to read and rich enough to go wrong: a root unit that is used twice, blocks of
// which one is frozen with a trainable adapter, a parameter that no loss depends on.
struct Net {
  static constexpr int kBlocks = 3;
  static constexpr int64_t kPaddedRows = 64;
  int64_t width, vocabulary = 40;
  at::Tensor embedding, norm;
  at::Tensor weights[kBlocks], biases[kBlocks], adapter, unused;
  tensor::ParameterTable table;

  Net(int64_t width, at::ScalarType dtype, int64_t rows = kPaddedRows) : width(width) {
    using tensor::Init;
    const Init normal{Init::Kind::kNormal, 0.3};
    const int root = table.add_unit("root", true);
    table.add({.name = "embedding",
               .shape = {vocabulary, width},
               .padded_rows = rows,
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
    const tensor::ForwardPass pass(units);
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
  std::map<std::string, at::Tensor> tensors;  // parameters and states, gathered over ranks
  int64_t peak_bytes = 0;
  int64_t bytes_sent = 0;
  MediumBytes peaks;
};

struct Case {
  int ranks = 1;
  int stage = 0;
  int64_t micro_batches = 1;
  bool recompute = false;
  std::shared_ptr<tensor::HostStash> stash = nullptr;
  at::ScalarType dtype = at::kFloat;
  int64_t width = 24;
  int steps = 3;
  int64_t rows = Net::kPaddedRows;
  optim::Offload offload{};
  config::OptimizerKind optim = config::OptimizerKind::kAdamW;
  bool pure_bf16 = false;
};

const optim::Offload kStatesOnHost{.states = Medium::kPinnedHost};
const optim::Offload kHalfOnHost{.states = Medium::kPinnedHost, .ratio = 0.5};
const optim::Offload kAllOnHost{.states = Medium::kPinnedHost, .parameters = Medium::kPinnedHost};
const optim::Offload kStatesOnDisk{.states = Medium::kDisk};
const optim::Offload kShardsOnDisk{.states = Medium::kPinnedHost, .parameters = Medium::kDisk};
const optim::Offload kAllOnDisk{.states = Medium::kDisk, .parameters = Medium::kDisk};

// Looked at where the model would.
void expect_zero_padding(const Net& net, Sharded& sharded) {
  const at::NoGradGuard no_grad;
  const auto roots = sharded.hold_roots();
  net.loss(sharded, at::arange(2));
  ASSERT_EQ(net.embedding.size(0), std::max(net.vocabulary, net.table.parameters[0].padded_rows));
  const auto padding = net.embedding.detach().slice(0, net.vocabulary);
  EXPECT_EQ(padding.count_nonzero().item<int64_t>(), 0);
}

Outcome train(const Case& c) {
  Outcome outcome;
  std::mutex mutex;
  comm::run_ranks(c.ranks, [&](comm::Group& world) {
    Net net(c.width, c.dtype, c.rows);
    Sharded sharded(net.table,
                    {.stage = kStages[c.stage],
                     .recompute = c.recompute,
                     .stash = c.stash,
                     .fp32_gradients = c.micro_batches > 1 && !c.pure_bf16,
                     .offload = c.offload,
                     .disk = {.folder = fs::temp_directory_path(), .block_bytes = 4096}},
                    world);
    sharded.initialise(7);
    optim::AdamW optimizer(
        sharded.owned_ranges(),
        {.optim = c.optim, .pure_bf16 = c.pure_bf16, .learning_rate = 1e-2, .weight_decay = 0.1},
        sharded.memory(), /*seed=*/3);
    std::vector<double> norms;
    for (int step = 0; step < c.steps; ++step) {
      for (int64_t k = 0; k < c.micro_batches; ++k) {
        sharded.begin_micro_batch(k, c.micro_batches);
        const auto tokens =
            (at::arange(6) * 7 + step * 5 + k * 11 + world.rank() * 13) % net.vocabulary;
        torch::autograd::backward({net.loss(sharded, tokens)});
        sharded.end_micro_batch();
      }
      const auto [norm, decision, squares] = sharded.gradient_norm({.max_norm = 1.0});
      norms.push_back(norm.item<double>());
      optimizer.step(1e-2, decision);
      sharded.publish();
    }
    const int64_t bytes_sent = world.bytes_sent();
    expect_zero_padding(net, sharded);
    auto slices = sharded.slices_to_save(Access::kRead);
    for (auto& slice : sharded.slices_to_save(optimizer.states())) slices.push_back(slice);
    world.barrier();
    const std::lock_guard lock(mutex);
    for (const auto& slice : slices) {
      auto& whole = outcome.tensors[slice.name];
      if (!whole.defined()) whole = at::zeros(slice.shape, slice.data.scalar_type()).flatten();
      whole.slice(0, slice.begin, slice.end).copy_(slice.data);
    }
    if (world.rank() == 0) {
      outcome.norms = norms;
      outcome.peak_bytes = sharded.memory().peak_bytes();
      outcome.peaks = sharded.memory().all_peak_bytes();
      outcome.bytes_sent = bytes_sent;
    }
  });
  return outcome;
}

void expect_bit_equal(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_EQ(a.tensors.size(), b.tensors.size()) << what;
  for (const auto& [name, values] : a.tensors) {
    EXPECT_TRUE(values.equal(b.tensors.at(name))) << what << ": " << name;
  }
}

std::string describe(const Case& c) {
  return fmt::format("{} ranks, stage {}, {} micro-batches, recompute {}, {}, offload {} of {}, {}",
                     c.ranks, c.stage, c.micro_batches, c.recompute, c10::toString(c.dtype),
                     static_cast<int>(c.offload.states), c.offload.ratio,
                     static_cast<int>(c.offload.parameters));
}

// Whatever the stage, and where micro-batches accumulate.
TEST(Sharded, StashedInputsChangeNoBit) {
  for (const int stage : {0, 1, 2, 3}) {
    const Case c{.stage = stage, .micro_batches = 2, .recompute = true};
    auto stashed = c;
    stashed.stash = std::make_shared<tensor::HostStash>(
        tensor::make_copy_engine(at::kCPU), tensor::StashOptions{.smallest = 1, .slab_bytes = 128});
    expect_bit_equal(train(c), train(stashed), describe(c));
    EXPECT_GT(stashed.stash->host_bytes(), 0);
    EXPECT_EQ(stashed.stash->kept_bytes(), 0);
  }
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

// States of fewer bytes: blocks of 128 elements share a scale, and rounding draws by an element's
// place. No cut between ranks changes either, whatever the shapes.
const std::array kSmallStates = {
    Case{.optim = config::OptimizerKind::kAdamW8bit},
    Case{.dtype = at::kBFloat16, .optim = config::OptimizerKind::kAdamW8bit},
    Case{.dtype = at::kBFloat16, .pure_bf16 = true},
    Case{.dtype = at::kBFloat16, .optim = config::OptimizerKind::kAdamW8bit, .pure_bf16 = true}};

TEST(Sharded, StagesAreBitEqualWithSmallStates) {
  for (auto c : kSmallStates) {
    for (c.ranks = 1; c.ranks <= 3; ++c.ranks) {
      c.stage = 0;
      const auto reference = train(c);
      EXPECT_EQ(reference.tensors.contains("norm.master"),
                c.dtype == at::kBFloat16 && !c.pure_bf16);
      if (c.optim == config::OptimizerKind::kAdamW8bit) {
        EXPECT_EQ(reference.tensors.at("norm.exp_avg_scale").numel(), 1);
        EXPECT_EQ(reference.tensors.at("embedding.exp_avg_scale").numel(), (40 * 24 + 127) / 128);
      }
      EXPECT_GT(reference.tensors.at("embedding.exp_avg").count_nonzero().item<int64_t>(), 0);
      for (c.stage = 1; c.stage < 4; ++c.stage) {
        expect_bit_equal(reference, train(c), describe(c));
      }
    }
  }
}

// Where states, gradients and shards lie changes no bit.
TEST(Sharded, OffloadIsBitEqualToNone) {
  for (auto c : kSmallStates) {
    c.ranks = 2;
    c.stage = 3;
    const auto reference = train(c);
    c.offload = kAllOnHost;
    expect_bit_equal(reference, train(c), describe(c));
  }
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t micro_batches : {int64_t{1}, int64_t{3}}) {
      for (const int stage : {0, 1, 2, 3}) {
        Case c{.ranks = 2, .stage = stage, .micro_batches = micro_batches, .dtype = dtype};
        const auto reference = train(c);
        for (const auto& offload :
             {kStatesOnHost, kHalfOnHost, kAllOnHost, kStatesOnDisk, kShardsOnDisk, kAllOnDisk}) {
          c.offload = offload;
          expect_bit_equal(reference, train(c), describe(c));
        }
      }
    }
  }
}

// What leaves the device is in host memory: states and gradients of the units that are offloaded,
// and shards of parameters.
TEST(Sharded, OffloadedBytesAreTheHosts) {
  const int64_t width = 256;
  const int64_t root = Net::kPaddedRows * width + width, block = width * width + width;
  const int64_t adapter = 4 * width + 128, trainable = root + 2 * block + adapter;
  for (const int stage : {0, 1, 2, 3}) {
    Case c{.stage = stage, .width = width, .steps = 1};
    const auto none = train(c);
    EXPECT_EQ(none.peaks.pinned_host, 0);
    c.offload = kStatesOnHost;
    const auto states = train(c);
    EXPECT_EQ(states.peaks.pinned_host, 12 * trainable);  // two moments, the gradient
    EXPECT_LE(states.peaks.device, none.peaks.device - 8 * trainable);
    c.offload = kHalfOnHost;
    // The last block does not hold half of it, with the one before it does; the root stays.
    EXPECT_EQ(train(c).peaks.pinned_host, 12 * (block + adapter + block));
    c.offload = kAllOnHost;
    const auto kept = stage == 3 ? 4 * (trainable + block) : 0;  // of a frozen block too
    EXPECT_EQ(train(c).peaks.pinned_host, 12 * trainable + kept);
  }
}

void expect_equal_pairs(Case c, double tolerance) {
  const auto at_stage = [&](int stage) {
    c.stage = stage;
    return train(c);
  };
  const auto whole = at_stage(0), sharded = at_stage(2);
  expect_bit_equal(whole, at_stage(1), describe(c));
  expect_bit_equal(sharded, at_stage(3), describe(c));
  for (size_t i = 0; i < whole.norms.size(); ++i) {
    EXPECT_NEAR(whole.norms[i], sharded.norms[i], tolerance * whole.norms[i]);
  }
}

TEST(Sharded, PairsOfStagesAreBitEqualUnderAccumulation) {
  for (const int ranks : {1, 2, 3}) {
    expect_equal_pairs({.ranks = ranks, .micro_batches = 3}, 1e-5);
    // A state on a border between two values may fall to either side.
    for (auto c : kSmallStates) {
      c.ranks = ranks;
      c.micro_batches = 3;
      expect_equal_pairs(c, c.dtype == at::kFloat ? 1e-3 : 0.02);
    }
  }
}

TEST(Sharded, PaddedRowsChangeNoTraining) {
  for (const int stage : {0, 1, 2, 3}) {
    const Case padded{.ranks = 2, .stage = stage, .dtype = at::kDouble};
    auto bare = padded;
    bare.rows = 0;
    const auto with = train(padded), without = train(bare);
    for (size_t i = 0; i < with.norms.size(); ++i) {
      EXPECT_NEAR(with.norms[i], without.norms[i], 1e-12 * with.norms[i]);
    }
    for (const auto& [name, values] : without.tensors) {
      EXPECT_TRUE(at::allclose(values, with.tensors.at(name), 1e-10, 1e-12)) << name;
    }
  }
}

TEST(Sharded, MoreRanksGiveTheSameTraining) {
  // The same six micro-batches of a step on 1, 2 and 3 ranks, in float64.
  const auto norms = [](int ranks, int64_t micro_batches) {
    std::vector<double> found;
    comm::run_ranks(ranks, [&](comm::Group& world) {
      Net net(16, at::kDouble);
      Sharded sharded(net.table, {.stage = kZero3}, world);
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
        const auto [norm, decision, squares] = sharded.gradient_norm({.max_norm = 1.0});
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

// A gradient of which memory holds a multiple: norm, clipping and update see the gradient.
TEST(Sharded, TheNormFollowsTheScale) {
  Net net(24, at::kDouble);
  Sharded sharded(net.table, {}, comm::Group());
  sharded.initialise(7);
  sharded.begin_micro_batch(0, 1);
  torch::autograd::backward({net.loss(sharded, at::arange(6))});
  sharded.end_micro_batch();
  const double norm = sharded.gradient_norm({}).norm.item<double>();
  const auto look = [&](double max_norm) {
    const auto found = sharded.gradient_norm({.max_norm = max_norm, .scale = 0.75});
    EXPECT_DOUBLE_EQ(found.norm.item<double>(), 0.75 * norm);
    return found.decision.factor.item<double>();
  };
  EXPECT_DOUBLE_EQ(look(0), 0.75);
  EXPECT_DOUBLE_EQ(look(0.8 * norm), 0.75);  // what memory holds is longer, the gradient is not
  EXPECT_NEAR(look(0.25 * norm), 0.25, 1e-5);
}

// The figures of ARCHITECTURE.md, per trainable and frozen element, with transients named there.
TEST(Sharded, PeakBytesAndBytesSentFollowTheFormulas) {
  const int64_t width = 256;
  const double root = static_cast<double>(Net::kPaddedRows * width + width);
  const double block = static_cast<double>(width * width + width);
  const double adapter = static_cast<double>(4 * width + 5);
  const double blocks = 2 * block + adapter, frozen = block, trainable = root + blocks;
  // At stage 3 the last block stays whole where forward turns into backward: one gather less.
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
                             3 * k * blocks + 2 * root + 2 * k * frozen - k * block};
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

// Carries out collectives at once, and notes when each is issued ("gather 512") and waited for
// ("wait 512").
class RecordingBackend final : public comm::Backend {
 public:
  RecordingBackend() : Backend(0, 1) {}

  comm::Work all_gather(const at::Tensor& whole, const at::Tensor& shard, uint64_t) override {
    return record("gather", whole, shard);
  }
  comm::Work reduce_scatter(const at::Tensor& shard, const at::Tensor& whole, uint64_t) override {
    return record("reduce", shard, whole);
  }
  comm::Work all_reduce(const at::Tensor& whole, uint64_t) override {
    return record("reduce", whole, whole);
  }
  comm::Work broadcast(const at::Tensor&, int, uint64_t) override { return {}; }
  comm::Work gather_host(comm::HostBytes, uint64_t) override { return {}; }  // size one
  comm::Work compose(const comm::Call&, std::vector<at::Tensor>,
                     std::function<void()> steps) override {
    steps();
    return {};
  }
  std::shared_ptr<comm::Backend> split(const std::vector<int>&) override { return nullptr; }
  void shutdown() override {}

  std::vector<std::string> take() { return std::exchange(events_, {}); }

 private:
  comm::Work record(const char* what, const at::Tensor& to, const at::Tensor& from) {
    events_.push_back(fmt::format("{} {}", what, from.numel()));
    if (to.data_ptr() != from.data_ptr()) to.copy_(from);
    return comm::Work(
        [this, count = from.numel()] { events_.push_back(fmt::format("wait {}", count)); });
  }
  std::vector<std::string> events_;
};

// Two blocks of 128 and 256 elements between an embedding of 384 and a head of 512.
struct Untied {
  tensor::ParameterTable table;
  std::array<at::Tensor, 4> weights;  // (64, n): embedding, blocks, head

  Untied() {
    const std::pair<const char*, int64_t> kUnits[] = {
        {"embedding", 6}, {"block 0", 2}, {"block 1", 4}, {"head", 8}};
    for (int unit = 0; unit < 4; ++unit) {
      const auto& [name, columns] = kUnits[unit];
      table.add_unit(name, /*root=*/unit == 0 || unit == 3);
      table.add({.name = name,
                 .shape = {64, columns},
                 .dtype = at::kDouble,
                 .unit = unit,
                 .init = {tensor::Init::Kind::kNormal, 0.1},
                 .slot = &weights[unit]});
    }
  }

  at::Tensor run(
      tensor::Units& units, int unit, const at::Tensor& x,
      const std::function<void()>& inside = [] {}) const {
    const auto block = [this, unit, inside](const Tensors& in) {
      inside();
      return Tensors{in[0] + weights[unit].sum(1)};
    };
    return units.run(unit, block, {x})[0];
  }
  // `used` is called where the embedding runs.
  at::Tensor loss(tensor::Units& units, const std::function<void()>& used = [] {}) const {
    auto x = at::zeros({64}, at::kDouble);
    {
      const tensor::ForwardPass pass(units);
      x = run(units, 0, x, used);
      for (const int unit : {1, 2}) x = run(units, unit, x);
    }
    x = run(units, 3, x);
    return (x * x).sum();
  }
};

TEST(Sharded, NoGatherIsWaitedForBeforeItsUse) {
  const auto backend = std::make_shared<RecordingBackend>();
  Untied net;
  Sharded sharded(net.table, {.stage = kZero3}, comm::Group(backend));
  sharded.initialise(1);
  std::vector<std::string> before;
  sharded.begin_micro_batch(0, 1);
  const auto loss = net.loss(sharded, [&] { before = backend->take(); });
  EXPECT_EQ(before,
            (std::vector<std::string>{"gather 384", "gather 512", "gather 128", "wait 384"}));
  EXPECT_EQ(backend->take(),
            (std::vector<std::string>{"gather 256", "wait 128", "wait 256", "wait 512"}));
  torch::autograd::backward({loss});
  EXPECT_EQ(backend->take(), (std::vector<std::string>{"reduce 512", "gather 128", "wait 512",
                                                       "reduce 256", "wait 128", "wait 256",
                                                       "reduce 128", "wait 128", "reduce 384"}));
  sharded.end_micro_batch();
  EXPECT_EQ(backend->take(), std::vector<std::string>{"wait 384"});
}

// Misuse is named at every stage, also from inside autograd.
// A tied root unit: its embedding (384 elements) and the blocks are frozen, its end (512) trains.
TEST(Sharded, GradientsDoNotRunThroughAFrozenBodyToAFrozenEmbedding) {
  for (const bool embedding_trains : {false, true}) {
    tensor::ParameterTable table;
    std::array<at::Tensor, 4> weights;
    table.add_unit("root", /*root=*/true);
    table.add_unit("block 0");
    table.add_unit("block 1");
    const int64_t columns[] = {6, 2, 4, 8};
    for (int i = 0; i < 4; ++i) {
      table.add({.name = fmt::format("weight {}", i),
                 .shape = {64, columns[i]},
                 .dtype = at::kDouble,
                 .unit = i % 3,
                 .init = {tensor::Init::Kind::kNormal, 0.1},
                 .trainable = i == 3 || (i == 0 && embedding_trains),
                 .slot = &weights[i]});
    }
    auto backend = std::make_shared<RecordingBackend>();
    Sharded sharded(table, {.stage = kZero3}, comm::Group(backend));
    sharded.initialise(3);
    backend->take();
    sharded.begin_micro_batch(0, 1);
    at::Tensor x;
    {
      const tensor::ForwardPass pass(sharded);
      const auto run = [&](int i) {
        const auto block = [&, i](const Tensors& in) {
          const auto sum = weights[i].sum(1);
          return Tensors{in.empty() ? sum : in[0] + sum};
        };
        x = sharded.run(i % 3, block, x.defined() ? Tensors{x} : Tensors{})[0];
      };
      for (int i = 0; i < 3; ++i) run(i);
      EXPECT_EQ(x.requires_grad(), embedding_trains);
      run(3);
    }
    torch::autograd::backward({(x * x).sum()});
    sharded.end_micro_batch();
    const auto events = backend->take();
    const auto gathers = std::ranges::count(events, "gather 128");  // of block 0
    EXPECT_EQ(gathers, embedding_trains ? 2 : 1);
  }
}

TEST(Sharded, MisuseNamesTheUnit) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto message = [&](const std::function<void(Sharded&, const Untied&)>& body) {
      Untied net;
      Sharded sharded(net.table, {.stage = kStages[stage]}, comm::Group());
      sharded.initialise(1);
      return refusal<InternalError>([&] { body(sharded, net); });
    };
    const auto x = at::zeros({64}, at::kDouble);
    EXPECT_NE(message([&](Sharded& sharded, const Untied& net) {
                sharded.begin_micro_batch(0, 1);
                const tensor::ForwardPass pass(sharded);
                for (const int unit : {1, 2, 1}) net.run(sharded, unit, x);
              }).find("unit 'block 0' is used after later blocks"),
              std::string::npos);
    EXPECT_NE(message([&](Sharded& sharded, const Untied& net) {
                sharded.begin_micro_batch(0, 1);
                torch::autograd::backward({net.loss(sharded)});
                net.loss(sharded);
              }).find("a forward pass begins after backward has begun"),
              std::string::npos);
    EXPECT_NE(message([&](Sharded& sharded, const Untied& net) {
                sharded.begin_micro_batch(0, 1);
                const auto loss = net.loss(sharded);
                sharded.end_micro_batch();
                torch::autograd::backward({loss});
              }).find("unit 'head' is reached by backward"),
              std::string::npos);
    EXPECT_NE(message([&](Sharded& sharded, const Untied& net) {
                const auto roots = sharded.hold_roots();
                net.loss(sharded);
              }).find("unit 'embedding' runs with gradients outside of a micro-batch"),
              std::string::npos);
    EXPECT_NE(message([&](Sharded& sharded, const Untied& net) {
                const at::NoGradGuard no_grad;
                net.loss(sharded);
              }).find("hold_roots() first"),
              std::string::npos);
    EXPECT_NE(message([&](Sharded& sharded, const Untied&) {
                const auto whole = sharded.hold_whole();
                sharded.publish();
              }).find("old weights"),
              std::string::npos);
  }
}

TEST(Sharded, MadeForInferenceHoldsParametersAlone) {
  for (const int stage : {0, 1, 2, 3}) {
    Net net(24, at::kFloat), trained(24, at::kFloat);
    Sharded sharded(net.table, {.stage = kStages[stage], .inference = true}, comm::Group());
    Sharded trainable(trained.table, {.stage = kStages[stage]}, comm::Group());
    sharded.initialise(7);
    trainable.initialise(7);
    EXPECT_TRUE(sharded.owned_ranges().empty());
    EXPECT_TRUE(sharded.gradient_slices().empty());
    // Whole gradients, of stages 0 and 1, come with a backward pass.
    EXPECT_EQ(sharded.memory().bytes() < trainable.memory().bytes(), stage >= 2);
    EXPECT_NE(refusal<InternalError>([&] { sharded.begin_micro_batch(0, 1); }).find("inference"),
              std::string::npos);
    EXPECT_FALSE(net.embedding.requires_grad());
    EXPECT_TRUE(trained.embedding.requires_grad());  // the model's own table is as it was

    const at::NoGradGuard no_grad;
    const auto tokens = at::arange(6);
    const auto roots = sharded.hold_roots(), others = trainable.hold_roots();
    EXPECT_TRUE(net.loss(sharded, tokens).equal(trained.loss(trainable, tokens)));
  }
}

// Generation: ranks run different numbers of passes over units that all stay whole.
TEST(Sharded, WholeUnitsNeedNoCollectives) {
  comm::run_ranks(2, [&](comm::Group& world) {
    const at::NoGradGuard no_grad;
    Net net(24, at::kFloat);
    Sharded sharded(net.table, {.stage = kZero3}, world);
    sharded.initialise(7);
    const auto kept = sharded.memory().bytes();
    const auto loss_of = [&](int64_t first) {
      return net.loss(sharded, at::arange(first, first + 6)).item<double>();
    };
    double by_turns = 0;
    {
      const auto roots = sharded.hold_roots();
      by_turns = loss_of(3);
      const auto whole = sharded.hold_whole();  // inside the other: the blocks join the roots
      EXPECT_EQ(loss_of(3), by_turns);
    }
    EXPECT_EQ(sharded.memory().bytes(), kept);
    {
      const auto whole = sharded.hold_whole();
      const auto sent = world.bytes_sent();
      for (int pass = 0; pass < 2 + 3 * world.rank(); ++pass) EXPECT_EQ(loss_of(3), by_turns);
      EXPECT_EQ(world.bytes_sent(), sent);
    }
    EXPECT_EQ(sharded.memory().bytes(), kept);
    const auto roots = sharded.hold_roots();
    EXPECT_EQ(loss_of(3), by_turns);
  });
}

}  // namespace
}  // namespace skein::parallel
