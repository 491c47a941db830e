// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Sends a run's numbers to the reporters that report_to names: TensorBoard files, W&B folders.
//
// Only the first rank has one. A reporter that cannot write (a full disk) gives one warning and is
// left out from then on: the training goes on. Not thread-safe.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/file.h"
#include "skein/report/hparams.h"

namespace skein::report {

class EventFile;
class WandbRun;

struct ReporterOptions {
  fs::path output;
  std::vector<std::string> report_to;  // tensorboard, wandb, all, none
  std::string run_name;
  std::string config_text;             // the resolved configuration, as YAML
  Hparams hparams;                     // the same, flat
  std::optional<int64_t> resume_step;  // finished steps of the checkpoint that is continued
  Announce announce = [](const auto&) {};
};

class Reporters {
 public:
  // Throws UserError for a name that report_to does not know.
  explicit Reporters(const ReporterOptions& options);
  ~Reporters();
  Reporters(const Reporters&) = delete;
  Reporters& operator=(const Reporters&) = delete;

  // Names as in trainer_log.jsonl: loss becomes train/loss, eval_loss becomes eval/loss.
  void record(int64_t step, const Numbers& values);
  // Markdown, for samples and notes. Shown by TensorBoard alone.
  void text(int64_t step, std::string_view tag, std::string_view text);
  // The run has ended well; not for one that is stopped and will be continued. Also writes
  // training_loss.svg, and of runs with rewards training_reward.svg, from trainer_log.jsonl.
  void finish();

 private:
  void write_plots();

  fs::path output_;
  std::string title_;
  std::unique_ptr<EventFile> tensorboard_;  // empty: not asked for, or given up
  std::unique_ptr<WandbRun> wandb_;
};

// Hugging Face's rule: eval_X → eval/X, test_X → test/X, X → train/X.
std::string reporter_name(std::string_view name);

}  // namespace skein::report
