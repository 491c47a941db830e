// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/comm/link_rate.h"

#include <ATen/ops/zeros.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace skein::comm {
namespace {

// Long enough that neither latency nor what a rate limit lets pass at once counts.
constexpr double kLongEnough = 0.2;                                           // seconds
constexpr int64_t kShortest = int64_t{1} << 18, kLongest = int64_t{1} << 24;  // elements

// Zeros stay finite however often they are summed.
at::Tensor make_values(int64_t count, at::Device device) {
  return at::zeros({count}, at::TensorOptions().dtype(at::kFloat).device(device));
}

double time_once(Group& group, Group& world, const at::Tensor& values) {
  world.barrier();
  const auto begin = std::chrono::steady_clock::now();
  auto work = group.all_reduce(values);
  group.finish(work);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median_of(int times, Group& group, Group& world, const at::Tensor& values) {
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) seconds.push_back(time_once(group, world, values));
  std::ranges::nth_element(seconds, seconds.begin() + times / 2);
  return seconds[static_cast<size_t>(times / 2)];
}

// Of all ranks: what follows from it they decide alike.
double longest(Group& world, double seconds) {
  std::vector<double> all(static_cast<size_t>(world.size()));
  all[static_cast<size_t>(world.rank())] = seconds;
  return std::ranges::max(world.sum(all));
}

}  // namespace

double process_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

LinkRate measure_link(Group& group, Group& world, at::Device device) {
  // Divisible by the size of every part: those of nodes in pairs, and divisors of the world's.
  const int64_t least = int64_t{2} * world.size();
  const auto few = make_values(least, device);
  time_once(group, world, few);  // connections are made on the first use
  LinkRate rate{.latency = median_of(21, group, world, few)};
  int64_t count = (kShortest / least + 1) * least;
  while (count < kLongest &&
         longest(world, time_once(group, world, make_values(count, device))) < kLongEnough) {
    count *= 2;
  }
  constexpr int kTimes = 3;
  const auto many = make_values(count, device);
  const double cpu_before = process_cpu_seconds();
  const double seconds = median_of(kTimes, group, world, many);
  const double cpu = (process_cpu_seconds() - cpu_before) / kTimes;
  const auto size = static_cast<double>(group.size());
  const double sent = 2 * (size - 1) / size * static_cast<double>(4 * count);
  rate.bytes_per_second = sent / seconds;
  if (sent > 0) rate.cpu_per_byte = cpu / sent;
  return rate;
}

}  // namespace skein::comm
