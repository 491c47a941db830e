// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/verify/trained_weights.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/hash.h"

namespace skein::train {
namespace {

constexpr int64_t kChunk = 1 << 20;  // elements that are float64 at a time

template <typename Use>
void for_chunks(int64_t size, Use use) {
  for (int64_t begin = 0; begin < size; begin += kChunk) use(begin, std::min(kChunk, size - begin));
}

std::map<std::string, size_t> places_of(const std::vector<TensorSums>& tensors) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < tensors.size(); ++i) places[tensors[i].name] = i;
  return places;
}

// Where weights have 16 bits, their masters: what the optimizer goes on from.
std::vector<tensor::TensorSlice> trained_slices(parallel::Sharded& sharded,
                                                const tensor::ParameterTable& table,
                                                const parallel::Sharded::States& states) {
  constexpr std::string_view kSuffix = ".master";
  auto slices = sharded.slices_to_save(states);
  std::erase_if(slices, [&](const auto& slice) { return !slice.name.ends_with(kSuffix); });
  std::set<std::string> have_masters;
  for (auto& slice : slices) {
    slice.name.resize(slice.name.size() - kSuffix.size());
    have_masters.insert(slice.name);
  }
  for (auto& slice : sharded.slices_to_save(Access::kRead)) {
    if (table.find(slice.name)->trainable && !have_masters.contains(slice.name)) {
      slices.push_back(std::move(slice));
    }
  }
  const auto host = at::TensorOptions().device(at::kCPU);
  for (auto& slice : slices)
    slice.data = slice.data.to(host, /*non_blocking=*/false, /*copy=*/true);
  return slices;
}

void add_sums(TrainedWeights& weights, comm::Group& group) {
  const auto places = places_of(weights.tensors);
  std::vector<double> sums(2 * weights.tensors.size());
  for (const auto& slice : weights.slices) {
    double* sum = &sums[2 * places.at(slice.name)];
    for_chunks(slice.data.numel(), [&](int64_t begin, int64_t size) {
      const auto values = slice.data.narrow(0, begin, size).to(at::kDouble);
      sum[0] += values.sum().item<double>();
      sum[1] += values.square().sum().item<double>();
    });
  }
  sums = group.sum(sums);
  for (size_t i = 0; i < weights.tensors.size(); ++i) {
    weights.tensors[i].sum = sums[2 * i];
    weights.tensors[i].square_sum = sums[2 * i + 1];
  }
}

// 64 bits of every rank.
std::string digest_of(const std::vector<tensor::TensorSlice>& slices, comm::Group& group) {
  std::string text;
  for (const auto& slice : slices) {
    const auto* bytes = static_cast<const std::byte*>(slice.data.const_data_ptr());
    text += fmt::format("{} {} {} {}\n", slice.name, slice.begin, slice.end,
                        digest(std::span(bytes, slice.data.nbytes())));
  }
  std::vector<int64_t> all(group.size());
  all[group.rank()] = static_cast<int64_t>(hash64(text));
  return digest(fmt::format("{}", fmt::join(group.sum(all), " ")));
}

}  // namespace

TrainedWeights copy_trained(parallel::Sharded& sharded, const tensor::ParameterTable& table,
                            const parallel::Sharded::States& states) {
  TrainedWeights weights{
      .slices = trained_slices(sharded, table, states), .tensors = {}, .digest = {}};
  for (const auto& parameter : table.parameters) {
    if (parameter.trainable) weights.tensors.push_back({parameter.name});
  }
  add_sums(weights, sharded.group());
  weights.digest = digest_of(weights.slices, sharded.group());
  return weights;
}

WeightsDifference difference(const TrainedWeights& a, const TrainedWeights& b, comm::Group& group) {
  if (a.digest == b.digest) return {};
  SKEIN_CHECK(a.slices.size() == b.slices.size(), "weights of different models");
  const auto places = places_of(a.tensors);
  std::vector<double> squares(a.tensors.size());
  for (size_t i = 0; i < a.slices.size(); ++i) {
    const auto &left = a.slices[i], &right = b.slices[i];
    SKEIN_CHECK(left.name == right.name && left.begin == right.begin && left.end == right.end,
                "weights that are cut differently");
    for_chunks(left.data.numel(), [&](int64_t begin, int64_t size) {
      const auto apart = left.data.narrow(0, begin, size).to(at::kDouble) -
                         right.data.narrow(0, begin, size).to(at::kDouble);
      squares[places.at(left.name)] += apart.square().sum().item<double>();
    });
  }
  squares = group.sum(squares);
  double all = 0;
  for (const auto& tensor : a.tensors) all += tensor.square_sum;
  WeightsDifference largest;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const double size = std::max(std::sqrt(a.tensors[i].square_sum), 1e-3 * std::sqrt(all));
    const double relative = squares[i] == 0 ? 0 : std::sqrt(squares[i]) / size;
    if (relative <= largest.relative) continue;
    largest = {relative, a.tensors[i].name};
    if (std::isnan(relative)) break;  // nothing is larger than what is no number
  }
  return largest;
}

}  // namespace skein::train
