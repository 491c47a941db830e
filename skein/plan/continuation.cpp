// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/continuation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "skein/adapter/adapter_config.h"
#include "skein/checkpoint/files/model_files.h"
#include "skein/config/output_folder.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/json.h"
#include "skein/optim/states.h"
#include "skein/plan/finetune.h"
#include "skein/plan/preferences.h"
#include "skein/plan/rules.h"
#include "skein/plan/run_data.h"
#include "skein/plan/steps/rollout_plan.h"

namespace skein::plan {
namespace {

using nlohmann::ordered_json;

// Past the last byte: verify() looks at names and sizes alone.
const checkpoint::Share kNoBytes{.rank = 1, .size = 1};

// Keys of config.json that may change without changing what the weights mean.
const std::set<std::string> kNotArchitecture = {
    "dtype",         "torch_dtype",  "transformers_version", "use_cache",
    "_name_or_path", "bos_token_id", "eos_token_id",         "pad_token_id"};

bool is_whole_text(const fs::path& folder, const checkpoint::FileRecord& record) {
  const auto text = read_file(folder / record.name);
  return std::ranges::all_of(record.ranges, [&](const auto& range) {
    return digest(text.substr(range.begin, range.end - range.begin)) == range.digest;
  });
}

// What is wrong with a checkpoint, as far as its small files and all sizes tell it: of a folder, or
// of one that is listed under a step.
template <typename Checkpoint>
std::vector<checkpoint::Problem> visible_problems(const Checkpoint& checkpoint,
                                                  const fs::path& folder) {
  checkpoint::Manifest manifest;
  auto problems = checkpoint::verify(checkpoint, &manifest, kNoBytes);
  if (!problems.empty()) return problems;
  for (const auto& record : manifest.files) {
    if (record.name.ends_with(".safetensors") || is_whole_text(folder, record)) continue;
    problems.push_back({record.name, "", "its bytes are not those that were written"});
  }
  return problems;
}

void require_whole(const fs::path& checkpoint) {
  const auto problems = visible_problems(checkpoint, checkpoint);
  if (problems.empty()) return;
  std::string text;
  for (const auto& problem : problems) text += "\n  " + problem.message();
  throw UserError(fmt::format("resume_from_checkpoint: {} is not a whole checkpoint:{}",
                              checkpoint.string(), text));
}

using Survey = std::vector<checkpoint::SurveyedCheckpoint>;

// Of the folder's run, and saved after that step.
std::optional<fs::path> newest_above(int64_t step, const Survey& survey) {
  for (const auto& listed : checkpoint::candidates(survey)) {
    if (listed.step <= step) break;
    if (visible_problems(listed, listed.path).empty()) return listed.path;
  }
  return std::nullopt;
}

constexpr size_t kMostNamed = 5;  // of a folder that may hold hundreds

// The first of those that this run has not left, each in the words of `describe`.
template <typename Describe>
std::string first_of(const Survey& survey, const char* separator, const Describe& describe) {
  std::vector<std::string> texts;
  size_t others = 0;
  for (const auto& seen : survey) {
    if (seen.relation == checkpoint::Relation::kLeft) continue;
    if (texts.size() == kMostNamed) {
      ++others;
    } else {
      texts.push_back(describe(seen));
    }
  }
  const auto named = fmt::format("{}", fmt::join(texts, separator));
  return others == 0 ? named : fmt::format("{} and {} more", named, others);
}

std::string name_of(const checkpoint::SurveyedCheckpoint& seen) {
  return seen.listed.path.filename().string();
}

// What the ranks would warn of one by one.
std::string problems_of(const Survey& survey) {
  return first_of(survey, "; ", [](const auto& seen) {
    const auto problems = seen.relation == checkpoint::Relation::kStranger
                              ? std::vector<checkpoint::Problem>{}
                              : visible_problems(seen.listed, seen.listed.path);
    return fmt::format("{}: {}", name_of(seen),
                       problems.empty() ? "it is another run's" : problems.front().message());
  });
}

std::optional<fs::path> newest_or_refuse(const fs::path& output, const Survey& survey) {
  if (auto newest = newest_above(-1, survey)) return newest;
  if (const auto refusal = nothing_to_continue(output, survey, ""); refusal.empty()) {
    return std::nullopt;
  }
  throw IoError(nothing_to_continue(output, survey, fmt::format(" ({})", problems_of(survey))));
}

ordered_json saved_config(const fs::path& path) {
  const auto text = read_file(path);
  try {
    if (auto config = parse_ordered_json(text); config.is_object()) return config;
  } catch (const JsonError& error) {
    throw IoError(json_message(error, text, path.string()));
  }
  throw IoError(path.string() + " is not a JSON object");
}

std::string model_type(const ordered_json& config) { return config.value("model_type", ""); }

void check_architecture(const fs::path& checkpoint, const HfConfig& model) {
  const auto path = checkpoint / "config.json";
  const auto saved = saved_config(path);
  const auto now = parse_ordered_json(model.source);
  constexpr const char* kCure =
      "Give the old model, another output_dir, or start over with --fresh";
  if (model_type(saved) != model_type(now)) {
    throw UserError(
        fmt::format("{} holds another model than model_name_or_path: model_type is {} "
                    "there and {} here. {}",
                    checkpoint.string(), model_type(saved), model_type(now), kCure));
  }
  std::vector<std::string> changed;
  for (const auto& [key, value] : now.items()) {
    if (kNotArchitecture.contains(key)) continue;
    if (!saved.contains(key) || saved.at(key) != value) changed.push_back(key);
  }
  for (const auto& [key, value] : saved.items()) {
    if (!now.contains(key) && !kNotArchitecture.contains(key)) changed.push_back(key);
  }
  if (changed.empty()) return;
  throw UserError(
      fmt::format("{} holds another model than model_name_or_path: {} differ in config.json. {}",
                  checkpoint.string(), fmt::join(changed, ", "), kCure));
}

constexpr const char* kOldKeys = "give the old keys, another output_dir, or --fresh";

// The keys of the adapter_config.json there that differ from those of this start.
void check_adapter_config(const fs::path& checkpoint, const std::string& text) {
  // Only described, and no part of what is trained.
  const std::set<std::string> described = {"base_model_name_or_path", "peft_version",
                                           "inference_mode", "init_lora_weights", "lora_dropout"};
  const auto saved =
      parse_ordered_json(adapter::adapter_config_json(adapter::read_adapter_config(checkpoint)));
  const auto now = parse_ordered_json(text);
  std::vector<std::string> changed;
  for (const auto& [key, value] : now.items()) {
    if (described.contains(key)) continue;
    const auto old = saved.contains(key) ? saved.at(key) : ordered_json();
    if (old != value) {
      changed.push_back(fmt::format("{} is {} there and {} here", key, old.dump(), value.dump()));
    }
  }
  if (changed.empty()) return;
  throw UserError(fmt::format("{} holds another adapter than this start trains: {}; {}",
                              checkpoint.string(), fmt::join(changed, ", "), kOldKeys));
}

// Does the same train, beside the same weights?
void check_tuning(const fs::path& checkpoint, const TuningIdentity& now) {
  const auto saved = read_trainer_state(checkpoint).identity.tuning;
  if (saved.type != now.type) {
    throw UserError(fmt::format("{} was saved with finetuning_type {}, this start has {}; {}",
                                checkpoint.string(), saved.type, now.type, kOldKeys));
  }
  if (saved.base_digest != now.base_digest) {
    throw UserError(fmt::format(
        "{} holds an adapter of {} (digest {}), and model_name_or_path is {} (digest {}): it would "
        "be worth nothing beside other weights. Give the old base, another output_dir, or --fresh",
        checkpoint.string(), saved.base, saved.base_digest, now.base, now.base_digest));
  }
  if (!now.adapter_config.empty()) check_adapter_config(checkpoint, now.adapter_config);
}

// An adapter's folder has no config.json: its base is known by its weights.
void check_model(const fs::path& folder, const HfConfig& model, const TuningIdentity& tuning) {
  check_tuning(folder, tuning);
  if (tuning.base.empty()) check_architecture(folder, model);
}

// None: it is no checkpoint but a final model.
std::optional<checkpoint::Manifest> manifest_of(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / checkpoint::kManifestName, ignored)) return std::nullopt;
  return checkpoint::read_manifest(folder);
}

