// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Every collective over every backend against one reference.
//
// With SKEIN_TEST_CUDA=1, in a CUDA build on a machine with a GPU, the same cases also run on CUDA
// tensors: ranks that share the GPU over Gloo and over threads, and NCCL at size one.
#include "skein/comm/group.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "skein/comm/testing.h"
#include "skein/core/error.h"

namespace skein::comm {
namespace {

struct Setting {
  std::string carrier;  // threads, gloo, sockets (gloo without shared memory) or nccl
  int size;
  at::DeviceType device = at::kCPU;
  int local_size = 0;  // sums by nodes of so many ranks
};

std::string name_of(const Setting& setting) {
  return fmt::format("{}_{}{}{}", setting.carrier, setting.size,
                     setting.local_size == 0 ? "" : fmt::format("_by_{}", setting.local_size),
                     setting.device == at::kCPU ? "" : "_cuda");
}

void PrintTo(const Setting& setting, std::ostream* out) { *out << name_of(setting); }

std::vector<Setting> settings() {
  std::vector<Setting> all{{"threads", 1}, {"threads", 2}, {"threads", 3}, {"gloo", 1},
                           {"gloo", 2},    {"gloo", 3},    {"sockets", 2}, {"sockets", 3}};
  for (const int local_size : {1, 2, 3, 6}) all.push_back({"threads", 6, at::kCPU, local_size});
  for (const int local_size : {2, 4}) all.push_back({"gloo", 4, at::kCPU, local_size});
  all.push_back({"sockets", 4, at::kCPU, 2});
  const char* cuda = std::getenv("SKEIN_TEST_CUDA");
  if (cuda != nullptr && std::string(cuda) == "1") {
    all.insert(all.end(), {{"threads", 2, at::kCUDA},
                           {"gloo", 1, at::kCUDA},
                           {"gloo", 2, at::kCUDA},
                           {"gloo", 4, at::kCUDA, 2},
                           {"nccl", 1, at::kCUDA},
                           {"nccl", 1, at::kCUDA, 1}});
  }
  return all;
}

void run(const Setting& setting, const std::function<void(Group&)>& body) {
  if (setting.carrier == "threads") {
    return run_ranks(setting.size, body, std::chrono::minutes(1), setting.local_size);
  }
  run_connected({.size = setting.size,
                 .backend = setting.carrier == "sockets" ? "gloo" : setting.carrier,
                 .device_index = setting.device == at::kCPU ? -1 : 0,
                 .local_size = std::max(setting.local_size, 1),
                 .sums_by_node = setting.local_size > 0,
                 .shared_memory = setting.carrier != "sockets",
                 .timeout = std::chrono::minutes(1)},
                body);
}

at::TensorOptions options_of(const Setting& setting, at::ScalarType type) {
  return at::TensorOptions(type).device(setting.device);
}

// Values whose sums round: different on every rank and for every seed.
at::Tensor values_of(const Setting& setting, int rank, at::ScalarType type, int64_t count,
                     int seed = 0) {
  const auto index = at::arange(count, at::TensorOptions(at::kDouble));
  return (at::sin(index * 0.37 + rank * 1.7 + seed * 0.11) * 100.0).to(options_of(setting, type));
}

bool is_short(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

at::Tensor ordered(const std::vector<at::Tensor>& parts) {
  const auto type = parts.front().scalar_type();
  const auto wide = is_short(type) ? at::kFloat : type;
  auto total = parts.front().to(wide);
  for (size_t i = 1; i < parts.size(); ++i) total = total + parts[i].to(wide);
  return total.to(type);
}

// Inside each node, then over the nodes.
at::Tensor expected_sum(const Setting& setting, at::ScalarType type, int64_t count, int seed = 0) {
  const int local_size = setting.local_size > 0 ? setting.local_size : setting.size;
  std::vector<at::Tensor> nodes;
  for (int first = 0; first < setting.size; first += local_size) {
    std::vector<at::Tensor> parts;
    for (int rank = first; rank < first + local_size; ++rank) {
      parts.push_back(values_of(setting, rank, type, count, seed));
    }
    nodes.push_back(ordered(parts));
  }
  return ordered(nodes);
}

class GroupTest : public testing::TestWithParam<Setting> {
 protected:
  const std::vector<at::ScalarType> kTypes{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  static constexpr int64_t kShard = 2500;  // not a multiple of ordered_sum's block
};

TEST_P(GroupTest, ReduceScatterSumsInRankOrder) {
  run(GetParam(), [&](Group& group) {
    for (const auto type : kTypes) {
      const auto whole = values_of(GetParam(), group.rank(), type, kShard * group.size());
      const auto before = whole.clone();
      const auto shard = at::zeros({kShard}, options_of(GetParam(), type));
      group.reduce_scatter(shard, whole).wait();
      const auto expected = expected_sum(GetParam(), type, whole.numel());
      EXPECT_TRUE(at::equal(shard, expected.narrow(0, group.rank() * kShard, kShard))) << type;
      EXPECT_TRUE(at::equal(whole, before)) << type;
    }
  });
}

TEST_P(GroupTest, ReduceScatterMayWriteIntoItsInput) {
  run(GetParam(), [&](Group& group) {
    const auto whole = values_of(GetParam(), group.rank(), at::kFloat, kShard * group.size());
    const auto shard = whole.narrow(0, group.rank() * kShard, kShard);
    group.reduce_scatter(shard, whole).wait();
    const auto expected = expected_sum(GetParam(), at::kFloat, whole.numel());
    EXPECT_TRUE(at::equal(shard, expected.narrow(0, group.rank() * kShard, kShard)));
  });
}

TEST_P(GroupTest, AllGatherPutsShardsInRankOrder) {
  run(GetParam(), [&](Group& group) {
    for (const auto type : kTypes) {
      std::vector<at::Tensor> shards;
      for (int rank = 0; rank < group.size(); ++rank) {
        shards.push_back(values_of(GetParam(), rank, type, kShard));
      }
      const auto apart = at::zeros({kShard * group.size()}, options_of(GetParam(), type));
      group.all_gather(apart, shards[group.rank()]).wait();
      EXPECT_TRUE(at::equal(apart, at::cat(shards))) << type;

      const auto in_place = at::zeros({apart.numel()}, apart.options());
      const auto shard = in_place.narrow(0, group.rank() * kShard, kShard);
      shard.copy_(shards[group.rank()]);
      group.all_gather(in_place, shard).wait();
      EXPECT_TRUE(at::equal(in_place, at::cat(shards))) << type;
    }
  });
}

TEST_P(GroupTest, AllReduceSumsInRankOrder) {
  run(GetParam(), [&](Group& group) {
    for (const auto type : kTypes) {
      const auto whole = values_of(GetParam(), group.rank(), type, kShard * group.size());
      group.all_reduce(whole).wait();
      EXPECT_TRUE(at::equal(whole, expected_sum(GetParam(), type, whole.numel()))) << type;
    }
  });
}

TEST_P(GroupTest, BroadcastCopiesTheRoot) {
  run(GetParam(), [&](Group& group) {
    for (int root = 0; root < group.size(); ++root) {
      const auto tensor = values_of(GetParam(), group.rank(), at::kBFloat16, kShard);
      group.broadcast(tensor, root).wait();
      EXPECT_TRUE(at::equal(tensor, values_of(GetParam(), root, at::kBFloat16, kShard)));
    }
  });
}

TEST_P(GroupTest, SumsOnTheHost) {
  const int size = GetParam().size;
  run(GetParam(), [&](Group& group) {
    group.barrier();
    EXPECT_EQ(group.sum(int64_t{group.rank() + 1}), size * (size + 1) / 2);
    // (1e16 + 1) - 1e16 is 0 in rank order and 1 in another.
    const std::vector<double> parts{1e16, 1.0, -1e16, 0.0, 0.0, 0.0};
    const std::vector<double> expected{1e16, 1e16, 0.0, 0.0, 0.0, 0.0};
    EXPECT_EQ(group.sum(parts[group.rank()]), expected[size - 1]);
    EXPECT_EQ(group.sum(std::vector<int64_t>{1, group.rank()}),
              (std::vector<int64_t>{size, size * (size - 1) / 2}));
    EXPECT_TRUE(group.sum(std::vector<double>{}).empty());
    group.barrier();
  });
}

TEST_P(GroupTest, HostSumsAreTakenLater) {
  const int size = GetParam().size;
  run(GetParam(), [&](Group& group) {
    auto first = group.start_sum({1, group.rank()});
    auto second = group.start_sum({int64_t{10}});
    EXPECT_EQ(group.sum(int64_t{100}), 100 * size);
    EXPECT_TRUE(second.pending());
    EXPECT_EQ(second.take(), std::vector<int64_t>{10 * size});
    EXPECT_EQ(first.take(), (std::vector<int64_t>{size, size * (size - 1) / 2}));
    EXPECT_FALSE(first.pending());
    EXPECT_THROW(first.take(), InternalError);
  });
}

// Reductions have several steps on the wire: these must pair up although each rank waits in an
// order of its own.
TEST_P(GroupTest, WorksMayBeWaitedForInAnyOrder) {
  constexpr int kRounds = 8;
  run(GetParam(), [&](Group& group) {
    std::vector<at::Tensor> reduced, gathered;
    std::vector<Work> works;
    for (int round = 0; round < kRounds; ++round) {
      reduced.push_back(
          values_of(GetParam(), group.rank(), at::kFloat, kShard * group.size(), round));
      gathered.push_back(at::zeros({group.size()}, options_of(GetParam(), at::kLong)));
      works.push_back(group.all_reduce(reduced.back()));
      works.push_back(group.all_gather(
          gathered.back(), at::full({1}, 10 * round + group.rank(), gathered.back().options())));
    }
    EXPECT_EQ(group.sum(int64_t{1}), group.size());
    if (group.rank() != 1) std::reverse(works.begin(), works.end());
    for (auto& work : works) work.wait();
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_TRUE(at::equal(reduced[round],
                            expected_sum(GetParam(), at::kFloat, reduced[round].numel(), round)));
      const auto ranks = at::arange(group.size(), gathered[round].options());
      EXPECT_TRUE(at::equal(gathered[round], ranks + 10 * round));
    }
  });
}

TEST_P(GroupTest, VersionsOfTheCallersTensorsStay) {
  run(GetParam(), [&](Group& group) {
    const auto whole = at::zeros({4 * group.size()}, options_of(GetParam(), at::kFloat));
    const auto shard = at::zeros({4}, whole.options());
    const auto whole_version = whole._version(), shard_version = shard._version();
    for (int round = 0; round < 3; ++round) {
      group.all_gather(whole, shard).wait();
      group.reduce_scatter(shard, whole).wait();
      group.all_reduce(whole).wait();
      group.broadcast(whole, 0).wait();
    }
    EXPECT_EQ(whole._version(), whole_version);
    EXPECT_EQ(shard._version(), shard_version);
  });
}

TEST_P(GroupTest, CountsThePayloadSent) {
  run(GetParam(), [&](Group& group) {
    const auto whole = at::zeros({6 * group.size()}, options_of(GetParam(), at::kBFloat16));
    const auto shard = at::zeros({6}, whole.options());
    const int64_t one_way = 6 * 2 * (group.size() - 1);  // (N-1)/N of the whole, in bytes
    group.all_gather(whole, shard).wait();
    EXPECT_EQ(group.bytes_sent(), one_way);
    group.reduce_scatter(shard, whole).wait();
    EXPECT_EQ(group.bytes_sent(), 2 * one_way);
    group.all_reduce(whole).wait();
    EXPECT_EQ(group.bytes_sent(), 4 * one_way);
    group.sum(1.0);
    EXPECT_EQ(group.bytes_sent(), 4 * one_way);
    group.broadcast(shard, 0).wait();
    EXPECT_EQ(group.bytes_sent(), (group.rank() == 0 ? 5 : 4) * one_way);
  });
}

TEST_P(GroupTest, FinishLeavesNothingPending) {
  run(GetParam(), [&](Group& group) {
    const auto whole = at::full({group.size()}, 1.0F, options_of(GetParam(), at::kFloat));
    auto work = group.all_reduce(whole);
    group.finish(work);
    EXPECT_FALSE(work.pending());
    EXPECT_EQ(whole.sum().item<float>(), static_cast<float>(group.size() * group.size()));
    auto nothing = group.all_reduce(whole.narrow(0, 0, 0));
    group.finish(nothing);
  });
}

INSTANTIATE_TEST_SUITE_P(Carriers, GroupTest, testing::ValuesIn(settings()),
                         [](const auto& info) { return name_of(info.param); });

// Two roundings of 16-bit values, and nothing else, lie between the sum and the true one.
TEST_P(GroupTest, ShortSumsAreNearTheTrueOnes) {
  run(GetParam(), [&](Group& group) {
    const auto& setting = GetParam();
    const int64_t count = kShard * group.size();
    const auto whole = values_of(setting, group.rank(), at::kBFloat16, count);
    group.all_reduce(whole).wait();
    auto truth = at::zeros({count}, options_of(setting, at::kDouble));
    auto size = at::zeros({count}, options_of(setting, at::kDouble));
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto value = values_of(setting, rank, at::kBFloat16, count).to(at::kDouble);
      truth += value;
      size += value.abs();
    }
    constexpr double kRounding = 1.0 / 256;  // of a bfloat16, at most
    const auto off = (whole.to(at::kDouble) - truth).abs();
    EXPECT_TRUE((off <= 2 * kRounding * size).all().item<bool>());
  });
}

TEST_P(GroupTest, PartsActAlone) {
  run(GetParam(), [&](Group& group) {
    for (const int width : {2, 3}) {
      auto neighbours = group.split(group.rank() / width);
      EXPECT_EQ(neighbours.rank(), group.rank() % width);
      const int first = group.rank() - neighbours.rank();
      EXPECT_EQ(neighbours.size(), std::min(width, group.size() - first));
      const auto mine = at::full({1}, group.rank(), options_of(GetParam(), at::kLong));
      const auto all = at::zeros({neighbours.size()}, mine.options());
      neighbours.all_gather(all, mine).wait();
      EXPECT_TRUE(at::equal(all, at::arange(neighbours.size(), all.options()) + first));
      EXPECT_EQ(neighbours.sum(int64_t{1}), neighbours.size());
      neighbours.shutdown();
    }
    auto apart = group.split(group.rank() % 2);
    int64_t expected = 0;
    for (int rank = group.rank() % 2; rank < group.size(); rank += 2) expected += rank;
    EXPECT_EQ(apart.sum(int64_t{group.rank()}), expected);
    apart.shutdown();
    group.barrier();
  });
}

// 256 + 1 is 256 in bfloat16, so a sum rounded at every step would stay there.
TEST(Group, ShortSumsAreRoundedOnce) {
  for (const std::string carrier : {"threads", "gloo"}) {
    run({carrier, 3}, [](Group& group) {
      const auto whole =
          at::full({3}, group.rank() == 0 ? 256 : 1, at::TensorOptions(at::kBFloat16));
      group.all_reduce(whole).wait();
      EXPECT_EQ(whole[0].item<float>(), 258.0F);
    });
  }
}

// Rank 0 has 256 and the others 1. In bfloat16 256 + 1 is 256, 256 + 2 is 258 and 256 + 3 is 260.
float sum_of_256_and_ones(const GroupOptions& options, int first_node) {
  float sum = 0;
  MemoryStore store;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < options.size; ++rank) {
    threads.emplace_back([&, rank] {
      auto own = options;
      own.rank = rank;
      own.local_rank = rank < first_node ? rank : rank - first_node;
      own.local_size = rank < first_node ? first_node : options.size - first_node;
      auto group = connect(own, store);
      const auto whole =
          at::full({options.size}, rank == 0 ? 256 : 1, at::TensorOptions(at::kBFloat16));
      group.all_reduce(whole).wait();
      if (rank == 0) sum = whole[0].item<float>();
      group.shutdown();
    });
  }
  threads.clear();
  return sum;
}

TEST(Group, NodesThatAreNotAlikeAreNotUsed) {
  const auto minute = std::chrono::minutes(1);
  EXPECT_EQ(sum_of_256_and_ones({.size = 4, .sums_by_node = true, .timeout = minute}, 2), 258.0F)
      << "(256 + 1) + (1 + 1)";
  EXPECT_EQ(sum_of_256_and_ones({.size = 4, .timeout = minute}, 2), 260.0F);
  EXPECT_EQ(sum_of_256_and_ones({.size = 3, .sums_by_node = true, .timeout = minute}, 2), 258.0F);
}

TEST(Group, AloneNeedsNoOneElse) {
  Group group;
  EXPECT_EQ(group.size(), 1);
  const auto whole = at::zeros({3}), shard = at::full({3}, 2.0F);
  group.all_gather(whole, shard).wait();
  EXPECT_TRUE(at::equal(whole, shard));
  EXPECT_EQ(group.sum(int64_t{7}), 7);
  EXPECT_EQ(group.bytes_sent(), 0);
  group.shutdown();
}

TEST(Group, WrongSizesAreRefused) {
  Group group;
  EXPECT_THROW(group.all_gather(at::zeros({4}), at::zeros({3})), InternalError);
  EXPECT_THROW(group.reduce_scatter(at::zeros({4}), at::zeros({4}, at::kDouble)), InternalError);
  EXPECT_THROW(group.broadcast(at::zeros({4}), 1), InternalError);
}

TEST(Group, UnknownBackendIsTheUsersMistake) {
  MemoryStore store;
  EXPECT_THROW(connect({.backend = "mpi"}, store), UserError);
}

}  // namespace
}  // namespace skein::comm
