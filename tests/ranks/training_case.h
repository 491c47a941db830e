// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A few steps of a tiny model under one way of sharding, told as text that can be compared to the
// letter. Runs on ranks that are threads and on ranks that are processes.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/comm/group.h"

namespace skein::ranks {

struct TrainingCase {
  std::string model = "llama";  // a key of kModels in training_case.cpp
  int stage = 0;
  int64_t micro_batches = 1;
  bool recompute = false;
  bool stash = false;  // what it keeps lies in host memory
  bool float64 = false;
  int ranks = 1;
  bool cuda = false;  // all ranks on the first GPU
  std::string backend = "gloo";
  int local_size = 0;            // sums by nodes of so many ranks
  std::string offload = "none";  // states, half (of them), all (shards too)
  bool clips = true;             // without clipping the host updates in backward

  std::string text() const;  // words that parse() reads back
  static TrainingCase parse(const std::string& text);
};

std::vector<std::string> model_names();

// What one rank saw, a line per fact: losses and norms as hexadecimal floats, digests of this
// rank's part of every gradient and of the final parameters.
std::string run_case(const TrainingCase& test_case, comm::Group& world);

// The same, on threads: one text per rank.
std::vector<std::string> run_on_threads(const TrainingCase& test_case);

// Losses and gradient norms of a run, for comparisons with a tolerance.
std::vector<double> numbers_of(const std::string& text);

}  // namespace skein::ranks
