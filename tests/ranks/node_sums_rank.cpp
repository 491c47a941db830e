// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// One rank of node_sums_test.py: reduces over Gloo, by node or flat, and prints digests of what it
// has afterwards.
//
//   node_sums_rank RANK NODES LOCAL_SIZE HOST PORT ADDRESS flat|by_node all_reduce|reduce_scatter
//                  ELEMENTS TIMES

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sin.h>
#include <fmt/format.h>

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "skein/comm/foreign_store.h"
#include "skein/comm/group.h"
#include "skein/core/hash.h"

namespace skein::ranks {
namespace {

at::Tensor values_of(int rank, int64_t count) {
  const auto index = at::arange(count, at::TensorOptions(at::kDouble));
  return (at::sin(index * 0.37 + rank * 1.7) * 100.0).to(at::kBFloat16);
}

std::string digest_of(const at::Tensor& tensor) {
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  return digest(std::span(data, tensor.nbytes()));
}

// This rank's shard of the sum, and the whole where there is one.
std::string reduce(comm::Group& group, const std::string& operation, int64_t count) {
  const auto values = values_of(group.rank(), count);
  const int64_t part = count / group.size();
  if (operation == "all_reduce") {
    const auto whole = values.clone();
    group.all_reduce(whole).wait();
    return digest_of(whole.narrow(0, group.rank() * part, part)) + " " + digest_of(whole);
  }
  const auto shard = at::empty({part}, values.options());
  group.reduce_scatter(shard, values).wait();
  return digest_of(shard);
}

int run(const std::vector<std::string>& words) {
  const int rank = std::stoi(words[1]), nodes = std::stoi(words[2]), local = std::stoi(words[3]);
  const auto store = comm::join_foreign_store(
      {.host = words[4], .port = std::stoi(words[5]), .serve = rank == 0, .prefix = "test/"});
  auto group = comm::connect({.rank = rank,
                              .size = nodes * local,
                              .address = words[6],
                              .local_rank = rank % local,
                              .local_size = local,
                              .sums_by_node = words[7] == "by_node",
                              .timeout = std::chrono::seconds(60)},
                             *store);
  std::string digests;
  for (int i = 0; i < std::stoi(words[10]); ++i) {
    digests = reduce(group, words[8], std::stoll(words[9]));
  }
  fmt::print("{}\n", digests);
  group.barrier();  // rank 0 serves the store
  group.shutdown();
  return 0;
}

}  // namespace
}  // namespace skein::ranks

int main(int argc, char** argv) { return skein::ranks::run({argv, argv + argc}); }
