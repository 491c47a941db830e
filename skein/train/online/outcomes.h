// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What all ranks know of a step's completions: what they are worth, and how long they are. Nothing
// that follows from it depends on how they were dealt.

#include <span>
#include <string>
#include <vector>

#include "skein/algorithms/metrics.h"
#include "skein/comm/group.h"
#include "skein/train/online/judge.h"
#include "skein/train/online/prompts.h"
#include "skein/train/online/sample.h"

namespace skein::train {

// Each vector by the completions' numbers.
struct Outcomes {
  std::vector<double> totals;                // not a number: nobody says anything
  std::vector<std::vector<double>> rewards;  // of each reward; the same
  std::vector<double> lengths;               // tokens that the policy has written
  std::vector<double> other_lengths;         // those of the prompt, and of replies
  std::vector<double> finished;              // 1: by itself
};

// Collective. `count`: completions of the step.
Outcomes share_outcomes(int64_t count, const Prompts& prompts, std::span<const Sampled> samples,
                        const Verdict& verdict, comm::Group& group);

// Under TRL's names. `generations`: of each prompt. What nobody knows is left out.
algorithms::NamedNumbers numbers_of(const Outcomes& outcomes,
                                    std::span<const std::string> reward_names, int64_t generations);

// Their names.
std::vector<std::string> names_of_numbers(std::span<const std::string> reward_names,
                                          int64_t generations);

}  // namespace skein::train
