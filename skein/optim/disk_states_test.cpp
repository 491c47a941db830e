// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/optim/adamw.h"
#include "skein/tensor/flat_memory.h"

namespace skein::optim {
namespace {

class DiskStates : public TemporaryFolder {};

// Windows of 131,072 elements: a range has several, and a short last one.
constexpr int64_t kBlock = 4096;
constexpr int64_t kNumel = 3 * kBlock * 32 + 128 * 5;

struct Case {
  const char* name;
  Medium states, parameters;
  at::ScalarType dtype;
  bool narrow_moments = false, pure = false;
};

// Two ranges whose states lie in `states` and whose weights, where they are on a disk, in a file of
// their own; as the sharding builds them.
class Trained {
 public:
  Trained(const fs::path& folder, const Case& wanted)
      : memory_(tensor::FlatMemory::create(at::kCPU)),
        side_(std::make_shared<HostSide>(at::kCPU, memory_,
                                         DiskOptions{.folder = folder, .block_bytes = kBlock})) {
    const auto bytes = kNumel * static_cast<int64_t>(c10::elementSize(wanted.dtype));
    const bool on_disk = wanted.parameters == Medium::kDisk;
    if (on_disk) side_->open_parameters(std::vector{bytes, bytes});
    std::vector<OwnedRange> ranges;
    for (int64_t i = 0; i < 2; ++i) {
      weights_.push_back(on_disk ? side_->parameters->take(kNumel, wanted.dtype)
                                 : at::zeros({kNumel}, at::TensorOptions().dtype(wanted.dtype)));
      if (on_disk) side_->parameters->use_as_memory(Access::kSet);
      weights_.back().copy_(drawn(1 + i));
      auto host = wanted.states == Medium::kDevice
                      ? nullptr
                      : std::make_shared<HostRange>(side_, wanted.states,
                                                    on_disk ? side_->parameters : nullptr);
      ranges.push_back({.parameters = weights_.back(),
                        .gradients = drawn(100 + i).to(wanted.dtype),
                        .groups = {{{0, 1280}, true, 1.0}, {{1280, kNumel}, false, 0.5}},
                        .host = host,
                        .segment = static_cast<uint64_t>(7 + i),
                        .begin = 256});
    }
    config::OptimizerConfig options;
    options.weight_decay = 0.1;
    options.pure_bf16 = wanted.pure;
    if (wanted.narrow_moments) options.optim = config::OptimizerKind::kAdamW8bit;
    adamw_ = make_optimizer(std::move(ranges), options, *memory_, 5);
  }

  void step(bool skip = false) {
    const auto one = at::TensorOptions();
    adamw_->step(1e-2, {at::full({}, 0.5, one.dtype(at::kDouble)),
                        at::full({}, skip ? 1.0 : 0.0, one.dtype(at::kFloat))});
  }

  // Copies of all weights and states.
  std::vector<at::Tensor> all() {
    std::vector<at::Tensor> list;
    for (const auto& range : adamw_->states()) {
      for (const auto& state : range) list.push_back(state.data.clone());
    }
    if (side_->parameters) side_->parameters->use_as_memory(Access::kRead);
    for (const auto& weights : weights_) list.push_back(weights.clone());
    return list;
  }

  // What the gathers of a rank see.
  at::Tensor fetched(size_t range) {
    auto target = at::empty({kNumel}, weights_[range].options());
    side_->reader->read(target, weights_[range], *side_->parameters, side_->fetch);
    return target;
  }

  Optimizer& optimizer() { return *adamw_; }
  const MediumBytes& bytes() const { return memory_->all_bytes(); }

 private:
  static at::Tensor drawn(int64_t seed) {
    return at::randn({kNumel}, at::detail::createCPUGenerator(static_cast<uint64_t>(seed)));
  }

