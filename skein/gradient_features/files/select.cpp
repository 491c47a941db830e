// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/stop_signals.h"
#include "skein/gradient_features/files/data_files.h"
#include "skein/gradient_features/files/histogram.h"
#include "skein/gradient_features/files/line_index.h"
#include "skein/gradient_features/files/new_file.h"
#include "skein/gradient_features/files/score_file.h"

namespace skein::gradient_features {
namespace {

// Text in pieces that are worth a system call.
class TextFile {
 public:
  explicit TextFile(const fs::path& path) : file_(path) {}

  void add(std::string_view text) {
    waiting_ += text;
    if (waiting_.size() >= kPieceBytes) flush();
  }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  static constexpr size_t kPieceBytes = size_t{1} << 20;

  void flush() {
    end_if_stop_waits();
    file_.file().write_at(written_, std::as_bytes(std::span(waiting_)));
    written_ += waiting_.size();
    waiting_.clear();
  }

  NewFile file_;
  std::string waiting_;
  uint64_t written_ = 0;
};

struct Sample {
  float score = 0;
  uint32_t file = 0;
  int64_t index = 0;
};

// The samples of one list of scores, whose lines are those of these files, one after the other.
void add_samples(const fs::path& path, std::span<const LineIndex> files, uint32_t first_file,
                 std::vector<Sample>& samples) {
  const auto scores = read_scores(path);
  require_data_files(scores.data_files, files, fmt::format("{} is about", path.string()));
  const auto count = static_cast<int64_t>(scores.values.size());
  int64_t lines = 0;
  for (const auto& file : files) lines += file.count();
  if (scores.max_samples > 0 ? count > lines : count != lines) {
    const auto which = files.size() == 1 ? files.front().path().string()
                                         : fmt::format("the {} train files", files.size());
    throw UserError(
        fmt::format("{} has scores of {}, and {} has {}: are the files in the same order?",
                    path.string(), counted(static_cast<uint64_t>(count), "sample"), which,
                    counted(static_cast<uint64_t>(lines), "row")));
  }
  size_t next = 0;
  for (const auto& file : files) {
    for (int64_t i = 0; i < file.count() && next < scores.values.size(); ++i) {
      samples.push_back({scores.values[next++], first_file, i});
    }
    ++first_file;
  }
}

std::vector<LineIndex> open_lines(const std::vector<fs::path>& paths) {
  std::vector<LineIndex> files;
  for (const auto& path : paths) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      throw UserError(fmt::format("--train-files: {} is a folder: name its files, in their order",
                                  shown(path.string())));
    }
    files.emplace_back(path);
    files.back().require_lines();
  }
  return files;
}

// Best first.
std::vector<Sample> sorted_samples(const SelectOptions& options,
                                   const std::vector<LineIndex>& files) {
  const bool is_one = options.scores.size() == 1;
  if (files.empty() || (!is_one && options.scores.size() != files.size())) {
    throw UserError(fmt::format(
        "{} files of scores and {} train files: give one of each, or one file of scores with all "
        "files of its data, in their order",
        options.scores.size(), files.size()));
  }
  std::vector<Sample> samples;
  for (size_t i = 0; i < options.scores.size(); ++i) {
    add_samples(options.scores[i], is_one ? std::span(files) : std::span(files).subspan(i, 1),
                static_cast<uint32_t>(i), samples);
  }
  std::ranges::stable_sort(samples, std::greater(), &Sample::score);
  return samples;
}

// Whoever chooses from a choice, into the same folder, would lose what was chosen from.
void refuse_own_inputs(const SelectOptions& options, const std::vector<fs::path>& outputs) {
  for (const auto& output : outputs) {
    for (const auto* inputs : {&options.train_files, &options.scores}) {
      for (const auto& input : *inputs) {
        std::error_code error;
        if (!fs::equivalent(input, output, error) || error) continue;
        throw UserError(
            fmt::format("{} would be written over {}, which is read: give another --out",
                        output.string(), shown(input.string())));
      }
    }
  }
}

