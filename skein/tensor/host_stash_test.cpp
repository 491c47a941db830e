// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/host_stash.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <deque>
#include <functional>

#include "skein/core/error.h"
#include "skein/tensor/test_allocations.h"
#include "skein/tensor/units.h"

namespace skein::tensor {
namespace {

constexpr StashOptions kSmall{.smallest = 64, .slab_bytes = 256};

// A device whose copies are made when somebody is ordered after them, and not before: what the
// stash lets go too early is gone by then.
class LateEngine final : public CopyEngine {
 public:
  int64_t memory = int64_t{1} << 30;
  int64_t num_copies = 0, num_lost = 0;

  int64_t chunk_bytes() const override { return 32; }
  int64_t budget() const override { return memory; }
  // Not counted by AllocationMeter, as pinned memory would not be.
  at::Tensor allocate(int64_t bytes) override {
    auto* const data = new std::byte[static_cast<size_t>(bytes)];
    return at::from_blob(
        data, {bytes}, [](void* ended) { delete[] static_cast<std::byte*>(ended); },
        at::TensorOptions(at::kByte));
  }
  void begin() override { began_ = true; }
  void copy(const at::Tensor& target, const at::Tensor& source) override {
    EXPECT_TRUE(began_);
    ++num_copies;
    pending_.push_back({weak(target), weak(source)});
  }
  std::unique_ptr<Mark> mark() override { return std::make_unique<LateMark>(*this, num_copies); }

 private:
  // A view that does not keep its memory alive.
  struct WeakBytes {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::byte* data;
    int64_t size;
  };
  static WeakBytes weak(const at::Tensor& tensor) {
    return {tensor.storage().getWeakStorageImpl(), static_cast<std::byte*>(tensor.data_ptr()),
            tensor.numel()};
  }

  class LateMark final : public Mark {
   public:
    LateMark(LateEngine& engine, int64_t position) : engine_(engine), position_(position) {}
    bool reached() const override { return engine_.num_done_ >= position_; }
    void order_caller() const override {
      while (!reached()) engine_.run_next();
    }

   private:
    LateEngine& engine_;
    int64_t position_;
  };

  void run_next() {
    const auto [target, source] = std::move(pending_.front());
    pending_.pop_front();
    ++num_done_;
    const auto from = source.storage.lock(), to = target.storage.lock();
    if (from && to) {
      std::copy_n(source.data, source.size, target.data);
    } else {
      ++num_lost;
    }
  }

  bool began_ = false;
  int64_t num_done_ = 0;
  std::deque<std::pair<WeakBytes, WeakBytes>> pending_;
};

// Blocks that are run again in backward, their inputs in a stash.
class StashedUnits final : public Units {
 public:
  StashedUnits(std::vector<at::Tensor> weights, HostStash* stash)
      : weights_(std::move(weights)), gradients_(weights_.size()), stash_(stash) {}

  void acquire(int, Pass) override {}
  void release(int, Pass) override {}
  std::span<const at::Tensor> leaves(int unit) override { return {&weights_[unit], 1}; }
  bool recompute(int) const override { return true; }
  HostStash* stash(int) override { return stash_; }
  void add_gradients(int unit, Tensors gradients) override {
    auto& sum = gradients_[unit];
    sum = sum.defined() ? sum + gradients[0] : gradients[0];
  }

  at::Tensor block(int unit, const Tensors& inputs) {
    const auto formula = [weight = weights_[unit]](const Tensors& in) {
      auto sum = at::tanh(at::linear(in[0], weight)) + in[0];
      if (in.size() > 1) sum = sum + in[1] * in[1];
      return Tensors{sum};
    };
    return run(unit, formula, inputs)[0];
  }

  const std::vector<at::Tensor>& gradients() const { return gradients_; }