[[noreturn]] void refuse_order(const fs::path& checkpoint, const std::string& difference,
                               const std::string& cure) {
  throw UserError(
      fmt::format("{} was saved with {}: the order of the data would change. Give {}, or start "
                  "over with --fresh",
                  checkpoint.string(), difference, cure));
}

void check_batch(const fs::path& checkpoint, int64_t saved, const DataIdentity& now) {
  if (saved == now.global_batch) return;
  if (now.counts_prompts) {
    refuse_order(checkpoint,
                 fmt::format("{} prompts in a step, this start has {}", saved, now.global_batch),
                 fmt::format("the old numbers (prompts = global_batch_size x num_mini_batches / "
                             "num_generations, which make {})",
                             saved));
  }
  const auto manifest = manifest_of(checkpoint);
  const int64_t ranks = manifest ? static_cast<int64_t>(manifest->conditions.size) : 0;
  // A forgotten flag, when the old ranks would make the old batch of what each has.
  const bool only_ranks =
      ranks > 0 && now.ranks > 0 && now.global_batch * ranks == saved * now.ranks;
  const auto flag =
      only_ranks
          ? fmt::format("the old {} ranks (--nproc-per-node {} on one machine) or ", ranks, ranks)
          : "";
  refuse_order(checkpoint,
               fmt::format("a global batch size of {}, this start has {}", saved, now.global_batch),
               fmt::format("{}global_batch_size={}", flag, saved));
}

