// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Memory that ranks share: the same bytes as over sockets, and what ends it.
#include "skein/comm/shared_wire.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "skein/comm/testing.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::comm {
namespace {

using std::chrono::milliseconds;

// Two ranks, threads or processes, that meet over a pair of sockets.
class Pair final : public Wire {
 public:
  Pair(int rank, int socket) : Wire(rank, 2), socket_(socket) {}

  void gather(std::byte* all, size_t part) override {
    SKEIN_CHECK(::write(socket_, all + part * rank(), part) == static_cast<ssize_t>(part), "write");
    SKEIN_CHECK(::read(socket_, all + part * (1 - rank()), part) == static_cast<ssize_t>(part),
                "read");
  }
  void scatter(const Reduction&) override { SKEIN_CHECK(false, "not here"); }
  void broadcast(std::byte*, size_t, int) override { SKEIN_CHECK(false, "not here"); }

 private:
  int socket_;
};

class SharedWire : public testing::Test {
 protected:
  SharedWire() { SKEIN_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets_.data()) == 0, ""); }
  ~SharedWire() override {
    for (const int socket : sockets_) ::close(socket);
  }

  std::unique_ptr<Wire> join(int rank, bool wanted = true, milliseconds timeout = kMinute) const {
    Pair meeting(rank, sockets_[rank]);
    return share_memory(meeting, wanted, timeout);
  }

  // `body` on two threads, each with its wire.
  void run(const std::function<void(Wire&)>& body, milliseconds timeout = kMinute) const {
    std::jthread other([&] { body(*join(1, true, timeout)); });
    body(*join(0, true, timeout));
  }

  static constexpr milliseconds kMinute{60'000};
  std::array<int, 2> sockets_{};
};

// Descriptors of this process that hold the memory of some group.
int64_t memories() {
  int64_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count +=
        fs::read_symlink(entry.path(), gone).string().starts_with("/memfd:skein-ranks") ? 1 : 0;
  }
  return count;
}

void gather_numbers(Wire& wire) {
  std::array<int64_t, 2> numbers{};
  numbers[wire.rank()] = 10 + wire.rank();
  wire.gather(reinterpret_cast<std::byte*>(numbers.data()), sizeof(int64_t));
  EXPECT_EQ(numbers, (std::array<int64_t, 2>{10, 11}));
}

TEST_F(SharedWire, BringsEachRankTheOthersBytes) {
  run([](Wire& wire) {
    for (int i = 0; i < 1000; ++i) gather_numbers(wire);
  });
  EXPECT_EQ(memories(), 0);
}

TEST_F(SharedWire, WhereOneRankDoesNotWantItNobodyHasIt) {
  for (const int unwilling : {0, 1}) {
    std::jthread other([&] { EXPECT_EQ(join(1, unwilling != 1), nullptr); });
    EXPECT_EQ(join(0, unwilling != 0), nullptr);
  }
  EXPECT_EQ(memories(), 0);
}

// A rank that finishes and leaves has given what it had to give.
TEST_F(SharedWire, APeerThatLeavesIsMissedAtTheNextCall) {
  std::string message;
  run([&](Wire& wire) {
    gather_numbers(wire);
    if (wire.rank() == 1) return;
    message = refusal<CommError>([&] { gather_numbers(wire); });
  });
  EXPECT_EQ(message, "rank 1 has left");
}

TEST_F(SharedWire, APeerThatIsKilledIsMissed) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto wire = join(1);
    gather_numbers(*wire);
    ::raise(SIGKILL);
  }
  const auto wire = join(0);
  ASSERT_NE(wire, nullptr);
  gather_numbers(*wire);
  EXPECT_EQ(refusal<CommError>([&] { gather_numbers(*wire); }), "rank 1 has left");
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

// Rank 1 lives. What rank 0 gave before it gave up is still there, and nothing comes after it.
TEST_F(SharedWire, ALatePeerIsWaitedForUntilTheDeadline) {
  std::array<std::string, 2> messages;
  MemoryStore store;
  run(
      [&](Wire& wire) {
        if (wire.rank() == 1) store.get("go", kMinute);
        if (wire.rank() == 1) gather_numbers(wire);
        messages[wire.rank()] = refusal<CommError>([&] { gather_numbers(wire); });
        if (wire.rank() == 0) store.set("go", "");
      },
      milliseconds(200));
  EXPECT_EQ(messages[0], "timed out waiting for rank 1");
  EXPECT_EQ(messages[1], "rank 0 has left");
}