 private:
  std::vector<at::Tensor> weights_, gradients_;
  HostStash* stash_;
};

using Story = std::function<void(StashedUnits& units, const at::Tensor& x)>;

at::Tensor loss_of(const at::Tensor& y) { return (y * y).sum(); }

// The gradients of a story, without a stash and with one on each kind of engine.
void expect_same_gradients(const Story& story) {
  at::manual_seed(5);
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 4; ++i) weights.push_back(at::randn({8, 8}).set_requires_grad(true));
  const auto x = at::randn({40, 8});
  const auto run = [&](HostStash* stash) {
    StashedUnits units(weights, stash);
    story(units, x);
    return units.gradients();
  };
  const auto expected = run(nullptr);
  const auto late = std::make_shared<LateEngine>();
  for (const auto& engine : {make_copy_engine(at::kCPU), std::shared_ptr<CopyEngine>(late)}) {
    HostStash stash(engine, kSmall);
    for (int round = 0; round < 2; ++round) {
      const auto found = run(&stash);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(found[i].defined(), expected[i].defined()) << i;
        EXPECT_TRUE(!found[i].defined() || found[i].equal(expected[i])) << i;
      }
      EXPECT_EQ(stash.kept_bytes(), 0);
      EXPECT_GT(stash.host_bytes(), 0);
    }
  }
  EXPECT_EQ(late->num_lost, 0);
  EXPECT_GT(late->num_copies, 0);
}

TEST(HostStash, BlocksInARowHaveTheSameGradients) {
  expect_same_gradients([](StashedUnits& units, const at::Tensor& x) {
    auto y = x;
    for (int i = 0; i < 4; ++i) y = units.block(i, {y});
    torch::autograd::backward({loss_of(y)});
  });
}

TEST(HostStash, AUnitMayBeUsedTwiceAndAnotherNotAtAll) {
  expect_same_gradients([](StashedUnits& units, const at::Tensor& x) {
    const auto y = units.block(2, {units.block(0, {units.block(0, {x})})});
    torch::autograd::backward({loss_of(y)});
  });
}

TEST(HostStash, SeveralForwardsMayComeBeforeOneBackward) {
  expect_same_gradients([](StashedUnits& units, const at::Tensor& x) {
    const auto first = units.block(1, {units.block(0, {x})});
    const auto second = units.block(1, {units.block(0, {x * 2})});
    torch::autograd::backward({loss_of(first) + loss_of(second)});
  });
}

TEST(HostStash, BackwardMayTakeThemInAnotherOrder) {
  expect_same_gradients([](StashedUnits& units, const at::Tensor& x) {
    const auto first = loss_of(units.block(1, {units.block(0, {x})}));
    const auto second = loss_of(units.block(3, {units.block(2, {x * 2})}));
    torch::autograd::backward({first});
    torch::autograd::backward({second});
  });
}

TEST(HostStash, AnEvaluationBetweenForwardAndBackwardChangesNothing) {
  expect_same_gradients([](StashedUnits& units, const at::Tensor& x) {
    const auto loss = loss_of(units.block(1, {units.block(0, {x})}));
    {
      const at::NoGradGuard no_grad;
      units.block(1, {units.block(0, {x * 3})});
    }
    torch::autograd::backward({loss});
  });
}

TEST(HostStash, ALossThatNobodyDifferentiatesIsForgotten) {
  expect_same_gradients([](StashedUnits& units, const at::Tensor& x) {
    const auto kept = loss_of(units.block(1, {units.block(0, {x})}));
    loss_of(units.block(3, {units.block(2, {x * 3})}));
    torch::autograd::backward({kept});
  });
}

TEST(HostStash, ATensorOfSeveralUnitsHasTheSameGradients) {
  expect_same_gradients([](StashedUnits& units, const at::Tensor& x) {
    const auto shared = units.block(0, {x});
    const auto y = units.block(1, {shared, shared});
    torch::autograd::backward({loss_of(units.block(2, {y, shared}))});
  });
}

