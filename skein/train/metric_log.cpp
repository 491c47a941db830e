// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/metric_log.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "skein/core/log.h"

namespace skein::train {

MetricLog::MetricLog(fs::path output, bool writes) : output_(std::move(output)), writes_(writes) {}

void MetricLog::add_step(const at::Tensor& loss_share, int64_t num_tokens) {
  loss_ = loss_.defined() ? loss_ + loss_share : loss_share;
  ++num_steps_;
  num_tokens_ += num_tokens;
  num_tokens_seen_ += num_tokens;
}

double MetricLog::take_loss_share() {
  const double sum = std::exchange(loss_, at::Tensor()).item<double>();
  return sum / static_cast<double>(std::exchange(num_steps_, 0));
}

void MetricLog::write(const StepNumbers& numbers, double loss) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds =
      std::chrono::duration<double>(now - std::exchange(last_record_, now)).count();
  const double tokens_per_second = static_cast<double>(std::exchange(num_tokens_, 0)) / seconds;
  nlohmann::ordered_json record = {{"step", numbers.step},
                                   {"epoch", numbers.epoch},
                                   {"loss", loss},
                                   {"grad_norm", numbers.grad_norm},
                                   {"learning_rate", numbers.learning_rate},
                                   {"tokens_per_second", tokens_per_second},
                                   {"peak_memory_bytes", numbers.peak_memory_bytes},
                                   {"num_input_tokens_seen", num_tokens_seen_}};
  if (writes_) {
    log_info("step {}/{}  loss {:.4f}  grad_norm {:.4f}  lr {:.3e}  {:.0f} tokens/s", numbers.step,
             numbers.total_steps, loss, numbers.grad_norm, numbers.learning_rate,
             tokens_per_second);
    const auto log = File::open_to_write(file());
    const auto line = record.dump() + "\n";
    log.write_at(log.size(), std::as_bytes(std::span(line)));
  }
  history_.push_back(std::move(record));
}

void MetricLog::restore(nlohmann::ordered_json history, int64_t num_tokens_seen) {
  history_ = std::move(history);
  num_tokens_seen_ = num_tokens_seen;
  if (!writes_) return;
  std::string text;
  for (const auto& record : history_) text += record.dump() + "\n";
  write_file_atomically(file(), text);
}

}  // namespace skein::train
