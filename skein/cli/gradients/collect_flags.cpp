// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/gradients/collect_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/checkpoint/files/weights_digest.h"
#include "skein/cli/flag_set.h"
#include "skein/cli/gradients/collect_keys.h"
#include "skein/cli/gradients/shell_word.h"
#include "skein/cli/gradients/verbs.h"
#include "skein/cli/key_flags.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/hash.h"
#include "skein/plan/finetune.h"

namespace skein::cli {
namespace {

namespace gf = gradient_features;

constexpr int64_t kLessLength = 2048;

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream text(list);
  for (std::string word; std::getline(text, word, ',');) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

std::vector<int64_t> read_dimensions(const std::string& list) {
  std::vector<int64_t> dimensions;
  for (const auto& word : words_of(list)) {
    const auto read = config::parse_integer(word);
    if (!read || *read < 1 || *read > gf::kMaxDimension) {
      throw UserError(fmt::format("--gradient_projection_dimension: '{}' is no number from 1 to {}",
                                  word, gf::kMaxDimension));
    }
    dimensions.push_back(*read);
  }
  if (dimensions.empty()) throw UserError("--gradient_projection_dimension names no dimension");
  std::ranges::sort(dimensions);
  const auto [first, last] = std::ranges::unique(dimensions);
  dimensions.erase(first, last);
  return dimensions;
}

// A word of a short list of choices.
template <typename Value>
Value choose(const char* flag, const std::string& word, std::optional<Value> value,
             const char* expected) {
  if (!value) throw UserError(fmt::format("--{}: '{}' is none of {}", flag, word, expected));
  return *value;
}

bool has_moments(const fs::path& model) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(model, ignored)) {
    const auto name = entry.path().filename().string();
    if (checkpoint::is_layout_name(name, checkpoint::kOptimizerStem)) return true;
  }
  return false;
}

bool has_pickled_moments(const fs::path& model) {
  std::error_code ignored;
  return fs::exists(model / "optimizer.pt", ignored);
}

// The last checkpoint of a run's folder of which that is true; empty: none.
fs::path last_checkpoint(const fs::path& run, bool (*is_wanted)(const fs::path&)) {
  fs::path last;
  int64_t last_step = -1;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run, ignored)) {
    const auto name = entry.path().filename().string();
    constexpr std::string_view kBegin = "checkpoint-";
    if (!name.starts_with(kBegin) || !is_wanted(entry.path())) continue;
    const auto step = config::parse_integer(name.substr(kBegin.size()));
    if (!step || *step <= last_step) continue;
    last_step = *step;
    last = run / name;
  }
  return last;
}

// Why a folder without moments has none, and what to type.
std::string without_moments(const fs::path& model) {
  constexpr auto kScript =
      "optimizer.pt is a pickle, which is not read: `scripts/hf_moments.py {0}` makes an "
      "optimizer.safetensors of it, then give --model {0}";
  if (has_pickled_moments(model)) return fmt::format(kScript, shell_word(model.string()));
  if (const auto found = last_checkpoint(model, has_moments); !found.empty()) {
    return fmt::format(
        "{} is the folder of a run, and the optimizer's moments lie in its checkpoints: give "
        "--model {}",
        shown(model.string()), shell_word(found.string()));
  }
  if (const auto found = last_checkpoint(model, has_pickled_moments); !found.empty()) {
    return fmt::format(kScript, shell_word(found.string()));
  }
  return fmt::format(
      "{} has no {}.safetensors, the optimizer's moments: give --model with a checkpoint-N of the "
      "run that has them (saved without save_only_model)",
      shown(model.string()), checkpoint::kOptimizerStem);
}

// LESS's extraction on a model without an adapter makes one.
adapter::AdapterConfig new_adapter(int64_t rank, double alpha) {
  adapter::AdapterConfig made;
  made.rank = rank;
  made.alpha = alpha;
  made.targets = {.kind = adapter::ModuleChoice::Kind::kNames,
                  .names = {"q_proj", "k_proj", "v_proj", "o_proj"}};
  return made;
}

