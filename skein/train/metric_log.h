// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Numbers of a run, one record per logged step: trainer_log.jsonl and a line on the terminal.
//
// Every rank has one; only the first writes. Losses are added up between records, on the device.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "skein/core/file.h"

namespace skein::train {

struct StepNumbers {
  int64_t step = 0;  // finished updates, from 1
  int64_t total_steps = 0;
  double epoch = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  int64_t peak_memory_bytes = 0;
};

class MetricLog {
 public:
  MetricLog(fs::path output, bool writes);

  // One finished step: this rank's share of its loss, and the tokens that all ranks read.
  void add_step(const at::Tensor& loss_share, int64_t num_tokens);
  // This rank's share of the mean loss since the last record.
  double take_loss_share();
  void write(const StepNumbers& numbers, double loss);

  // What trainer_state.json keeps. restore() also rewrites trainer_log.jsonl, so that records of
  // steps that were lost do not stay there.
  const nlohmann::ordered_json& history() const { return history_; }
  int64_t num_tokens_seen() const { return num_tokens_seen_; }
  void restore(nlohmann::ordered_json history, int64_t num_tokens_seen);

 private:
  fs::path file() const { return output_ / "trainer_log.jsonl"; }

  fs::path output_;
  bool writes_;
  nlohmann::ordered_json history_ = nlohmann::ordered_json::array();
  at::Tensor loss_;  // sum since the last record; undefined when there is none
  int64_t num_steps_ = 0;
  int64_t num_tokens_ = 0;
  int64_t num_tokens_seen_ = 0;
  std::chrono::steady_clock::time_point last_record_ = std::chrono::steady_clock::now();
};

}  // namespace skein::train