void check_order(const fs::path& checkpoint, const DataIdentity& identity) {
  const auto saved = read_trainer_state(checkpoint).identity;
  check_batch(checkpoint, saved.global_batch, identity);
  if (saved.seed != identity.seed) {
    refuse_order(checkpoint,
                 fmt::format("a data seed of {}, this start has {}", saved.seed, identity.seed),
                 fmt::format("data_seed={}", saved.seed));
  }
  if (saved.block_size != 0 && saved.block_size != identity.block_size) {
    refuse_order(checkpoint,
                 fmt::format("a {} of {}, this start has {}", identity.block_size_key,
                             saved.block_size, identity.block_size),
                 fmt::format("{}={}", identity.block_size_key, saved.block_size));
  }
  if (!identity.data_digest.empty() && saved.data_digest != identity.data_digest) {
    refuse_order(checkpoint,
                 fmt::format("training data of digest {}, this start has {}: the files, the "
                             "tokenizer, block_size, the held-out share, max_train_samples, "
                             "dataloader_drop_last or, of rows, template, masks or packing "
                             "changed",
                             saved.data_digest, identity.data_digest),
                 "the old data");
  }
}

// Digests show damage, not that two files belong together.
void check_step(const fs::path& checkpoint) {
  const auto step = read_trainer_state(checkpoint).step;
  const auto manifest = manifest_of(checkpoint);
  if (!manifest || manifest->step == static_cast<uint64_t>(step)) return;
  throw IoError(fmt::format(
      "{} is of step {}, {} of step {}: they do not belong together. Without that folder "
      "the run goes on from the checkpoint before it",
      (checkpoint / checkpoint::kManifestName).string(), manifest->step, kStateFile, step));
}