bool is_rows_flag(const std::string& word) {
  return word == "--train_file" || word == "--train-file";
}

struct RawWords {
  std::string model, output, info = "grads", type, form = "less", dimensions, parameters;
  std::string non_finite = "error", dtype = "float32", projection = "dense";
  std::string base;
  bool validation = false, initialize_lora = false;
  int64_t lora_rank = 8;
  int64_t max_length = 0;  // 0: as the configuration says, else LESS's
  std::optional<double> lora_alpha;
};

// `--train_file a.jsonl b.jsonl`: the second would be taken for a configuration.
void refuse_loose_rows(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    const auto ending = fs::path(word).extension();
    const bool is_value =
        i > 0 && words[i - 1].starts_with("--") && words[i - 1].find('=') == std::string::npos;
    if (is_value || word.starts_with("--") || word.find('=') != std::string::npos) continue;
    if (ending != ".jsonl" && ending != ".json" && ending != ".txt") continue;
    const bool follows = i > 1 && is_rows_flag(words[i - 2]);
    throw UserError(fmt::format(
        "'{}' belongs to no flag: --train_file takes one word; for several files put commas "
        "between them (--train_file {},{}), or give their folder, --train_file_dir DIR",
        shown(word), shell_word(follows ? words[i - 1] : "a.jsonl"), shell_word(word)));
  }
}

std::vector<std::string> read(std::span<const std::string> arguments, RawWords& raw,
                              CollectFlags& result) {
  FlagSet flags("skein gradients collect");
  flags.add("model", raw.model);
  flags.add("model-path", raw.model);
  flags.add("base", raw.base);
  flags.add("output-path", raw.output);
  flags.add("info-type", raw.info);
  flags.add("gradient-type", raw.type);
  flags.add("adam-form", raw.form);
  flags.add("gradient-projection-dimension", raw.dimensions);
  flags.add("projection", raw.projection);
  flags.add("parameters", raw.parameters);
  flags.add("validation", raw.validation);
  flags.add("initialize-lora", raw.initialize_lora);
  flags.add("lora-r", raw.lora_rank, /*least=*/1);
  flags.add("lora-alpha", raw.lora_alpha);
  flags.add("max-samples", result.max_samples, /*least=*/1);
  flags.add("max-length", raw.max_length, /*least=*/2);
  flags.add("block-samples", result.block_samples, /*least=*/1);
  flags.add("batch-tokens", result.batch_tokens, /*least=*/1);
  flags.add("gradient-memory", result.memory, /*least=*/1);
  flags.add("non-finite", raw.non_finite);
  flags.add("output-dtype", raw.dtype);
  const auto own = flags.names();
  add_less_flags(flags, "collect");
  auto rest = flags.read(arguments, FlagSet::Unknown::kKeep);
  refuse_loose_rows(rest);
  check_flags(rest, own);
  rest.emplace_back("stage=sft");  // so rows are read
  return rest;
}

void choose_projection(const RawWords& raw, CollectFlags& result) {
  if (!raw.dimensions.empty()) result.dimensions = read_dimensions(raw.dimensions);
  auto kind = gf::projection_kind(raw.projection);
  if (kind == gf::ProjectionKind::kNone) kind.reset();  // a word of files alone
  result.projection = choose("projection", raw.projection, kind, "dense, factorised");
  if (result.projection != gf::ProjectionKind::kFactorised) return;
  if (result.info != gf::InfoType::kGrads) {
    throw UserError(
        fmt::format("--projection factorised is of gradients, and --info_type {} are "
                    "not projected: leave one out",
                    raw.info));
  }
  if (result.dimensions.size() > 1) {
    throw UserError(
        fmt::format("--projection factorised has one dimension a pass, and "
                    "--gradient_projection_dimension names {}: give one, or --projection dense",
                    result.dimensions.size()));
  }
}

