// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/run_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/checkpoint/files/run_record.h"
#include "skein/config/saved_config.h"
#include "skein/core/error.h"
#include "skein/text/tokenizer_files.h"

namespace skein::plan {
namespace {

// What a run replaces without asking, besides the parts of a model: it must be its own. Where it
// writes none of them, another model's would lie beside its own.
constexpr std::string_view kReplacedFiles[] = {
    "trainer_log.jsonl", "trainer_state.json",  "training_loss.svg",     "latest",
    "config.json",       "adapter_config.json", "generation_config.json"};

bool is_replaced(std::string_view name) {
  return std::ranges::count(kReplacedFiles, name) > 0 ||
         std::ranges::count(text::kTokenizerFiles, name) > 0 || name == text::kTemplateFolder;
}

bool is_or_may_be_ours(const fs::path& file) {
  return !fs::exists(file) || config::is_saved_config(read_file(file));
}

}  // namespace

std::string config_name(const fs::path& output) {
  for (const char* name : {"config.yaml", "skein-config.yaml"}) {
    if (is_or_may_be_ours(output / name)) return name;
  }
  throw UserError(fmt::format(
      "{0}/config.yaml and {0}/skein-config.yaml were not written by skein, which would replace "
      "one of them with the configuration of this run: move one away, or give another output_dir",
      output.string()));
}

bool is_run_folder(const std::optional<checkpoint::RunRecord>& record,
                   const std::vector<checkpoint::SurveyedCheckpoint>& survey) {
  return record || std::ranges::count(survey, checkpoint::Relation::kOwn,
                                      &checkpoint::SurveyedCheckpoint::relation) > 0;
}

void check_foreign_files(const fs::path& output) {
  config_name(output);  // throws
  const auto record = checkpoint::read_record(output);
  if (is_run_folder(record, checkpoint::survey(output, record))) return;
  std::vector<std::string> foreign;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(output, absent)) {
    auto name = entry.path().filename().string();
    if (is_replaced(name) || checkpoint::is_weights_name(name)) foreign.push_back(name);
  }
  std::ranges::sort(foreign);
  if (foreign.empty()) return;
  throw UserError(fmt::format(
      "output_dir: {} holds {}, which no run of skein has written and this one would replace: give "
      "another output_dir, or move them away",
      output.string(), fmt::join(foreign, ", ")));
}

}  // namespace skein::plan
