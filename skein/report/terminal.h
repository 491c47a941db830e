// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The progress of a run as tqdm shows it: one live line on a terminal, plain lines elsewhere.
//
//    40%|███████▏          | 12/30 [00:05<00:07,  2.40it/s, loss=3.21, lr=1e-4]
//
// Only the first rank has one. While it lives, log lines of this process are printed above the
// live line. Thread-safe.

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skein::report {

// Shown after the rate, in this order: {"loss", "3.21"}.
using ProgressFields = std::vector<std::pair<std::string, std::string>>;

struct Progress {
  int64_t step = 0;
  int64_t total = 0;
  double elapsed_seconds = 0;
  std::optional<double> steps_per_second;  // none until a step has been timed
  ProgressFields fields;
};

// Never wider than `width` columns: fields go first (from the end), then the bar, then the tail.
std::string render_progress(const Progress& progress, int width);
// `step 12/30 (40%)  loss 3.21  lr 1e-4  [00:05<00:07, 2.40it/s]`
std::string plain_progress(const Progress& progress);
// Columns that UTF-8 text takes on a terminal: Chinese characters take two, combining marks none.
int display_width(std::string_view text);
// tqdm's 00:05 and 1:02:03.
std::string clock_text(double seconds);

// A terminal on stderr that can redraw a line, and nobody has asked for quiet: CI, NO_COLOR and
// TERM=dumb give plain lines.
bool stderr_shows_live_line();

class Terminal {
 public:
  struct Options {
    int64_t total_steps = 0;
    int64_t first_step = 0;  // finished before this start: they do not count for the rate
    bool live = false;       // stderr_shows_live_line(), unless disable_tqdm
  };
  // The world, so that tests can stand in for it.
  struct Device {
    std::function<void(std::string_view)> write;
    std::function<int()> width;
    std::function<double()> seconds;  // of a clock that only runs forward
  };

  explicit Terminal(const Options& options) : Terminal(options, real_device()) {}
  Terminal(const Options& options, Device device);
  ~Terminal();  // ends the live line
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // After every step. Redraws the live line at most ten times a second.
  void update(int64_t step);
  // After every logged step: the fields of the live line from now on, and a plain line in the log.
  void record(int64_t step, ProgressFields fields);
  // Prints a line (with its newline) above the live one.
  void print_above(std::string_view line);

 private:
  static Device real_device();
  void advance(int64_t step);
  std::string live_line();  // with what clears the old one

  Options options_;
  Device device_;
  std::mutex mutex_;
  Progress progress_;
  double start_ = 0;
  double last_draw_ = -1;
  double timed_at_ = 0;      // when the rate was last brought up to date
  double mean_steps_ = 0;    // moving averages of steps and of seconds between updates:
  double mean_seconds_ = 0;  // their ratio is the rate
};

}  // namespace skein::report
