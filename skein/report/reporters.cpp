// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/reporters.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/report/curve_plot.h"
#include "skein/report/host.h"
#include "skein/report/record_log.h"
#include "skein/report/tensorboard.h"
#include "skein/report/wandb.h"

namespace skein::report {
namespace {

void check_names(const std::vector<std::string>& names) {
  for (const auto& name : names) {
    if (name == "tensorboard" || name == "wandb" || name == "all" || name == "none") continue;
    throw UserError(fmt::format(
        "report_to: there is no reporter '{}'; known: tensorboard, wandb, all, none", name));
  }
}

bool asks_for(const std::vector<std::string>& names, std::string_view reporter) {
  return std::any_of(names.begin(), names.end(),
                     [&](const auto& name) { return name == reporter || name == "all"; });
}

// Runs `use` on a reporter that is there; one that fails is left out from then on.
template <typename Reporter, typename Use>
void attempt(std::unique_ptr<Reporter>& reporter, std::string_view name, const Use& use) {
  if (!reporter) return;
  try {
    use(*reporter);
  } catch (const IoError& error) {
    log_warning("{}: {}; nothing more is reported there, the run goes on", name, error.what());
    reporter.reset();
  }
}

template <typename Make>
auto start(std::string_view name, const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (const IoError& error) {
    log_warning("{}: {}; nothing is reported there, the run goes on", name, error.what());
    return nullptr;
  }
}

std::unique_ptr<EventFile> start_tensorboard(const ReporterOptions& options) {
  const fs::path folder =
      environment("TENSORBOARD_LOGGING_DIR", (options.output / "runs").string());
  auto file = std::make_unique<EventFile>(folder, options.resume_step, options.announce);
  file->start_hparams(options.hparams, {"train/loss", "eval/loss"});
  file->text(0, "config", fmt::format("```yaml\n{}\n```", options.config_text));
  return file;
}

Numbers with_reporter_names(const Numbers& values) {
  Numbers named;
  for (const auto& [name, value] : values) named.emplace_back(reporter_name(name), value);
  return named;
}

// `wandb sync` of a continued run replaces what it had uploaded before, so the new file must hold
// the run from its first step.
void replay(WandbRun& run, const fs::path& trainer_log, int64_t last_step) {
  if (!file_exists(trainer_log)) return;
  each_record(trainer_log, [&](int64_t step, const nlohmann::ordered_json& record) {
    if (step <= last_step) run.history(step, with_reporter_names(numbers_of(record)));
  });
}

std::unique_ptr<WandbRun> start_wandb(const ReporterOptions& options) {
  auto run = std::make_unique<WandbRun>(WandbOptions{
      options.output, options.run_name, options.hparams, options.resume_step, options.announce});
  if (options.resume_step) replay(*run, options.output / kRecordLogName, *options.resume_step);
  log_info("W&B offline run; to upload it: wandb sync {}", run->folder().string());
  return run;
}

}  // namespace

std::string reporter_name(std::string_view name) {
  for (const std::string_view prefix : {"eval_", "test_"}) {
    if (name.starts_with(prefix))
      return fmt::format("{}/{}", prefix.substr(0, 4), name.substr(prefix.size()));
  }
  return fmt::format("train/{}", name);
}

Reporters::Reporters(const ReporterOptions& options)
    : output_(options.output),
      title_(options.run_name.empty() ? options.output.filename().string() : options.run_name) {
  check_names(options.report_to);
  if (asks_for(options.report_to, "tensorboard"))
    tensorboard_ = start("tensorboard", [&] { return start_tensorboard(options); });
  if (asks_for(options.report_to, "wandb") && !wandb_is_disabled())
    wandb_ = start("wandb", [&] { return start_wandb(options); });
}

Reporters::~Reporters() = default;

void Reporters::record(int64_t step, const Numbers& values) {
  const auto named = with_reporter_names(values);
  attempt(tensorboard_, "tensorboard", [&](EventFile& file) { file.scalars(step, named); });
  attempt(wandb_, "wandb", [&](WandbRun& run) { run.history(step, named); });
}

void Reporters::text(int64_t step, std::string_view tag, std::string_view text) {
  attempt(tensorboard_, "tensorboard", [&](EventFile& file) { file.text(step, tag, text); });
}

void Reporters::finish() {
  attempt(tensorboard_, "tensorboard", [](EventFile& file) { file.end_hparams(); });
  attempt(wandb_, "wandb", [](WandbRun& run) { run.finish(); });
  write_plots();
}

void Reporters::write_plots() {
  const auto log = output_ / kRecordLogName;
  if (!file_exists(log)) return;
  for (const std::string name : {"loss", "reward"}) {
    const auto file = fmt::format("training_{}.svg", name);
    try {
      const auto curves = read_curves(log, name);
      const bool is_told = !curves.train.empty() || !curves.eval.empty();
      if (!is_told && name != "loss") continue;
      write_file_atomically(output_ / file, curve_plot_svg(curves, title_));
    } catch (const IoError& error) {
      log_warning("{}: {}", file, error.what());
    }
  }
}

}  // namespace skein::report
