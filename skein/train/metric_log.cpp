// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/metric_log.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "skein/comm/group.h"
#include "skein/core/log.h"
#include "skein/plan/cost/flops.h"

namespace skein::train {
namespace {

using nlohmann::ordered_json;

report::RecordLog::Options log_options(const MetricOptions& options) {
  return {.file = options.writes ? options.output / report::kRecordLogName : fs::path(),
          .fence = options.fence};
}

}  // namespace

MetricLog::MetricLog(MetricOptions options)
    : options_(std::move(options)), log_(log_options(options_)), spikes_(options_.spike_zscore) {}

void MetricLog::add_step(int64_t step, const Update& update, std::span<const int64_t> lengths) {
  const auto counts = update.norm.norm.isfinite();
  const auto loss = at::where(counts, update.loss, 0);
  loss_ = loss_.defined() ? loss_ + loss : loss;
  num_steps_ = num_steps_.defined() ? num_steps_ + counts : counts.to(at::kLong);
  for (const int64_t length : lengths) {
    num_tokens_ += length;
    num_tokens_seen_ += length;
    if (options_.peak_flops > 0) flops_ += options_.flops_of(length);
  }
  if (terminal_) terminal_->update(step);
}

void MetricLog::add_loss(const at::Tensor& loss) {
  loss_ = loss_.defined() ? loss_ + loss : loss;
  num_steps_ =
      num_steps_.defined() ? num_steps_ + 1 : at::ones({}, loss.options().dtype(at::kLong));
}

double MetricLog::take_loss_share() {
  const double sum = std::exchange(loss_, at::Tensor()).item<double>();
  const auto steps = std::exchange(num_steps_, at::Tensor()).item<int64_t>();
  return steps > 0 ? sum / static_cast<double>(steps) : std::numeric_limits<double>::quiet_NaN();
}

void MetricLog::write(const StepNumbers& numbers) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds =
      std::chrono::duration<double>(now - std::exchange(last_record_, now)).count();
  const double tokens_per_second = static_cast<double>(std::exchange(num_tokens_, 0)) / seconds;
  ordered_json record = {{"step", numbers.step},
                         {"epoch", numbers.epoch},
                         {"loss", numbers.loss},
                         {"grad_norm", numbers.grad_norm},
                         {"learning_rate", numbers.learning_rate},
                         {"tokens_per_second", tokens_per_second}};
  if (numbers.loss_scale > 0) record["loss_scale"] = numbers.loss_scale;
  if (options_.peak_flops > 0) {
    record["mfu"] = plan::model_flops_utilisation(std::exchange(flops_, 0) / seconds,
                                                  options_.peak_flops, /*num_devices=*/1);
  }
  record["peak_memory_bytes"] = numbers.peak_memory_bytes;
  if (numbers.peak_host_bytes > 0) record["peak_host_bytes"] = numbers.peak_host_bytes;
  if (numbers.device_memory.peak > 0) {
    record["gpu_bytes_allocated"] = numbers.device_memory.allocated;
    record["gpu_bytes_reserved"] = numbers.device_memory.reserved;
    record["gpu_bytes_peak"] = numbers.device_memory.peak;
  }
  if (monitor_) {
    if (const auto load = monitor_->load()) record["gpu_utilisation"] = load->utilisation_percent;
  }
  record["num_input_tokens_seen"] = num_tokens_seen_;
  const auto phases = phases_.take();
  for (const auto phase : kStepPhases) {
    record[fmt::format("seconds_{}", name_of(phase))] = phases[static_cast<size_t>(phase)];
  }
  const double blocked = comm::Group::seconds_blocked();
  record["seconds_communication"] = blocked - std::exchange(seconds_blocked_, blocked);
  if (terminal_) {
    terminal_->record(numbers.step, {{"loss", fmt::format("{:.4f}", numbers.loss)},
                                     {"grad_norm", std::isfinite(numbers.grad_norm)
                                                       ? fmt::format("{:.3f}", numbers.grad_norm)
                                                       : "skipped"},
                                     {"lr", fmt::format("{:.2e}", numbers.learning_rate)},
                                     {"tokens/s", fmt::format("{:.0f}", tokens_per_second)}});
  }
  if (const auto score = spikes_.add(numbers.loss); score && options_.writes) {
    log_warning("step {}: the loss jumped to {:.4f}, {:.1f} deviations above the last records",
                numbers.step, numbers.loss, *score);
  }
  add(std::move(record));
}

void MetricLog::write(int64_t step, double epoch, const Evaluation& evaluation) {
  if (options_.writes) {
    log_info("step {}: eval_loss {:.4f}, perplexity {:.3f} ({} samples, {:.1f} s)", step,
             evaluation.loss, evaluation.perplexity(), evaluation.num_samples, evaluation.seconds);
  }
  const auto samples = static_cast<double>(evaluation.num_samples);
  add({{"step", step},
       {"epoch", epoch},
       {"eval_loss", evaluation.loss},
       {"eval_perplexity", evaluation.perplexity()},
       {"eval_runtime", evaluation.seconds},
       {"eval_samples_per_second", samples / evaluation.seconds}});
}

bool MetricLog::has_evaluation(int64_t step) const {
  return std::ranges::any_of(history(), [&](const ordered_json& record) {
    return record.value("step", int64_t{-1}) == step && record.contains("eval_loss");
  });
}

void MetricLog::add(ordered_json record) {
  if (reporters_) {
    reporters_->record(record.at("step").get<int64_t>(), report::numbers_of(record));
  }
  log_.add(std::move(record));
}

void MetricLog::restore(ordered_json history, int64_t num_tokens_seen) {
  num_tokens_seen_ = num_tokens_seen;
  for (const auto& record : history) {
    const auto loss = record.find("loss");  // null where it was not finite: JSON has no NaN
    if (loss != record.end() && loss->is_number()) spikes_.add(loss->get<double>());
  }
  log_.replace(std::move(history));
}

void MetricLog::show(const report::Terminal::Options& terminal,
                     const report::ReporterOptions& reporters) {
  if (!options_.writes) return;
  terminal_ = std::make_unique<report::Terminal>(terminal);
  reporters_ = std::make_unique<report::Reporters>(reporters);
  if (!options_.pci_bus_id.empty()) monitor_ = report::GpuMonitor::open(options_.pci_bus_id);
  last_record_ = std::chrono::steady_clock::now();
}

void MetricLog::finish() {
  log_.finish();
  terminal_.reset();
  if (reporters_) reporters_->finish();
}

}  // namespace skein::train