// What the tensors of optimizer files tell of the optimizer that wrote them.
struct SavedStates {
  bool in_8bit = false;
  bool in_bf16 = false;  // some of the moments
  bool has_masters = false;
};

// None: a file is damaged. Who reads every byte says so, and may go on from an older checkpoint.
std::optional<SavedStates> saved_states(const fs::path& checkpoint) try {
  SavedStates saved;
  const auto files = checkpoint::open_model_files(checkpoint, checkpoint::kOptimizerStem);
  for (const auto& [name, stored] : files.tensors) {
    if (name.ends_with(".exp_avg_scale")) saved.in_8bit = true;
    if (name.ends_with(".master")) saved.has_masters = true;
    if (stored.tensor->dtype == DType::kBF16) saved.in_bf16 = true;
  }
  return saved;
} catch (const IoError&) {
  return std::nullopt;
}

// Does anything that trains have master weights?
bool has_masters(const config::RunConfig& config, const HfConfig& model, DType dtype) {
  const auto shapes = tuned_model(config, model).shapes;
  return std::ranges::any_of(shapes.parameters, [&](const ParameterShape& parameter) {
    if (!parameter.trainable) return false;
    const auto states =
        optim::state_tensors(config.optimizer, parameter.adapter ? adapter_dtype(dtype) : dtype);
    return std::ranges::count(states, "master", &optim::StateTensor::name) > 0;
  });
}

// The word of config.json, which an adapter's folder does not have.
std::string saved_dtype(const fs::path& checkpoint, bool has_masters) {
  if (fs::exists(checkpoint / "config.json")) return read_hf_config(checkpoint).dtype;
  return has_masters ? "bfloat16 (or float16)" : "float32";
}

void check_states(const fs::path& checkpoint, const DataIdentity& now) {
  const auto saved = saved_states(checkpoint);
  if (!saved) return;
  const auto refuse_unlike = [&](const std::string& then, const std::string& here) {
    throw UserError(fmt::format("{} was saved with {}, this start has {}; {}", checkpoint.string(),
                                then, here, kOldKeys));
  };
  const bool in_8bit = now.optim == config::OptimizerKind::kAdamW8bit;
  constexpr const char* kKinds[] = {"optim: adamw_torch", "optim: adamw_8bit"};
  if (saved->in_8bit != in_8bit) refuse_unlike(kKinds[saved->in_8bit], kKinds[in_8bit]);
  // Moments in 8 bits are the same with and without a master: then the weights' type tells.
  const bool was_pure = saved->in_bf16 || (in_8bit && !saved->has_masters &&
                                           saved_dtype(checkpoint, false) == "bfloat16");
  // Adapters are fp32 whatever their base is.
  const bool tells = now.tuning.adapter_config.empty();
  const bool lacks_bf16 = now.pure_bf16 && (saved->has_masters || (tells && !was_pure));
  if (lacks_bf16) refuse_unlike("pure_bf16: false", "true");
  if (!now.pure_bf16 && was_pure) refuse_unlike("pure_bf16: true", "false");
}

void check_optimizer(const fs::path& checkpoint, const DataIdentity& identity) {
  if (fs::exists(checkpoint / "optimizer.safetensors") ||
      fs::exists(checkpoint / "optimizer.safetensors.index.json")) {
    return check_states(checkpoint, identity);
  }
  throw UserError(
      fmt::format("{} has no optimizer state (save_only_model): it cannot be continued. Use it as "
                  "model_name_or_path of a new run, or start over with --fresh",
                  checkpoint.string()));
}

}  // namespace

