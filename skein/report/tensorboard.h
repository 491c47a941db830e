// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A TensorBoard event file: scalars, text and hyper-parameters.
//
// Every call is one write to the file, so a crash loses nothing that was reported. Throws IoError.
// Not thread-safe. What the file holds: docs/logs.md.

#include <cstdint>
#include <optional>
#include <string_view>

#include "skein/core/file.h"
#include "skein/report/hparams.h"
#include "skein/report/wire.h"

namespace skein::report {

class EventFile {
 public:
  // Creates FOLDER/events.out.tfevents.<time>.<host>.<pid>.<n>. A run that continues after
  // `resume_step` makes a new file, which tells readers to drop the old ones' later steps.
  EventFile(const fs::path& folder, std::optional<int64_t> resume_step, const Announce& announce);

  void scalars(int64_t step, const Numbers& values);
  // Shown as Markdown.
  void text(int64_t step, std::string_view tag, std::string_view markdown);
  // Once, before the first scalar: the row of this run in the HPARAMS tab, and the scalars there.
  void start_hparams(const Hparams& hparams, const std::vector<std::string>& metric_tags);
  // Once, when the run has ended well. TensorBoard keeps the first end that it reads, so a run that
  // will be continued must not have one.
  void end_hparams();

 private:
  void hparams_value(std::string_view tag, const WireMessage& content);
  void write_event(int64_t step, int field, const WireMessage& content);
  void write_record(const WireMessage& event);

  File file_;
  uint64_t size_ = 0;
};

}  // namespace skein::report