  std::shared_ptr<tensor::FlatMemory> memory_;
  std::shared_ptr<HostSide> side_;
  std::vector<at::Tensor> weights_;
  std::unique_ptr<Optimizer> adamw_;
};

void expect_equal(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], other[i])) << i;
}

TEST_F(DiskStates, UpdateIsThatOfMemory) {
  const Case cases[] = {
      {"bf16", Medium::kDisk, Medium::kDevice, at::kBFloat16},
      {"fp32", Medium::kDisk, Medium::kDevice, at::kFloat},
      {"fp64", Medium::kDisk, Medium::kDisk, at::kDouble},
      {"weights too", Medium::kDisk, Medium::kDisk, at::kBFloat16},
      {"weights too, without master", Medium::kDisk, Medium::kDisk, at::kFloat},
      {"weights alone", Medium::kPinnedHost, Medium::kDisk, at::kHalf},
      {"8 bits", Medium::kDisk, Medium::kDisk, at::kBFloat16, /*narrow_moments=*/true},
      {"pure", Medium::kDisk, Medium::kDisk, at::kBFloat16, false, /*pure=*/true},
  };
  for (const auto& wanted : cases) {
    SCOPED_TRACE(wanted.name);
    auto plain = wanted;
    plain.states = plain.parameters = Medium::kDevice;
    Trained in_memory(folder_, plain), on_disk(folder_, wanted);
    EXPECT_TRUE(fs::is_empty(folder_));  // its files have no names
    expect_equal(in_memory.all(), on_disk.all());
    for (int i = 0; i < 3; ++i) {
      for (auto* run : {&in_memory, &on_disk}) run->step(/*skip=*/i == 1);
    }
    EXPECT_EQ(on_disk.optimizer().num_updates(), 2);
    const auto expected = in_memory.all();
    if (wanted.parameters == Medium::kDisk) {
      EXPECT_TRUE(at::equal(on_disk.fetched(1), expected.back()));
    }
    expect_equal(expected, on_disk.all());
    EXPECT_EQ(on_disk.bytes().disk > 0, wanted.states == Medium::kDisk);
    EXPECT_EQ(in_memory.bytes().disk, 0);
  }
}

TEST_F(DiskStates, WhatIsSetIsGoneOnWith) {
  const Case wanted{"", Medium::kDisk, Medium::kDisk, at::kBFloat16};
  Trained one(folder_, wanted), other(folder_, wanted);
  one.step();
  for (const auto access : {Access::kRead, Access::kSet}) {
    auto& states = other.optimizer().states(access);
    if (access == Access::kRead) continue;
    for (size_t i = 0; i < states.size(); ++i) {
      for (size_t k = 0; k < states[i].size(); ++k) {
        states[i][k].data.copy_(one.optimizer().states()[i][k].data);
      }
    }
  }
  other.optimizer().set_num_updates(1);
  one.step();
  other.step();
  // Weights follow their masters.
  expect_equal(one.all(), other.all());
}

// As a stranger with the rights of this process does.
void cut_deleted_files(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const auto path = fs::read_symlink(entry.path(), ignored).string();
    if (!path.starts_with(folder.string()) || !path.ends_with(" (deleted)")) continue;
    const int file = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(::ftruncate(file, kBlock), 0);
    ::close(file);
  }
}

TEST_F(DiskStates, AFileThatIsCutShortEndsTheRunWithItsName) {
  Trained run(folder_, {"", Medium::kDisk, Medium::kDevice, at::kBFloat16});
  run.step();
  run.optimizer().num_updates();
  cut_deleted_files(folder_);
  run.step();
  try {
    run.optimizer().num_updates();
    FAIL() << "nobody noticed";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("cut short"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(folder_.string()), std::string::npos);
  }
}

TEST_F(DiskStates, AFolderThatIsMissingIsNamed) {
  EXPECT_THROW(Trained("/nowhere/at/all", {"", Medium::kDisk, Medium::kDevice, at::kFloat}),
               IoError);
}

}  // namespace
}  // namespace skein::optim