// Nobody takes bytes of another call: both wait.
TEST_F(SharedWire, DifferentCallsDoNotMeet) {
  std::array<std::string, 2> messages;
  run(
      [&](Wire& wire) {
        std::array<std::byte, 64> data{};
        messages[wire.rank()] = refusal<CommError>([&] {
          if (wire.rank() == 0) wire.gather(data.data(), 8);
          if (wire.rank() == 1) wire.gather(data.data(), 16);
        });
        EXPECT_EQ(data, (std::array<std::byte, 64>{}));
      },
      milliseconds(200));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(contains(messages[rank], fmt::format("rank {}", 1 - rank))) << messages[rank];
  }
}

// What all collectives leave on each rank, as bytes.
using Bytes = std::vector<std::string>;

std::string bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Values whose sums round.
at::Tensor rounding_values(int rank, at::ScalarType type, int64_t count) {
  const auto index = at::arange(count, at::TensorOptions(at::kDouble));
  return (at::sin(index * 0.37 + rank * 1.7) * 1000.0).to(type);
}

std::string all_collectives(Group& group, at::ScalarType type, int64_t part) {
  const auto values = rounding_values(group.rank(), type, part * group.size());
  const auto shard = at::zeros({part}, values.options());
  const auto inside = values.clone(), reduced = values.clone(), gathered = at::zeros_like(values);
  const auto shared = values.clone();
  std::vector<Work> works;
  works.push_back(group.reduce_scatter(shard, values));
  works.push_back(group.reduce_scatter(inside.narrow(0, group.rank() * part, part), inside));
  works.push_back(group.all_reduce(reduced));
  works.push_back(group.all_gather(gathered, values.narrow(0, 0, part)));
  works.push_back(group.broadcast(shared, group.size() - 1));
  for (auto& work : works) work.wait();
  std::string bytes;
  for (const auto& tensor : {shard, inside, reduced, gathered, shared}) bytes += bytes_of(tensor);
  return bytes;
}

// A group, a second one beside it that is busy at the same time, and its halves.
Bytes bytes_over(int size, bool shared_memory, const std::vector<at::ScalarType>& types,
                 const std::vector<int64_t>& parts) {
  Bytes bytes(size);
  run_connected({.size = size, .shared_memory = shared_memory, .timeout = std::chrono::minutes(1)},
                [&](Group& group) {
                  EXPECT_EQ(memories() > 0, shared_memory && size > 1);
                  auto half = group.split(group.rank() % 2);
                  auto second = group.split(0);
                  const auto beside =
                      rounding_values(group.rank(), at::kFloat, 30'000 * group.size());
                  auto work = second.all_reduce(beside);
                  auto& own = bytes[group.rank()];
                  for (const auto type : types) {
                    for (const int64_t part : parts) {
                      own += all_collectives(group, type, part);
                      own += all_collectives(half, type, part);
                    }
                  }
                  work.wait();
                  own += bytes_of(beside);
                  half.shutdown();
                  second.shutdown();
                  group.barrier();
                });
  EXPECT_EQ(memories(), 0);
  return bytes;
}

TEST(SharedMemory, GivesTheBytesOfSockets) {
  const std::vector<at::ScalarType> types{at::kFloat, at::kDouble, at::kBFloat16,
                                          at::kHalf,  at::kInt,    at::kLong};
  const std::vector<int64_t> parts{1, 7, 1023, 70'001};
  for (int size = 1; size <= 5; ++size) {
    EXPECT_TRUE(bytes_over(size, true, types, parts) == bytes_over(size, false, types, parts))
        << size << " ranks";
  }
}

// Many buffers long, and exactly one.
TEST(SharedMemory, LongTensorsPassInPieces) {
  const std::vector<int64_t> parts{1'000'003, (512 << 10) / 4};
  for (const int size : {2, 3}) {
    EXPECT_TRUE(bytes_over(size, true, {at::kFloat}, parts) ==
                bytes_over(size, false, {at::kFloat}, parts))
        << size << " ranks";
  }
}

}  // namespace
}  // namespace skein::comm
