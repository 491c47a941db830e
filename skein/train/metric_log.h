// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is written down of a run, and when: the records, which go to trainer_log.jsonl, the terminal
// and the reporters.
//
// Every rank has one, so that all keep the same history; only the first rank's writes. Losses are
// added up between records, on the device.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "skein/core/file.h"
#include "skein/ops/device.h"
#include "skein/report/hardware.h"
#include "skein/report/record_log.h"
#include "skein/report/reporters.h"
#include "skein/report/spike.h"
#include "skein/report/terminal.h"
#include "skein/train/evaluate.h"
#include "skein/train/phases.h"
#include "skein/train/update.h"

namespace skein::train {

struct MetricOptions {
  fs::path output;
  bool writes = false;  // the first rank
  double spike_zscore = 0;
  // Of a document of so many tokens.
  std::function<double(int64_t num_tokens)> flops_of = {};
  double peak_flops = 0;   // of all ranks; 0: no MFU
  std::string pci_bus_id;  // of this rank's GPU; empty: none
  // Beside the loss; must outlive the log.
  std::span<const algorithms::Metric> metrics = {};
  std::function<void()> fence = {};  // throws CommError when `output` is another run's by now
};

// Since the record before it.
struct MeanNumbers {
  double loss = 0;  // NaN when no step counts
  algorithms::NamedNumbers metrics{};
};

// What one log record is made of, besides what the log has counted itself.
struct StepNumbers {
  int64_t step = 0;  // finished updates, from 1
  double epoch = 0;
  MeanNumbers means;
  double grad_norm = 0;
  double learning_rate = 0;
  bool has_updates = true;        // else there is neither loss nor norm nor rate
  double loss_scale = 0;          // 0: none
  int64_t peak_memory_bytes = 0;  // flat buffers
  int64_t peak_host_bytes = 0;    // of what is offloaded; 0: nothing is
  ops::DeviceMemory device_memory;
};

class MetricLog {
 public:
  explicit MetricLog(MetricOptions options);

  Phases& phases() { return phases_; }

  // One finished step: this rank's share of its loss, the norm of its gradient, and the lengths of
  // the documents that all ranks read, `shared` of which nobody computed (data::StepBatches).
  // Tokens are counted as read, FLOPs as computed. The loss of a step whose update was left out
  // (the norm, alike on all ranks, is not finite) does not count yet: it may not be finite either,
  // on another rank, and would take the whole record's loss with it.
  void add_step(int64_t step, const Update& update, std::span<const int64_t> lengths,
                std::span<const int64_t> shared = {});
  // The same tokens alone, of a step whose updates read them several times, or not at all.
  void add_tokens(std::span<const int64_t> lengths, std::span<const int64_t> shared = {});
  // The loss of such a step, after all: it is finite on every rank. Before the next record.
  void add_loss(const Update& update);
  // Loss and metrics over all ranks since the last record. Collective.
  MeanNumbers take_means(comm::Group& group);
  void write(const StepNumbers& numbers);
  void write(int64_t step, double epoch, const Evaluation& evaluation);
  // Markdown that people read beside the numbers.
  void show_text(int64_t step, std::string_view tag, std::string_view text);

  // What trainer_state.json keeps. restore() also rewrites trainer_log.jsonl, so that records of
  // steps that were lost do not stay there.
  const nlohmann::ordered_json& history() const { return log_.records(); }
  bool has_evaluation(int64_t step) const;
  int64_t num_tokens_seen() const { return num_tokens_seen_; }
  void restore(nlohmann::ordered_json history, int64_t num_tokens_seen);

  // From here on the terminal shows progress and reporters get the records. First rank only.
  void show(const report::Terminal::Options& terminal, const report::ReporterOptions& reporters);
  // The run has ended well.
  void finish();

 private:
  void add(nlohmann::ordered_json record);

  MetricOptions options_;
  report::RecordLog log_;
  report::SpikeDetector spikes_;
  Phases phases_;
  std::unique_ptr<report::Terminal> terminal_;
  std::unique_ptr<report::Reporters> reporters_;
  std::unique_ptr<report::GpuMonitor> monitor_;
  // Since the last record; undefined when there is none. On the device: nobody waits for them.
  at::Tensor loss_;       // sum
  at::Tensor num_steps_;  // that count
  algorithms::MetricSums metrics_;
  int64_t num_tokens_ = 0;
  double flops_ = 0;
  int64_t num_tokens_seen_ = 0;
  double seconds_blocked_ = 0;  // in communication, when the last record was written
  std::chrono::steady_clock::time_point last_record_ = std::chrono::steady_clock::now();
};

}  // namespace skein::train