// Signs and Adam's steps are those of whole elements.
void require_sgd(gf::GradientType type) {
  if (type == gf::GradientType::kSgd) return;
  throw UserError(
      fmt::format("--projection factorised never forms the gradient that --gradient_type {} "
                  "needs: give --gradient_type sgd, or --projection dense",
                  gf::word_of(type)));
}

std::string why_sgd(const RawWords& raw, const CollectFlags& flags) {
  if (flags.new_adapter) return "a new adapter has no moments";
  if (flags.projection == gf::ProjectionKind::kFactorised) {
    return "a factorised projection never forms the gradient that others need";
  }
  return raw.validation ? "the rows are for validation" : without_moments(flags.given_model);
}

void choose_type(const RawWords& raw, CollectFlags& result) {
  const bool factorised = result.projection == gf::ProjectionKind::kFactorised;
  const bool moments = has_moments(result.given_model);
  if (raw.type.empty()) {
    const bool adam = moments && !result.new_adapter && !raw.validation && !factorised;
    result.type = adam ? gf::GradientType::kAdam : gf::GradientType::kSgd;
    result.why_type = adam ? "the checkpoint has the optimizer's moments" : why_sgd(raw, result);
    return;
  }
  result.type = choose("gradient_type", raw.type, gf::gradient_type(raw.type), "adam, sgd, sign");
  if (factorised) require_sgd(result.type);
  if (result.type == gf::GradientType::kAdam && !moments) {
    throw UserError(
        fmt::format("--gradient_type adam needs the optimizer's moments: {}; or give "
                    "--gradient_type sgd",
                    without_moments(result.given_model)));
  }
}

void choose_parameters(const RawWords& raw, CollectFlags& result) {
  if (!raw.parameters.empty()) result.parameters = words_of(raw.parameters);
  const bool of_adapter =
      std::ranges::find(result.parameters, "adapter") != result.parameters.end();
  const bool is_new = raw.initialize_lora || (of_adapter && result.model.adapter.empty());
  if (result.info != gf::InfoType::kGrads || !is_new) return;
  if (!result.model.adapter.empty()) {
    throw UserError(fmt::format("--initialize_lora makes an adapter beside a model, and {} is one",
                                result.given_model.string()));
  }
  result.new_adapter = new_adapter(raw.lora_rank, raw.lora_alpha.value_or(32));
}

bool is_given(const CollectFlags& flags, const char* key) {
  return flags.run.origin_of(key).kind != config::Origin::Kind::kDefault;
}

// The rows are those of a run's training data; nothing is held out.
void resolve_run(const RawWords& raw, CollectFlags& result) {
  auto& run = result.run.config;
  run.model.model_name_or_path = result.model.weights.string();
  if (const auto folder = result.model.tokenizer_folder();
      run.model.tokenizer_name_or_path.empty() && folder != result.model.weights) {
    run.model.tokenizer_name_or_path = folder.string();
  }
  if (raw.max_length > 0) {
    run.data.block_size = raw.max_length;
  } else if (!is_given(result, "block_size")) {
    run.data.block_size = kLessLength;
  }
  if (result.max_samples == 0) result.max_samples = run.data.max_train_samples.value_or(0);
  if (is_given(result, "seed")) result.seed = static_cast<uint64_t>(run.seed);
  run.checkpoint.output_dir = raw.output;
  run.checkpoint.experiment_name.clear();  // rows lie where --output_path says
  run.rows.packing = false;
  if (run.data.train_file.empty() && run.data.train_file_dir.empty()) {
    throw UserError("skein gradients collect needs --train_file FILE, the rows");
  }
}

// A row that is left out would give its number to the next: what is selected would be other rows.
void check_rows(const CollectFlags& flags) {
  if (flags.run.config.data.bad_lines == config::BadLines::kStop) return;
  config::refuse(flags.run.origin_of("bad_lines"),
                 "skein gradients collect numbers all rows of a file, and leaves none out: remove "
                 "those that cannot be read from it first, and give bad_lines=stop, which names "
                 "the first of them");
}

