// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/refusals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "skein/checkpoint/files/tensor_match.h"
#include "skein/config/batch_plan.h"
#include "skein/config/online_values.h"
#include "skein/config/output_folder.h"
#include "skein/config/syntax/node.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/foreign_text.h"
#include "skein/core/log.h"
#include "skein/data/prepare.h"
#include "skein/data/rows/open_encoder.h"
#include "skein/data/run_samples.h"
#include "skein/data/sample_plan.h"
#include "skein/plan/byte_text.h"
#include "skein/plan/continuation.h"
#include "skein/plan/finetune.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/online.h"
#include "skein/plan/preferences.h"
#include "skein/plan/run_data.h"
#include "skein/plan/run_files.h"
#include "skein/plan/run_model.h"
#include "skein/plan/steps/rollout_plan.h"
#include "skein/plan/steps/run_plan.h"
#include "skein/text/chat_template.h"
#include "skein/text/text_codec.h"
#include "skein/text/tokenizer_files.h"

namespace skein::plan {
namespace {

// Rotary positions have no last one; learned ones do. Of rows only preparation tells the length:
// cutoff_len may be that of packs, or more than any row needs.
void check_block_size(const config::Resolved& resolved, const Dimensions& model) {
  const auto size = resolved.config.data.block_size;
  if (trains_on_rows(resolved.config)) return;
  if (!model.positions_are_learned || size <= model.positions) return;
  throw UserError(fmt::format("{0} is {1}, but the model knows {2} positions: lower {0}",
                              length_key(resolved), size, model.positions));
}

int64_t longest_document(const data::ChosenSamples& samples) {
  int64_t longest = 0;
  std::vector<int64_t> ends;
  for (int64_t i = 0; i < samples.set.count(); ++i) {
    ends.clear();
    samples.source->append_ends(samples.set.sample(i), ends);
    int64_t begin = 0;
    for (const int64_t end : ends) longest = std::max(longest, end - std::exchange(begin, end));
  }
  return longest;
}

void check_offload(const config::Resolved& resolved) {
  const auto& keys = resolved.config.offload;
  const bool offloads_parameters = keys.offload_param != config::Offload::kNone;
  const auto strategy = resolved.config.parallel.distributed_strategy;
  if (offloads_parameters && strategy != config::Strategy::kZero3 &&
      strategy != config::Strategy::kAuto) {
    config::refuse(resolved.origin_of("offload_param"),
                   "offload_param is for the shards of zero3: give distributed_strategy=zero3, or "
                   "offload_optimizer alone");
  }
  if (keys.offload_ratio == 1) return;
  if (keys.offload_optimizer == config::Offload::kNone && !offloads_parameters) {
    config::refuse(resolved.origin_of("offload_ratio"),
                   "offload_ratio is the share that offload_optimizer moves: give "
                   "offload_optimizer=cpu too, or leave it out");
  }
}

void check_nvme(const config::Resolved& resolved) {
  const auto& keys = resolved.config.offload;
  const bool parameters = keys.offload_param == config::Offload::kNvme;
  if (!parameters && keys.offload_optimizer != config::Offload::kNvme) return;
  const auto* key = parameters ? "offload_param" : "offload_optimizer";
  if (keys.nvme_path.empty()) {
    config::refuse(resolved.origin_of(key),
                   fmt::format("{}: nvme needs a folder on a local disk: give nvme_path=FOLDER, or "
                               "{}=cpu",
                               key, key));
  }
  // Its first magnitudes are computed from blocks that come and go, while the shards are set.
  if (parameters && resolved.config.finetune.use_dora) {
    config::refuse(resolved.origin_of(key),
                   "offload_param: nvme does not go with use_dora: give offload_param=cpu");
  }
}

// Keys that contradict each other or the stage, wherever they are carried out.
void check_keys(const config::Resolved& resolved) {
  check_preference_keys(resolved);
  check_online_keys(resolved);
  check_offload(resolved);
  check_nvme(resolved);
}

void check_states(const config::Resolved& resolved, const Place& place) {
  const auto dtype = working_dtype(resolved.config.model.dtype, place);
  if (dtype == DType::kF16 && config::has_critic(resolved.config)) {
    config::refuse(
        resolved.origin_of("dtype"),
        "a critic has no loss scale of its own, without which float16 loses its small "
        "gradients: give dtype=bfloat16 or float32, or stage: grpo, which has no critic");
  }
  const bool is_narrow = resolved.config.optimizer.optim == config::OptimizerKind::kAdamW8bit;
  if (!is_narrow || dtype != DType::kF64) return;
  config::refuse(resolved.origin_of("optim"),
                 "optim: adamw_8bit computes in float32, and dtype is float64: give another dtype, "
                 "or optim=adamw_torch");
}

void check_backend(const config::ParallelConfig& parallel, const Place& place) {
  if (backend(parallel, place.device) != "nccl") return;
  if (!place.has_nccl) {
    throw UserError(
        "this build has no NCCL: build with `make cuda` (CMake preset cuda), or use the gloo "
        "backend");
  }
  if (!place.on_gpus()) {
    throw UserError("the nccl backend needs a GPU for every rank: use the gloo backend on CPU");
  }
}

checkpoint::ModelFiles open_weights(const fs::path& folder) try {
  return checkpoint::open_model_files(folder);
} catch (const UserError& error) {
  throw UserError(
      fmt::format("{}; train_from_scratch=true starts from random weights", error.what()));
}

void check_weights(const fs::path& folder, const HfConfig& model) {
  checkpoint::LoadOptions options{.tied_head = model.dimensions().tied_head};
  for (const auto& parameter : model.shapes().parameters) {
    options.tensors.push_back(
        {.name = parameter.name, .shape = {parameter.shape.begin(), parameter.shape.end()}});
  }
  checkpoint::require_match(open_weights(folder), options);
}

// Rows are read with a tokenizer; a template that is broken, or whose tokens it lacks, is known
// before they are.
void check_rows(const config::RunConfig& config, std::optional<int64_t> vocabulary) {
  const auto& rows = config.rows;
  if (!vocabulary) {
    // A chat_template may be the name of one of the folder's.
    if (rows.chat_format.empty()) return;
    text::ChatTemplate::find({.folder = {}, .file = rows.chat_template, .name = rows.chat_format});
    return;
  }
  const auto tokens = open_tokens(config);
  const bool is_asked_for = !rows.chat_format.empty() || !rows.chat_template.empty();
  if (is_asked_for && !tokens.audit.missing.empty()) {
    const auto& missing = tokens.audit.missing_tokens;
    const auto wanted = tokens.encoder.vocab_size + std::ssize(missing);
    const bool adapts = config.finetune.finetuning_type == config::FinetuningType::kLora;
    // What new_special_tokens and resize_vocab would be refused with.
    if (adapts && !missing.empty() && wanted > *vocabulary) {
      throw UserError(
          fmt::format("{} ends turns with {}, which the tokenizer does not have: give a template "
                      "that fits it; {}",
                      rows.chat_format.empty() ? rows.chat_template : rows.chat_format,
                      fmt::join(missing, " and "), no_rows_message(wanted - *vocabulary, wanted)));
    }
    throw UserError(tokens.audit.missing);
  }
  if (tokens.encoder.vocab_size <= *vocabulary) return;  // no tokenizer is read twice
  data::require_vocabulary(*text::open_codec(config.model), *vocabulary);
}

void check_sources(const config::RunConfig& config, std::optional<int64_t> vocabulary) {
  const auto train = sources_of(config, data::Split::kTrain);
  const auto eval = sources_of(config, data::Split::kEval);
  if (trains_on_rows(config)) return check_rows(config, vocabulary);
  if (train.holds_text() || eval.holds_text()) check_byte_text(config.model);
  if (!vocabulary || train.files.empty() || train.kind != data::SourceKind::kText) return;
  data::require_vocabulary(*text::open_codec(config.model), *vocabulary);
}

// What a run saves of the tokenizer is named in every manifest.
void check_tokenizer_names(const config::ModelConfig& model) {
  const auto path = data::tokenizer_path(model);
  if (model.tokenizer_name_or_path == "bytes" || !fs::exists(path)) return;
  text::tokenizer_files_in(text::tokenizer_place(path).folder);  // throws
}

// Of a run with a model. Returns the checkpoint that it will continue.
std::optional<fs::path> check_model_and_data(const config::Resolved& resolved) {
  const auto& config = resolved.config;
  const auto model = read_run_model(config);
  const auto dimensions = model.dimensions();
  check_block_size(resolved, dimensions);
  check_sources(config, dimensions.vocabulary);
  check_tokenizer_names(config.model);
  check_finetune_keys(resolved);
  auto checkpoint = checkpoint_to_continue(config.checkpoint);
  if (!checkpoint) check_adapter(config, model);
  tuned_model(config, model);
  check_reference(resolved, model);
  check_online_models(resolved, model);
  const bool compares_with_base =
      reference_of(config) == Reference::kCopy && config.preference.ref_model.empty();
  const bool reads_base = config.finetune.finetuning_type == config::FinetuningType::kLora ||
                          (!config.model.train_from_scratch && (!checkpoint || compares_with_base));
  if (reads_base) {
    // What lies there has the rows from before resize_vocab.
    check_weights(config.model.model_name_or_path, read_hf_config(config.model.model_name_or_path));
  }
  return checkpoint;
}

void check_without_model(const config::Resolved& resolved) {
  check_sources(resolved.config, std::nullopt);
  check_finetune_keys(resolved);
}

// As make_directories() would fail. Only trying tells (/proc, a network's rules): beside where the
// first folder would be made, another is, and removed.
void try_to_make(const fs::path& folder) {
  std::error_code ignored;
  auto existing = fs::absolute(folder);
  while (!fs::exists(fs::symlink_status(existing, ignored)) && existing.has_relative_path()) {
    existing = existing.parent_path();
  }
  auto name = (existing / ".skein-XXXXXX").string();
  if (::mkdtemp(name.data()) != nullptr) {
    fs::remove(name, ignored);
    return;
  }
  if (errno == ENOTDIR) errno = EEXIST;  // a file is in the way
  throw_errno("cannot create folder " + folder.string());
}

}  // namespace

void check_model_given(const config::RunConfig& config, const char* command) {
  const auto need = [&](bool given, const char* what) {
    if (!given) throw UserError(fmt::format("{} needs {}", command, what));
  };
  need(!config.model.model_name_or_path.empty(),
       "model_name_or_path=FOLDER, the folder with the model's config.json");
  need(!config.data.train_file.empty() || !config.data.train_file_dir.empty(),
       "train_file=FILE (or train_file_dir=FOLDER), the text to train on");
}

void check_given(const config::RunConfig& config) {
  check_model_given(config, "skein train");
  if (!config::output_folder(config.checkpoint).empty()) return;
  throw UserError("skein train needs output_dir=FOLDER (or experiment_name=NAME), where to save");
}

void check_configuration(const config::Resolved& resolved) {
  check_supported(resolved);
  if (!resolved.config.model.model_name_or_path.empty()) {
    check_model_and_data(resolved);
    return;
  }
  check_without_model(resolved);
}

void check_nvme_folder(const config::Resolved& resolved) {
  const auto& keys = resolved.config.offload;
  if (!offload_of(keys).uses_disk()) return;
  std::error_code ignored;
  if (!fs::is_directory(keys.nvme_path, ignored)) {
    config::refuse(resolved.origin_of("nvme_path"),
                   fmt::format("nvme_path: {} is not a folder: make it, on every node, or name one "
                               "on a local disk",
                               shown(keys.nvme_path)));
  }
  if (::access(keys.nvme_path.c_str(), W_OK | X_OK) != 0) {
    config::refuse(resolved.origin_of("nvme_path"),
                   fmt::format("nvme_path: files cannot be made in {}: choose another",
                               shown(keys.nvme_path)));
  }
}

void check_supported(const config::Resolved& resolved) {
  check_keys(resolved);
  check_nvme_folder(resolved);
}

std::optional<fs::path> check_run(const config::Resolved& resolved, int ranks, const Place& place) {
  check_supported(resolved);
  return check_run_elsewhere(resolved, ranks, place);
}

std::optional<fs::path> check_run_elsewhere(const config::Resolved& resolved, int ranks,
                                            const Place& place) {
  const auto& config = resolved.config;
  const auto batches = config::plan_batches(resolved, ranks);
  samples_per_step(config, batches);  // throws
  check_keys(resolved);
  check_backend(config.parallel, place);
  check_states(resolved, place);
  std::error_code ignored;
  const auto output = config::output_folder(config.checkpoint);
  if (fs::is_directory(output, ignored)) check_foreign_files(output);
  if (config.model.model_name_or_path.empty()) {
    check_without_model(resolved);
    return checkpoint_to_continue(config.checkpoint);
  }
  auto checkpoint = check_model_and_data(resolved);
  const auto model = read_run_model(config);
  check_cache(resolved, model.dimensions(), working_dtype(config.model.dtype, place));
  if (checkpoint) {
    check_continuation(*checkpoint, model, identity_before_data(resolved, batches, model));
    check_saved_dtype(*checkpoint, config, model, working_dtype(config.model.dtype, place));
  }
  return checkpoint;
}

void check_prepared(const config::Resolved& resolved, int ranks) {
  const auto& config = resolved.config;
  const auto batches = config::plan_batches(resolved, ranks);
  const auto model = read_run_model(config);
  const auto samples = open_samples(config, model);
  if (trains_on_rows(config)) {
    auto longest = longest_document(samples.train);
    if (samples.eval) longest = std::max(longest, longest_document(*samples.eval));
    const auto warning = check_longest_row(resolved, model.dimensions(), longest);
    if (!warning.empty()) log_warning("{}", warning);
  }
  const data::SampleOrder order{.global_batch = samples_per_step(config, batches),
                                .drop_last = config.data.dataloader_drop_last};
  const auto run = plan_run(config, data::plan_of(samples, order).epoch_steps());
  check_warmup(resolved, run.total_steps);
  const auto checkpoint = checkpoint_to_continue(config.checkpoint);
  if (!checkpoint) return;
  auto identity = identity_before_data(resolved, batches, model);
  identity.data_digest = samples.digest;
  check_continuation(*checkpoint, model, identity);
}

namespace {

// With the longest answer behind it.
std::string check_longest_prompt(const config::RolloutConfig& rollout, const Dimensions& model,
                                 int64_t longest) {
  const auto most = model.usable_positions();
  const auto text = fmt::format("a prompt has {} tokens and its answer up to {}", longest,
                                rollout.max_completion_length);
  // While it is written a text is turned by the length that it may reach, in training by its own.
  if (model.plain_positions > 0 &&
      longest + rollout.max_completion_length > model.plain_positions) {
    throw UserError(fmt::format(
        "{}, but beyond {} tokens the model's RoPE (rope_scaling in config.json) turns by the "
        "length of the whole text, which nobody knows while it is written: lower "
        "max_prompt_length or max_completion_length",
        text, model.plain_positions));
  }
  if (longest + rollout.max_completion_length <= most) return "";
  if (model.positions_are_learned) {
    throw UserError(fmt::format(
        "{}, but the model knows {} positions: lower max_prompt_length or max_completion_length",
        text, most));
  }
  return fmt::format(
      "{}, but the model's config.json is made for {} positions: it learns positions that other "
      "programs will not give it; max_prompt_length and max_completion_length lower them",
      text, most);
}

}  // namespace

std::string check_longest_row(const config::Resolved& resolved, const Dimensions& model,
                              int64_t longest) {
  if (config::is_online(resolved.config.stage)) {
    return check_longest_prompt(resolved.config.rollout, model, longest);
  }
  if (longest <= model.usable_positions()) return "";
  const auto key = length_key(resolved);
  const auto most = model.usable_positions();
  if (model.positions_are_learned) {
    throw UserError(fmt::format(
        "a row has {} tokens, but the model knows {} positions: give {}={}, which cuts longer rows",
        longest, most, key, most));
  }
  return fmt::format(
      "a row has {} tokens, but the model's config.json is made for {} positions: it learns "
      "positions that other programs will not give it; {}={} cuts longer rows",
      longest, most, key, most);
}

void check_folders(const config::RunConfig& config) {
  std::error_code ignored;
  const auto output = config::output_folder(config.checkpoint);
  if (fs::is_directory(output, ignored)) {
    if (::access(output.c_str(), W_OK) != 0) {
      throw_errno(fmt::format("cannot open {} to write", (output / ".skein-lease").string()));
    }
  } else if (!output.empty()) {
    try_to_make(output);
  }
  const auto sources = sources_of(config, data::Split::kTrain);
  if (sources.files.empty() || sources.kind == data::SourceKind::kTokens) return;
  const auto cache = data::cache_folder(config.data);
  if (fs::is_directory(cache, ignored)) return;  // it may hold all that is needed
  data::explain_storing([&] { try_to_make(cache); });
}

namespace {

void warn_of_types(const config::Resolved& resolved, const Place& place,
                   std::vector<std::string>& warnings) {
  const auto& config = resolved.config;
  const bool emulates = place.on_gpus() && !place.has_bfloat16;
  if (emulates && config.model.dtype == DType::kBF16) {
    warnings.push_back(fmt::format(
        "{}: a GPU of this run has no bfloat16 arithmetic and will emulate it; {}",
        config.optimizer.pure_bf16 ? "pure_bf16=true" : "dtype=bfloat16",
        config.optimizer.pure_bf16
            ? "without pure_bf16 it computes in float16, and optim=adamw_8bit has small states too"
            : "dtype=float16 is faster there"));
  }
  if (emulates && !config.model.dtype) {
    warnings.emplace_back(
        "dtype: auto is float16, with a loss scale that moves: a GPU of this run has no bfloat16 "
        "arithmetic; dtype=float32 is slower and needs none");
  }
  const auto dtype = working_dtype(config.model.dtype, place);
  if (config.model.dtype || dtype == DType::kF16) return;  // a given one has been noted
  for (const auto* key :
       {"loss_scaler", "loss_scale", "initial_scale_power", "loss_scale_window"}) {
    const auto origin = resolved.origins.find(key);
    // A DeepSpeed file brings its own for the case that it is needed.
    if (origin == resolved.origins.end() ||
        origin->second.kind == config::Origin::Kind::kDeepSpeed) {
      continue;
    }
    warnings.push_back(
        fmt::format("{} has no effect: dtype: auto is {} here, and the loss scale "
                    "is float16's",
                    key, dtype_word(dtype)));
  }
}

// tmpfs is memory: what is offloaded there takes what offload is to save.
bool is_in_memory(const std::string& folder) {
  struct statfs found{};
  constexpr auto kTmpfs = 0x01021994, kRamfs = static_cast<int>(0x858458f6);
  if (::statfs(folder.c_str(), &found) != 0) return false;
  return static_cast<int>(found.f_type) == kTmpfs || static_cast<int>(found.f_type) == kRamfs;
}

}  // namespace

std::vector<std::string> run_warnings(const config::Resolved& resolved, const Place& place) {
  const auto& config = resolved.config;
  auto warnings = finetune_warnings(resolved);
  std::ranges::move(preference_warnings(resolved), std::back_inserter(warnings));
  warn_of_types(resolved, place, warnings);
  if (offload_of(config.offload).uses_disk() && is_in_memory(config.offload.nvme_path)) {
    warnings.push_back(fmt::format(
        "nvme_path: {} lies in memory (tmpfs), so that nothing is saved by offloading to it: name "
        "a folder on a local disk, or give offload_optimizer=cpu, which is faster",
        config.offload.nvme_path));
  }
  if (config.offload.offload_param != config::Offload::kNone && config.offload.offload_ratio != 1) {
    warnings.emplace_back(
        "offload_ratio has no effect: offload_param takes all of the optimizer's states along");
  }
  if (!config.model.model_name_or_path.empty()) {
    const auto model = read_run_model(config);
    if (auto advice = model.architecture->training_advice(); !advice.empty()) {
      warnings.push_back(std::move(advice));
    }
    const auto dimensions = model.dimensions();
    if (auto note = rope_scaling_note(config); !note.empty()) warnings.push_back(std::move(note));
    const auto most = dimensions.usable_positions();
    if (!trains_on_rows(config) && !dimensions.positions_are_learned &&
        config.data.block_size > most) {
      warnings.push_back(fmt::format(
          "{} is {}, but the model's config.json is made for {} positions: it learns positions "
          "that other programs will not give it",
          length_key(resolved), config.data.block_size, most));
    }
  }
  const auto sources = sources_of(config, data::Split::kTrain);
  warnings.insert(warnings.end(), sources.notes.begin(), sources.notes.end());
  auto byte_text = sources.holds_text() ? byte_text_warning(config.model) : "";
  if (!byte_text.empty()) warnings.push_back(std::move(byte_text));
  return warnings;
}

}  // namespace skein::plan