int64_t wanted(const Top& top, int64_t samples) {
  if (top.share == 0) return top.count;
  // 29 % of 100 is 28.999…
  const auto count = static_cast<int64_t>(top.share * static_cast<double>(samples) + 1e-9);
  if (count > 0) return count;
  throw UserError(fmt::format("--top {:g}% of {} is no sample at all: give a number",
                              top.share * 100, counted(static_cast<uint64_t>(samples), "sample")));
}

// As a spreadsheet reads it.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

void write_table(const fs::path& path, const std::vector<Sample>& samples,
                 const std::vector<fs::path>& names) {
  TextFile file(path);
  file.add("file name, index, score\n");
  for (const auto& [score, place, index] : samples) {
    file.add(fmt::format("{}, {}, {:.6f}\n", csv_field(names[place].string()), index, score));
  }
  file.commit();
}

void write_lines(const fs::path& path, std::span<const Sample> samples,
                 const std::vector<LineIndex>& files) {
  TextFile file(path);
  for (const auto& sample : samples) {
    file.add(files[sample.file].read(sample.index));
    file.add("\n");
  }
  file.commit();
}

void write_histogram(const fs::path& path, const std::vector<Sample>& samples, float cut,
                     int64_t selected) {
  std::vector<float> scores;
  for (const auto& sample : samples) scores.push_back(sample.score);
  const auto title = fmt::format("{} of {} samples selected", shown_count(selected),
                                 shown_count(static_cast<int64_t>(samples.size())));
  write_file_atomically(path, histogram_svg(scores, cut, title));
}

[[noreturn]] void refuse_top(const std::string& text) {
  throw UserError(fmt::format("--top is '{}', expected a share (5%) or a number of samples (100)",
                              shown(text)));
}

[[noreturn]] void refuse_fraction(const std::string& text, double value) {
  throw UserError(fmt::format(
      "--top is '{}', expected a share (5%) or a number of samples (100): for {:g} % of "
      "them type --top {:g}%",
      shown(text), value * 100, value * 100));
}

}  // namespace

Top parse_top(const std::string& text) {
  const bool is_share = text.ends_with('%');
  const auto digits = text.substr(0, text.size() - (is_share ? 1 : 0));
  double value = 0;
  const auto* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end || !(value > 0)) refuse_top(text);
  if (is_share) {
    if (value > 100) refuse_top(text);
    return {.share = value / 100};
  }
  if (value < 1) refuse_fraction(text, value);
  if (value != std::floor(value) || value > 1e15) refuse_top(text);
  return {.count = static_cast<int64_t>(value)};
}

std::string top_file_name(const Top& top) {
  return top.share > 0 ? fmt::format("top_p{}.jsonl", top.share)
                       : fmt::format("top_num{}.jsonl", top.count);
}

std::vector<fs::path> selected_files(const SelectOptions& options) {
  return {options.out / "sorted.csv", options.out / top_file_name(options.top),
          options.out / "scores.svg"};
}

SelectSummary select(const SelectOptions& options) {
  const auto files = open_lines(options.train_files);
  const auto samples = sorted_samples(options, files);
  const auto count = static_cast<int64_t>(samples.size());
  const auto with_score = std::ranges::count_if(
      samples, [](const Sample& sample) { return std::isfinite(sample.score); });
  const int64_t asked = wanted(options.top, count);
  SelectSummary summary{.num_samples = count,
                        .num_asked = asked,
                        .num_selected = std::min<int64_t>(asked, with_score),
                        .files = selected_files(options)};
  if (summary.num_selected == 0) throw UserError("no sample has a score: all were skipped");
  const auto selected = std::span(samples).first(static_cast<size_t>(summary.num_selected));
  summary.lowest = selected.back().score;
  refuse_own_inputs(options, summary.files);
  make_directories(options.out);
  for (const auto& file : summary.files) sweep_temporaries_of(file);
  write_table(summary.files[0], samples, options.train_files);
  write_lines(summary.files[1], selected, files);
  write_histogram(summary.files[2], samples, summary.lowest, summary.num_selected);
  return summary;
}

}  // namespace skein::gradient_features