// Is one of them the other, or above it?
bool holds(const fs::path& folder, const fs::path& other) {
  const auto inside = other.lexically_relative(folder);
  return !inside.empty() && *inside.begin() != "..";
}

// The nearest that is there of a folder and those above it: a file could hold none.
void require_folder(const fs::path& output) {
  std::error_code error;
  auto path = output;
  while (!fs::exists(fs::symlink_status(path, error)) && path.has_parent_path() &&
         path != path.parent_path()) {
    path = path.parent_path();
  }
  if (!fs::exists(fs::symlink_status(path, error)) || fs::is_directory(path, error)) return;
  throw UserError(fmt::format("--output_path {}: {} is no folder; give another, or remove it",
                              shown(output.string()), shown(path.string())));
}

// A folder that holds a model, an adapter or a checkpoint, whose files belong together.
bool is_model_folder(const fs::path& folder) {
  const auto has = [&](const char* name) {
    std::error_code ignored;
    return fs::exists(folder / name, ignored);
  };
  const bool has_weights = has("model.safetensors") || has("model.safetensors.index.json") ||
                           has("pytorch_model.bin") || has("pytorch_model.bin.index.json");
  return has(adapter::kConfigName) || has("trainer_state.json") ||
         (has("config.json") && has_weights);
}

// Who removes, copies or publishes a checkpoint would do it to the rows as well.
void refuse_model_folder(const fs::path& output, const fs::path& typed) {
  for (auto folder = output; folder.has_relative_path(); folder = folder.parent_path()) {
    if (!is_model_folder(folder)) continue;
    throw UserError(
        fmt::format("--output_path {} lies in {}, the folder of a model or a checkpoint, whose "
                    "files belong together: give a folder outside of it, as --output_path {}",
                    shown(typed.string()), shown(folder.string()),
                    shell_word((folder.parent_path() / "grads").string())));
  }
}

// The files of a collection are no rows, and a folder of rows would be read with them when it is
// continued.
void check_output(const CollectFlags& flags) {
  require_folder(flags.output);
  std::error_code error;
  const auto output = fs::weakly_canonical(flags.output, error);
  refuse_model_folder(output, flags.output);
  const auto& data = flags.run.config.data;
  for (const auto& named : {data.train_file_dir, data.train_file}) {
    for (const auto& word : words_of(named)) {
      if (!fs::is_directory(word, error)) continue;
      const auto rows = fs::weakly_canonical(word, error);
      if (!holds(output, rows) && !holds(rows, output)) continue;
      throw UserError(
          fmt::format("--output_path {} and the folder of rows, {}, lie in each other: what is "
                      "collected would be read as rows; give another --output_path",
                      shown(flags.output.string()), shown(word)));
    }
  }
}

// What a model cannot be computed in here.
void check_precision(const CollectFlags& flags) {
  const auto& model = flags.run.config.model;
  if (model.quantization_bit != config::QuantizationBit::kNone) {
    config::refuse(flags.run.origin_of("quantization_bit"),
                   "skein gradients collect computes with whole weights, not in 4 bits: leave "
                   "quantization_bit out, or give quantization_bit=none");
  }
  if (model.dtype == DType::kF16 && flags.info == gf::InfoType::kGrads) {
    config::refuse(flags.run.origin_of("dtype"),
                   "a sample's gradients in float16 would vanish, for lack of a loss scale: give "
                   "dtype=bfloat16 or dtype=float32");
  }
}

}  // namespace

std::string CollectFlags::fresh() const {
  if (!new_adapter) return "";
  return fmt::format("new adapter {} {} {}", new_adapter->rank, new_adapter->alpha,
                     run.config.seed);
}

