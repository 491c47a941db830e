// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Sums that cross from node to node once.
//
// N nodes of L ranks each; rank r = node * L + local. Summed flat, every rank sends its values to
// all others: a node sends L times what it must. Here the ranks of a node first sum among
// themselves, each one part of the whole; then the ranks of equal local number, one of each node,
// sum these parts. Of S bytes a node sends S (N-1)/N to other nodes, and back as much where all are
// to have the sum.
//
// Each of the two sums is formed in rank order, 16-bit values in fp32 and rounded: twice instead of
// once. An element's sum does not depend on how the buffer is cut, so that stages stay bit-equal.
#include <ATen/ops/empty.h>

#include <utility>

#include "skein/comm/backend.h"

namespace skein::comm {
namespace {

class NodeSums final : public Backend {
 public:
  NodeSums(std::shared_ptr<Backend> flat, std::shared_ptr<Backend> node,
           std::shared_ptr<Backend> across)
      : Backend(flat->rank(), flat->size()),
        flat_(std::move(flat)),
        node_(std::move(node)),
        across_(std::move(across)) {}

  // The parts of a node's ranks lie side by side: one sum inside the node for each node, as there
  // are no parts of all nodes for one rank in one piece.
  Work reduce_scatter(const at::Tensor& shard, const at::Tensor& whole, uint64_t call) override {
    if (flat_->knows_nodes(whole.scalar_type())) return flat_->reduce_scatter(shard, whole, call);
    const auto steps = [shard, whole, node = node_, across = across_] {
      const int64_t part = shard.numel();
      const auto sums = at::empty({part * across->size()}, shard.options());
      std::vector<Work> works;
      for (int64_t i = 0; i < across->size(); ++i) {
        const int64_t of_node = part * node->size();
        works.push_back(node->reduce_scatter(sums.narrow(0, i * part, part),
                                             whole.narrow(0, i * of_node, of_node), 0));
      }
      for (auto& work : works) work.wait();
      across->reduce_scatter(shard, sums, 0).wait();
    };
    return flat_->compose({"reduce_scatter", whole.nbytes(), call}, {shard, whole}, steps);
  }

  Work all_reduce(const at::Tensor& whole, uint64_t call) override {
    if (flat_->knows_nodes(whole.scalar_type())) return flat_->all_reduce(whole, call);
    const auto steps = [whole, node = node_, across = across_] {
      const int64_t part = whole.numel() / node->size();
      const auto own = whole.narrow(0, node->rank() * part, part);
      node->reduce_scatter(own, whole, 0).wait();
      across->all_reduce(own, 0).wait();
      node->all_gather(whole, own, 0).wait();
    };
    return flat_->compose({"all_reduce", whole.nbytes(), call}, {whole}, steps);
  }

  Work all_gather(const at::Tensor& whole, const at::Tensor& shard, uint64_t call) override {
    return flat_->all_gather(whole, shard, call);
  }
  Work broadcast(const at::Tensor& tensor, int root, uint64_t call) override {
    return flat_->broadcast(tensor, root, call);
  }
  Work gather_host(HostBytes all, uint64_t call) override {
    return flat_->gather_host(std::move(all), call);
  }
  Work compose(const Call& call, std::vector<at::Tensor> tensors,
               std::function<void()> steps) override {
    return flat_->compose(call, std::move(tensors), std::move(steps));
  }
  // Sums of a part are flat: its nodes are others.
  std::shared_ptr<Backend> split(const std::vector<int>& members) override {
    return flat_->split(members);
  }

  void shutdown() override {
    flat_->shutdown();  // first: what is under way there uses the others
    node_->shutdown();
    across_->shutdown();
  }

 private:
  std::shared_ptr<Backend> flat_, node_, across_;
};

// Do all ranks lie in nodes of `options.local_size`, one after the other? Alike on all ranks.
bool nodes_are_alike(const std::shared_ptr<Backend>& flat, const GroupOptions& options) {
  std::vector<int64_t> local_ranks(flat->size()), local_sizes(flat->size());
  local_ranks[flat->rank()] = options.local_rank;
  local_sizes[flat->rank()] = options.local_size;
  Group group(flat);
  local_ranks = group.sum(local_ranks);
  local_sizes = group.sum(local_sizes);
  const int64_t local_size = local_sizes.front();
  if (local_size < 1 || flat->size() % local_size != 0) return false;
  for (size_t rank = 0; rank < local_ranks.size(); ++rank) {
    const auto place = static_cast<int64_t>(rank) % local_size;
    if (local_sizes[rank] != local_size || local_ranks[rank] != place) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<Backend> sum_by_node(std::shared_ptr<Backend> flat, const GroupOptions& options) {
  if (!nodes_are_alike(flat, options)) return flat;
  const int local_size = options.local_size;
  const int num_nodes = flat->size() / local_size;
  const bool asked = options.sums_by_node.value_or(false);
  if (!asked && (num_nodes == 1 || local_size == 1)) return flat;
  std::vector<int> same_node, same_place;
  for (int rank = 0; rank < flat->size(); ++rank) {
    if (rank / local_size == flat->rank() / local_size) same_node.push_back(rank);
    if (rank % local_size == flat->rank() % local_size) same_place.push_back(rank);
  }
  auto node = flat->split(same_node);
  auto across = flat->split(same_place);
  return std::make_shared<NodeSums>(std::move(flat), std::move(node), std::move(across));
}

}  // namespace skein::comm