TEST(HostStash, ATensorOfSeveralUnitsIsCopiedOnce) {
  const auto engine = std::make_shared<LateEngine>();
  HostStash stash(engine, kSmall);
  auto x = at::arange(64).to(at::kFloat);  // one slab
  auto first = stash.keep({x, x});
  auto second = stash.keep({x});
  EXPECT_EQ(engine->num_copies, 1);
  EXPECT_EQ(stash.kept_bytes(), 256);
  x.add_(1);  // other values now
  auto third = stash.keep({x});
  EXPECT_EQ(engine->num_copies, 2);
  EXPECT_EQ(third.take()[0][0].item<float>(), 1);
  EXPECT_EQ(second.take()[0][1].item<float>(), 1);
  EXPECT_EQ(stash.kept_bytes(), 256);
  EXPECT_EQ(first.take()[1][2].item<float>(), 2);
  EXPECT_EQ(stash.kept_bytes(), 0);
  EXPECT_EQ(stash.host_bytes(), 512);
}

TEST(HostStash, WhatComesBackIsWhatWasGiven) {
  HostStash stash(make_copy_engine(at::kCPU), kSmall);
  const auto wide = at::randn({30, 20}).set_requires_grad(true);
  const auto turned = at::randn({24, 30}).to(at::kBFloat16).t();
  const auto spread = at::randn({8, 64}).slice(1, 0, 8);  // with holes: it stays
  const auto small = at::ones({3}), numbers = at::arange(100);
  auto kept = stash.keep({wide, turned, spread, small, numbers});
  const auto found = kept.take();
  ASSERT_EQ(found.size(), 5);
  EXPECT_TRUE(found[0].equal(wide));
  EXPECT_TRUE(found[0].requires_grad());
  EXPECT_FALSE(found[0].grad_fn());
  EXPECT_TRUE(found[1].equal(turned));
  EXPECT_EQ(found[1].strides(), turned.strides());
  EXPECT_FALSE(found[1].requires_grad());
  EXPECT_EQ(found[2].data_ptr(), spread.data_ptr());
  EXPECT_EQ(found[3].data_ptr(), small.data_ptr());
  EXPECT_TRUE(found[4].equal(numbers));
}

// 16 inputs of 64 KiB: one is on the device while forward runs, two while backward does.
TEST(HostStash, TheDeviceHoldsOneOrTwoOfThem) {
  constexpr int64_t kBytes = 64 << 10;
  HostStash stash(std::make_shared<LateEngine>(), {.smallest = 64, .slab_bytes = 4096});
  const AllocationMeter meter;
  std::vector<HostStash::Kept> kept;
  for (int i = 0; i < 16; ++i) {
    kept.push_back(stash.keep({at::ones({kBytes / 4}) * i}));
    EXPECT_LE(meter.live_bytes(), kBytes) << i;
  }
  EXPECT_EQ(stash.kept_bytes(), 16 * kBytes);
  for (int i = 15; i >= 0; --i) {
    const auto inputs = kept[static_cast<size_t>(i)].take();
    EXPECT_EQ(inputs[0][7].item<float>(), i);
    EXPECT_LE(meter.live_bytes(), 2 * kBytes + 64) << i;
  }
  EXPECT_EQ(meter.live_bytes(), 0);
  EXPECT_EQ(stash.kept_bytes(), 0);
  EXPECT_EQ(stash.host_bytes(), 16 * kBytes);
}

TEST(HostStash, HostMemoryThatIsShortIsSaid) {
  const auto engine = std::make_shared<LateEngine>();
  engine->memory = 1024;
  HostStash stash(engine, kSmall);
  auto kept = stash.keep({at::ones({192})});
  try {
    stash.keep({at::ones({192})});
    ADD_FAILURE() << "768 bytes twice are more than 1024";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("offload_activations"), std::string::npos);
  }
  EXPECT_TRUE(kept.take()[0].equal(at::ones({192})));
}

TEST(HostStash, MayEndBeforeWhatItKeeps) {
  auto stash = std::make_unique<HostStash>(make_copy_engine(at::kCPU), kSmall);
  auto kept = stash->keep({at::ones({100})});
  stash.reset();
  EXPECT_TRUE(kept.take()[0].equal(at::ones({100})));
}

}  // namespace
}  // namespace skein::tensor
