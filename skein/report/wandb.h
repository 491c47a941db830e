// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A W&B run in an offline folder, to be uploaded later by `wandb sync FOLDER`.
//
// Nothing here touches the network. Every record is written at once, so a crash loses nothing that
// was reported. Throws IoError. Not thread-safe. What the folder holds and which variables are
// honoured: docs/logs.md.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "skein/core/file.h"
#include "skein/report/hparams.h"
#include "skein/report/wire.h"

namespace skein::report {

// Hugging Face's name for the axis of all charts; history() adds it.
inline constexpr std::string_view kWandbStepName = "train/global_step";

struct WandbOptions {
  fs::path output;       // the run's folder; WANDB_DIR goes before it
  std::string run_name;  // empty: WANDB_NAME, else W&B invents one
  Hparams config;
  std::optional<int64_t> resume_step;  // continues the run whose id the output folder remembers
  Announce announce;
};

class WandbRun {
 public:
  explicit WandbRun(const WandbOptions& options);

  // Names as W&B shows them (train/loss). Steps must rise: W&B drops a step that goes back.
  void history(int64_t step, const Numbers& values);
  // The run has ended well. Without it W&B takes the run for one that failed.
  void finish();

  const fs::path& folder() const { return folder_; }  // offline-run-DATE-ID

 private:
  void write_run(const WandbOptions& options);
  void write_metrics();
  void write_record(int field, const WireMessage& content);
  void write_chunks(std::string_view record);
  double runtime() const;

  std::string id_;
  fs::path folder_;
  File file_;
  uint64_t size_ = 0;
  int64_t num_records_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Has the user switched W&B off (WANDB_MODE=disabled, WANDB_DISABLED=true)?
bool wandb_is_disabled();

}  // namespace skein::report
