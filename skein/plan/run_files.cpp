// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/run_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "skein/adapter/adapter_config.h"
#include "skein/checkpoint/files/file_layout.h"
#include "skein/checkpoint/files/run_record.h"
#include "skein/config/saved_config.h"
#include "skein/core/error.h"
#include "skein/plan/disk_space.h"
#include "skein/plan/model_texts.h"
#include "skein/text/tokenizer_files.h"

namespace skein::plan {
namespace {

// Besides the tensors and the tokenizer.
constexpr std::string_view kModelFiles[] = {"config.json", adapter::kConfigName,
                                            "generation_config.json"};

// What a run replaces without asking, besides tensors: it must be its own. Where it writes none of
// them, another model's would lie beside its own.
bool is_replaced(std::string_view name) {
  const bool is_runs = std::ranges::count(kRunFiles, name) > 0 && name != "failures.json";
  return is_runs || std::ranges::count(kModelFiles, name) > 0 ||
         std::ranges::count(text::kTokenizerFiles, name) > 0 || name == text::kTemplateFolder;
}

bool is_or_may_be_ours(const fs::path& file) {
  return !fs::exists(file) || config::is_saved_config(read_file(file));
}

void add_reporters(const config::LogConfig& log, std::vector<std::string>& names) {
  const auto asks_for = [&](std::string_view reporter) {
    return std::ranges::any_of(
        log.report_to, [&](const std::string& name) { return name == reporter || name == "all"; });
  };
  if (asks_for("tensorboard")) names.emplace_back("runs/events.out.tfevents…");
  if (!asks_for("wandb")) return;
  names.insert(names.end(),
               {"wandb/offline-run-…/", "wandb/latest-run", "wandb/wandb-resume.json"});
}

// The final model, and what a checkpoint holds besides the optimizer.
void add_model(const RunFilesQuestion& question, std::vector<std::string>& names) {
  const auto& config = question.config;
  const bool lora = config.finetune.finetuning_type == config::FinetuningType::kLora;
  names.emplace_back(lora ? adapter::kConfigName : "config.json");
  if (question.shapes == nullptr) {
    const std::string stem = lora ? checkpoint::kAdapterStem : checkpoint::kModelStem;
    names.push_back(stem + ".safetensors");
    return;
  }
  const auto layout = checkpoint_files(*question.shapes, config, question.dtype).model;
  for (const auto& file : layout.files) names.push_back(file.name);
  if (!layout.index_name.empty()) names.push_back(layout.index_name);
  for (const auto& [name, text] : texts_beside_weights(config).files) names.push_back(name);
}

}  // namespace

std::vector<std::string> files_of_run(const RunFilesQuestion& question, const fs::path& output) {
  std::vector<std::string> names = {std::string(checkpoint::kRecordName), config_name(output),
                                    "logs/training.log", "logs/rank-K.log"};
  for (const std::string_view name : kRunFiles) {
    if (name == "failures.json" || (name == "latest" && !question.saves)) continue;
    const bool of_online = std::ranges::count(kOnlineFiles, name) > 0;
    if (of_online && !config::is_online(question.config.stage)) continue;
    names.emplace_back(name);
  }
  if (question.saves) names.emplace_back("checkpoint-STEP/");
  add_reporters(question.config.log, names);
  add_model(question, names);
  return names;
}

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