DataIdentity identity_before_data(const config::Resolved& resolved,
                                  const config::BatchPlan& batches, const HfConfig& model) {
  const auto& config = resolved.config;
  const bool online = config::is_online(config.stage);
  return {.stage = config::to_text(config.stage),
          .objective = objective_of(config),
          .data_digest = {},
          .global_batch = samples_per_step(config, batches),
          .seed = static_cast<int64_t>(data_seed(config)),
          .block_size = online ? config.rollout.max_prompt_length : config.data.block_size,
          .ranks = batches.ranks,
          .block_size_key = length_key(resolved),
          .counts_prompts = online,
          .optim = config.optimizer.optim,
          .pure_bf16 = config.optimizer.pure_bf16,
          .tuning = tuning_identity(config, model),
          .reference = reference_identity(config, model)};
}

StartFrom start_from(const config::CheckpointConfig& options, const fs::path& output) {
  const auto& wish = options.resume_from_checkpoint;
  if (wish == "auto") return options.fresh ? StartFrom::kBeginning : StartFrom::kNewest;
  if (wish != "false") return StartFrom::kNamed;
  if (options.fresh || checkpoint::list_checkpoints(output).empty()) return StartFrom::kBeginning;
  throw UserError(fmt::format(
      "resume_from_checkpoint=false, but {} holds checkpoints of a started run: give another "
      "output_dir, or --fresh to remove them",
      output.string()));
}

namespace {

// By identity: a mount may show the output folder, or one checkpoint of it, under another path.
bool lies_in(const fs::path& output, const fs::path& checkpoint) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(output, ignored)) {
    if (entry.is_symlink(ignored)) continue;  // what it leads to stays
    if (fs::equivalent(entry.path(), checkpoint, ignored)) return true;
  }
  return false;
}

}  // namespace

fs::path named_checkpoint(const config::CheckpointConfig& options, const fs::path& output) {
  fs::path path = options.resume_from_checkpoint;
  std::error_code ignored;
  // `latest` is a link; other guides' spelling …/checkpoints/latest means the one beside the
  // checkpoints.
  if (!fs::exists(path, ignored) && path.filename() == "latest" &&
      path.parent_path().filename() == "checkpoints") {
    path = path.parent_path().parent_path() / "latest";
  }
  if (!fs::exists(path, ignored)) {
    throw UserError(
        fmt::format("resume_from_checkpoint: there is no {}", options.resume_from_checkpoint));
  }
  path = fs::canonical(path);
  if (options.fresh && lies_in(output, path)) {
    throw UserError(
        fmt::format("--fresh would remove {}, from which resume_from_checkpoint would go on: give "
                    "another output_dir, or leave one of the two out",
                    path.string()));
  }
  return path;
}

std::optional<fs::path> newest_saved(const fs::path& output) {
  return newest_above(-1, checkpoint::survey(output, checkpoint::read_record(output)));
}

std::string nothing_to_continue(const fs::path& output, const Survey& survey,
                                const std::string& why) {
  const auto names = first_of(survey, ", ", name_of);
  if (names.empty()) return "";
  return fmt::format(
      "{} holds {}, of which none can be continued{}. Repair one or bring it back, give another "
      "output_dir, or start over with --fresh, which removes what this run has written and renames "
      "the rest",
      output.string(), names, why);
}

std::optional<fs::path> checkpoint_to_continue(const config::CheckpointConfig& options) {
  const auto output = config::output_folder(options);
  const auto from = start_from(options, output);
  if (from == StartFrom::kBeginning) return std::nullopt;
  std::error_code ignored;
  const bool is_there = fs::is_directory(output, ignored);
  const auto record = is_there ? checkpoint::read_record(output) : std::nullopt;
  const auto survey = is_there ? checkpoint::survey(output, record) : Survey{};
  if (from == StartFrom::kNewest) return newest_or_refuse(output, survey);
  const auto began =
      record ? record->began_with(checkpoint::asked_name(options.resume_from_checkpoint))
             : std::nullopt;
  if (began && !options.fresh) {
    if (auto newer = newest_above(*began, survey)) return newer;
  }
  auto path = named_checkpoint(options, output);
  require_whole(path);
  return path;
}

