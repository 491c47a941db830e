// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/metric_log.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
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

// The first two say most; all are in the log.
std::span<const std::pair<std::string, double>> shown_of(const algorithms::NamedNumbers& metrics) {
  return std::span(metrics).first(std::min<size_t>(metrics.size(), 2));
}

}  // namespace

MetricLog::MetricLog(MetricOptions options)
    : options_(std::move(options)),
      log_(log_options(options_)),
      spikes_(options_.spike_zscore),
      metrics_(options_.metrics) {}

void MetricLog::add_step(int64_t step, const Update& update, std::span<const int64_t> lengths,
                         std::span<const int64_t> shared) {
  const auto counts = update.norm.norm.isfinite();
  const auto loss = at::where(counts, update.loss, 0);
  loss_ = loss_.defined() ? loss_ + loss : loss;
  num_steps_ = num_steps_.defined() ? num_steps_ + counts : counts.to(at::kLong);
  metrics_.add(update.metrics, counts);
  add_tokens(lengths, shared);
  if (terminal_) terminal_->update(step);
}

void MetricLog::add_tokens(std::span<const int64_t> lengths, std::span<const int64_t> shared) {
  for (const int64_t length : lengths) {
    num_tokens_ += length;
    num_tokens_seen_ += length;
    if (options_.peak_flops > 0) flops_ += options_.flops_of(length);
  }
  // What follows a prompt costs what the whole costs beyond the prompt.
  for (const int64_t length : shared) {
    if (options_.peak_flops > 0) flops_ -= options_.flops_of(length);
  }
}

void MetricLog::add_loss(const Update& update) {
  const auto& loss = update.loss;
  loss_ = loss_.defined() ? loss_ + loss : loss;
  num_steps_ =
      num_steps_.defined() ? num_steps_ + 1 : at::ones({}, loss.options().dtype(at::kLong));
  metrics_.add(update.metrics, at::ones({}, loss.options().dtype(at::kBool)));
}

MeanNumbers MetricLog::take_means(comm::Group& group) {
  // A critic may learn alone for a while.
  const auto taken = [](at::Tensor& number) {
    const auto now = std::exchange(number, at::Tensor());
    return now.defined() ? now.item().toDouble() : 0;
  };
  const double sum = taken(loss_);
  const double steps = taken(num_steps_);
  const auto metrics = std::exchange(metrics_, algorithms::MetricSums(options_.metrics));
  auto share = metrics.share(group.rank(), group.size());
  share.push_back(steps > 0 ? sum / steps : std::numeric_limits<double>::quiet_NaN());
  auto all = group.sum(share);
  const double loss = all.back();
  all.pop_back();
  return {loss, metrics.numbers(all, group.size())};
}

void MetricLog::write(const StepNumbers& numbers) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds =
      std::chrono::duration<double>(now - std::exchange(last_record_, now)).count();
  const double tokens_per_second = static_cast<double>(std::exchange(num_tokens_, 0)) / seconds;
  const double loss = numbers.means.loss;
  ordered_json record = {{"step", numbers.step}, {"epoch", numbers.epoch}};
  if (numbers.has_updates) {
    record["loss"] = loss;
    record["grad_norm"] = numbers.grad_norm;
    record["learning_rate"] = numbers.learning_rate;
  }
  for (const auto& [name, value] : numbers.means.metrics) record[name] = value;
  record["tokens_per_second"] = tokens_per_second;
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
    const double in_phase = phases[static_cast<size_t>(phase)];
    if (in_phase == 0 && is_of_rollouts(phase)) continue;
    record[fmt::format("seconds_{}", name_of(phase))] = in_phase;
  }
  const double blocked = comm::Group::seconds_blocked();
  record["seconds_communication"] = blocked - std::exchange(seconds_blocked_, blocked);
  if (terminal_) {
    report::ProgressFields shown;
    if (numbers.has_updates) shown.emplace_back("loss", fmt::format("{:.4f}", loss));
    for (const auto& [name, value] : shown_of(numbers.means.metrics)) {
      shown.emplace_back(name, fmt::format("{:.3f}", value));
    }
    if (numbers.has_updates) {
      shown.emplace_back("grad_norm", std::isfinite(numbers.grad_norm)
                                          ? fmt::format("{:.3f}", numbers.grad_norm)
                                          : "skipped");
      shown.emplace_back("lr", fmt::format("{:.2e}", numbers.learning_rate));
    } else {
      shown.emplace_back("update", "none");
    }
    shown.emplace_back("tokens/s", fmt::format("{:.0f}", tokens_per_second));
    terminal_->record(numbers.step, std::move(shown));
  }
  if (const auto score = numbers.has_updates ? spikes_.add(loss) : std::nullopt;
      score && options_.writes) {
    log_warning("step {}: the loss jumped to {:.4f}, {:.1f} deviations above the last records",
                numbers.step, loss, *score);
  }
  add(std::move(record));
}

void MetricLog::write(int64_t step, double epoch, const Evaluation& evaluation) {
  if (options_.writes) {
    std::vector<std::string> shown;
    if (evaluation.loss) shown.push_back(fmt::format("eval_loss {:.4f}", *evaluation.loss));
    if (evaluation.perplexity) {
      shown.push_back(fmt::format("perplexity {:.3f}", *evaluation.perplexity));
    }
    for (const auto& [name, value] : shown_of(evaluation.metrics)) {
      shown.push_back(fmt::format("{} {:.3f}", name, value));
    }
    log_info("step {}: {} ({} samples, {:.1f} s)", step, fmt::join(shown, ", "),
             evaluation.num_samples, evaluation.seconds);
  }
  const auto samples = static_cast<double>(evaluation.num_samples);
  ordered_json record{{"step", step}, {"epoch", epoch}};
  if (evaluation.loss) record["eval_loss"] = *evaluation.loss;
  if (evaluation.perplexity) record["eval_perplexity"] = *evaluation.perplexity;
  for (const auto& [name, value] : evaluation.metrics) record["eval_" + name] = value;
  record["eval_runtime"] = evaluation.seconds;
  record["eval_samples_per_second"] = samples / evaluation.seconds;
  add(std::move(record));
}

void MetricLog::show_text(int64_t step, std::string_view tag, std::string_view text) {
  if (reporters_) reporters_->text(step, tag, text);
}

bool MetricLog::has_evaluation(int64_t step) const {
  return std::ranges::any_of(history(), [&](const ordered_json& record) {
    return record.value("step", int64_t{-1}) == step && record.contains("eval_runtime");
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
