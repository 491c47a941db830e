// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/completion_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "skein/core/error.h"
#include "skein/core/json.h"
#include "skein/core/log.h"

namespace skein::train {
namespace {

using nlohmann::ordered_json;

constexpr size_t kPerStep = 16;  // completions that are written down
constexpr size_t kShown = 4;     // of them, in TensorBoard
constexpr size_t kShownBytes = 2000;

// The step of a line that this wrote; anything else is of no step.
int64_t step_of(std::string_view line) {
  const auto json = json_if_valid(line);
  if (!json || !json->contains("step")) return INT64_MAX;
  return whole_number(json->at("step")).value_or(INT64_MAX);
}

// In a cell of a table of Markdown.
std::string cell(std::string_view text) {
  std::string safe;
  for (const char letter : text.substr(0, kShownBytes)) {
    switch (letter) {
      case '\n':
        safe += "<br>";
        break;
      case '|':
        safe += "\\|";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      default:
        safe += letter;
    }
  }
  return safe;
}

std::string table(const CompletionLog::Step& step) {
  std::string text = "| prompt | completion | reward |\n| --- | --- | --- |\n";
  for (size_t i = 0; i < std::min(step.samples.size(), kShown); ++i) {
    const auto& sample = step.samples[i];
    text += fmt::format("| {} | {} | {:.4g} |\n",
                        cell(step.prompts.texts[static_cast<size_t>(sample.prompt)]),
                        cell(sample.text), step.verdict.totals[i]);
  }
  return text;
}

}  // namespace

void CompletionLog::keep_until(int64_t step) {
  if (options_.file.empty() || !fs::exists(options_.file)) return;
  const auto text = read_file(options_.file, UINT64_MAX);
  std::string kept;
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = rest.find('\n');
    if (end == std::string_view::npos) break;  // a line that a crash has cut
    const auto line = rest.substr(0, end);
    if (step_of(line) <= step) kept.append(line).append("\n");
    rest.remove_prefix(end + 1);
  }
  if (kept != text) write_file_atomically(options_.file, kept);
}

void CompletionLog::add(const Step& step, bool shows) {
  if (options_.file.empty()) return;
  if (shows && options_.show) options_.show(step.step, table(step));
  std::string lines;
  for (size_t i = 0; i < std::min(step.samples.size(), kPerStep); ++i) {
    const auto& sample = step.samples[i];
    ordered_json line{{"step", step.step},
                      {"prompt", step.prompts.texts[static_cast<size_t>(sample.prompt)]},
                      {"completion", sample.text},
                      {"reward", step.verdict.totals[i]}};
    for (size_t k = 0; k < step.names.size(); ++k) {
      line["rewards"][step.names[k]] = step.verdict.rewards[k][i];  // null: nothing said
    }
    if (!step.advantages.empty()) line["advantage"] = step.advantages[i];
    line["num_tokens"] = sample.num_own();
    if (sample.turn > 0) line["turn"] = sample.turn;
    line["finished"] = sample.finished;
    lines += line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  }
  write(lines);
}

void CompletionLog::write(const std::string& lines) try {
  if (options_.fence) options_.fence();
  const auto file = File::open_or_create(options_.file);
  file.write_at(file.size(), std::as_bytes(std::span(lines)));
} catch (const IoError& error) {
  if (!warned_) log_warning("{}; the run goes on without writing completions down", error.what());
  warned_ = true;
}

}  // namespace skein::train