bool has_final_model(const fs::path& output, int64_t steps) try {
  // What lies here is the run before that one, which a --fresh has ended and not yet removed.
  if (const auto record = checkpoint::read_record(output); record && record->is_removing()) {
    return false;
  }
  const auto state = find_trainer_state(output);
  if (!state || state->step != steps) return false;
  const bool is_adapter =
      fs::exists(output / (std::string(checkpoint::kAdapterStem) + ".safetensors"));
  checkpoint::open_model_files(output,
                               is_adapter ? checkpoint::kAdapterStem : checkpoint::kModelStem);
  const auto config = read_file(output / (is_adapter ? adapter::kConfigName : "config.json"));
  const auto json = json_if_valid(config);
  return json && json->is_object();
} catch (const UserError&) {
  return false;  // no tensors
} catch (const IoError&) {
  return false;
}

void check_stage(const fs::path& checkpoint, const std::string& now) {
  const auto saved = read_trainer_state(checkpoint).identity.stage;
  if (saved.empty() || saved == now) return;
  throw UserError(
      fmt::format("{} is of a run of stage: {}, this start has stage: {}: give another output_dir, "
                  "or start over with --fresh; as model_name_or_path of a new run it may have any",
                  checkpoint.string(), saved, now));
}

bool is_finished(const config::RunConfig& config, const HfConfig& model,
                 const DataIdentity& identity) {
  const auto& options = config.checkpoint;
  const auto output = config::output_folder(options);
  const bool may_continue = options.resume_from_checkpoint == "auto" && !options.fresh;
  if (!may_continue) return false;
  const auto state = find_trainer_state(output);
  const bool early =
      state && reason_to_end(config.eval, state->history, judged_since(*state, identity.objective));
  if (!has_final_model(output, early ? state->step : identity.total_steps)) return false;
  try {
    check_stage(output, identity.stage);
    check_model(output, model, identity.tuning);
    check_order(output, identity);
    return true;
  } catch (const UserError&) {
    return false;  // of another run: this one replaces it
  } catch (const IoError&) {
    return false;
  }
}

namespace {

// Rewards are compared with what the reference says: another one would be another run.
void check_same_reference(const fs::path& checkpoint, const ReferenceIdentity& now) {
  const auto saved = read_trainer_state(checkpoint).identity.reference;
  if (saved.digest == now.digest) return;
  const auto shown = [](const ReferenceIdentity& one) {
    return one.digest.empty() ? std::string("none with weights of its own")
                              : fmt::format("{} (digest {})", one.folder, one.digest);
  };
  throw UserError(
      fmt::format("{} was trained beside another reference: {} there, {} here. Give the old one "
                  "(ref_model, or model_name_or_path as it was), another output_dir, or --fresh",
                  checkpoint.string(), shown(saved), shown(now)));
}

}  // namespace

void check_continuation(const fs::path& checkpoint, const HfConfig& model,
                        const DataIdentity& identity) {
  check_step(checkpoint);
  check_stage(checkpoint, identity.stage);
  check_same_reference(checkpoint, identity.reference);
  check_model(checkpoint, model, identity.tuning);
  check_order(checkpoint, identity);
  check_optimizer(checkpoint, identity);
}

void check_saved_dtype(const fs::path& checkpoint, const config::RunConfig& config,
                       const HfConfig& model, DType dtype) {
  const bool has = has_masters(config, model, dtype);
  const auto states = saved_states(checkpoint);
  const bool had = states ? states->has_masters : has;
  if (had == has) return;
  const auto saved = saved_dtype(checkpoint, had);
  throw UserError(fmt::format(
      "{0} was saved with dtype={1}, this start has dtype={2}: beside weights of 16 bits the "
      "optimizer keeps others of 32. Give dtype={1}, another output_dir, or start over with "
      "--fresh; as model_name_or_path of a new run it may have any",
      checkpoint.string(), saved, dtype_word(dtype)));
}

}  // namespace skein::plan
