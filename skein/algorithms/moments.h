// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Mean and variance of numbers that lie on several ranks, the same bits however they are dealt.
//
// Each completion's moments are computed by the rank that has it. They are gathered in the order of
// the samples, three numbers each, and joined in that order: no token travels, and nothing depends
// on ranks or micro-batches. Free of torch.

#include <cstdint>
#include <span>
#include <vector>

namespace skein::algorithms {

struct Moments {
  double count = 0;
  double mean = 0;
  double squares = 0;  // the sum of squared distances from the mean

  // Unbiased; 0 of fewer than two.
  double variance() const { return count > 1 ? squares / (count - 1) : 0; }
  double deviation() const;

  void add(double value);
  void add(const Moments& more);
};

Moments moments_of(std::span<const double> values);

// Of each completion, from numbers of tokens that lie completion by completion; `weights` (one for
// each completion, or empty) 0: masked out, whose moments are empty.
std::vector<Moments> completion_moments(std::span<const double> values,
                                        std::span<const int64_t> lengths,
                                        std::span<const double> weights = {});
// In their order.
Moments joined(std::span<const Moments> parts);

// (x - mean) / sqrt(variance + 1e-8); without the shift the mean is kept.
enum class Shift { kToZero, kKeepMean };
void whiten(std::span<double> values, const Moments& moments, Shift shift = Shift::kToZero);

}  // namespace skein::algorithms