std::string model_digest(const plan::ModelFolder& model, const std::string& fresh) {
  std::string all = checkpoint::weights_digest(checkpoint::open_model_files(model.weights));
  // Weights alone do not say what is computed with them: a number of heads, a base of rotations.
  all += read_file(model.weights / "config.json");
  if (!model.adapter.empty()) {
    all += checkpoint::weights_digest(
        checkpoint::open_model_files(model.adapter, checkpoint::kAdapterStem));
    all += read_file(model.adapter / adapter::kConfigName);
  }
  return digest(all + fresh);
}

CollectFlags parse_collect_flags(std::span<const std::string> arguments) {
  CollectFlags result;
  RawWords raw;
  result.run = config::load(read(arguments, raw, result));
  const auto& configured = result.run.config;
  std::set<std::string> unused;  // keys that --model stands for
  if (!raw.model.empty()) unused.insert("adapter_name_or_path");
  if (raw.model.empty()) raw.model = configured.finetune.adapter_name_or_path;
  const auto& named = configured.model.model_name_or_path;
  if (raw.model.empty()) {
    raw.model = named;
  } else if (raw.base.empty() && plan::names_adapter(raw.model)) {
    raw.base = named;
  } else {
    unused.insert("model_name_or_path");
  }
  if (raw.model.empty()) {
    throw UserError(
        "skein gradients collect needs --model FOLDER: an adapter, a checkpoint or a "
        "model");
  }
  if (raw.output.empty()) {
    throw UserError("skein gradients collect needs --output_path FOLDER, where the rows go");
  }
  result.output = raw.output;
  result.model = plan::open_model_folder({.folder = raw.model, .base = raw.base});
  result.given_model = result.model.adapter.empty() ? result.model.weights : result.model.adapter;
  result.info = choose("info_type", raw.info, gf::info_type(raw.info), "grads, reps, loss");
  result.adam_form = choose("adam_form", raw.form, gf::adam_form(raw.form), "less, standard");
  choose_projection(raw, result);
  check_precision(result);
  if (raw.non_finite != "error" && raw.non_finite != "skip") {
    throw UserError(fmt::format("--non_finite: '{}' is neither error nor skip", raw.non_finite));
  }
  result.skips_non_finite = raw.non_finite == "skip";
  if (raw.dtype != "float32" && raw.dtype != "float16") {
    throw UserError(fmt::format("--output_dtype: '{}' is neither float32 nor float16", raw.dtype));
  }
  result.output_dtype = raw.dtype == "float32" ? DType::kF32 : DType::kF16;
  choose_parameters(raw, result);
  choose_type(raw, result);
  resolve_run(raw, result);
  check_rows(result);
  check_output(result);
  if (auto idle = idle_collect_keys(result.run, unused); !idle.empty()) {
    result.run.notes.push_back(std::move(idle));
  }
  return result;
}

std::vector<std::string> translate_rank_flags(std::span<const std::string> arguments) {
  std::optional<int64_t> world_size, rank, local_rank, port;
  std::string address;
  FlagSet flags("skein gradients collect");
  flags.add("world-size", world_size);
  flags.add("rank", rank);
  flags.add("local-rank", local_rank);
  flags.add("master-addr", address);
  flags.add("master-port", port);
  auto rest = flags.read(arguments, FlagSet::Unknown::kKeep);
  const auto put = [](const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), /*overwrite=*/1);
  };
  if (rank) {
    put("RANK", fmt::format("{}", *rank));
    put("WORLD_SIZE", fmt::format("{}", world_size.value_or(1)));
    put("LOCAL_RANK", fmt::format("{}", local_rank.value_or(*rank)));
    put("MASTER_ADDR", address.empty() ? "127.0.0.1" : address);
    put("MASTER_PORT", fmt::format("{}", port.value_or(29500)));
    return rest;
  }
  if (world_size) rest.push_back(fmt::format("--nproc-per-node={}", *world_size));
  if (!address.empty()) rest.push_back("--master-addr=" + address);
  if (port) rest.push_back(fmt::format("--master-port={}", *port));
  return rest;
}

}  // namespace skein::cli
