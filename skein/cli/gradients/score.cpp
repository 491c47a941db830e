// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/score.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "skein/cli/gradients/collect_flags.h"
#include "skein/cli/gradients/verbs.h"
#include "skein/config/syntax/values.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/log.h"
#include "skein/gradient_features/files/checkpoint_weights.h"
#include "skein/gradient_features/files/collection.h"
#include "skein/gradient_features/files/groups.h"
#include "skein/gradient_features/files/score_file.h"

namespace skein::cli {
namespace {

struct Words {
  std::vector<std::string> train, validation, checkpoints, weights;
  std::string groups, validation_file, out = ".", name;
  std::optional<int64_t> dimension;
  int64_t threads = 0;
};

Words parse(Arguments arguments) {
  Words words;
  FlagSet flags("skein gradients score");
  flags.add_list("train", words.train);
  flags.add_list("validation", words.validation);
  flags.add_list("checkpoints", words.checkpoints);
  flags.add_list("weights", words.weights);
  flags.add("groups", words.groups);
  flags.add("validation-file", words.validation_file);
  flags.add("dimension", words.dimension);
  flags.add("out", words.out);
  flags.add("name", words.name);
  flags.add("threads", words.threads);
  add_less_flags(flags, "score");
  refuse_loose_words("score", flags.read(arguments),
                     "--train, --validation, --checkpoints and --weights");
  for (auto* list : {&words.train, &words.validation, &words.checkpoints, &words.weights}) {
    *list = without_commas(*list);
  }
  if (words.train.empty() || words.validation.empty()) {
    throw UserError(
        "skein gradients score needs --train DIR… and --validation DIR…: collections that `skein "
        "gradients collect` made");
  }
  return words;
}

// Rows are of the checkpoint that is named beside them, as far as that can be told: of an adapter
// whose base is where it says.
void check_checkpoint(const fs::path& checkpoint, const fs::path& collection) {
  if (std::error_code error; !fs::is_directory(checkpoint, error)) {
    throw UserError(plan::no_model_message(checkpoint));
  }
  const auto model = [&]() -> std::optional<plan::ModelFolder> {
    try {
      return plan::open_model_folder({.folder = checkpoint});
    } catch (const UserError&) {
      return std::nullopt;
    }
  }();
  if (!model || model->adapter.empty()) return;
  if (model_digest(*model) == gradient_features::read_collection(collection).model_digest) return;
  throw UserError(
      fmt::format("{} was not collected at {}: are the folders in the same order? (If they are, "
                  "give --weights instead of --checkpoints)",
                  collection.string(), checkpoint.string()));
}

std::vector<double> weights_of(const Words& words) {
  if (!words.weights.empty()) {
    std::vector<double> weights;
    for (const auto& word : words.weights) {
      const auto value = config::parse_real(word);
      if (!value) throw UserError(fmt::format("--weights: '{}' is no number", word));
      weights.push_back(*value);
    }
    return weights;
  }
  if (!words.checkpoints.empty()) {
    if (words.checkpoints.size() != words.train.size()) {
      throw UserError(fmt::format("{} for {} of --train: give one for each, in the same order",
                                  counted(words.checkpoints.size(), "checkpoint"),
                                  counted(words.train.size(), "folder")));
    }
    for (size_t i = 0; i < words.train.size(); ++i) {
      check_checkpoint(words.checkpoints[i], words.train[i]);
    }
    return gradient_features::mean_learning_rates(
        {words.checkpoints.begin(), words.checkpoints.end()});
  }
  if (words.train.size() == 1) return {1};
  throw UserError(
      "how much does each checkpoint count? give --checkpoints DIR…, whose trainer_state.json say, "
      "or --weights X…");
}

// The rows that groups are read from are those that were collected.
void check_validation_file(const Words& words) {
  std::error_code ignored;
  if (fs::is_directory(words.validation_file, ignored)) {
    throw UserError(fmt::format("--validation-file: {} is a folder: name its file",
                                shown(words.validation_file)));
  }
  const gradient_features::LineIndex lines(words.validation_file);
  lines.require_lines();
  gradient_features::require_data_files(
      gradient_features::read_collection(words.validation[0]).data_files, std::span(&lines, 1),
      fmt::format("{} was collected from", words.validation[0]));
}

std::vector<std::string> groups_of(const Words& words) {
  if (words.groups.empty()) return {};
  std::error_code ignored;
  if (fs::exists(words.groups, ignored)) return gradient_features::groups_of_file(words.groups);
  if (words.validation_file.empty()) {
    throw UserError(fmt::format(
        "--groups '{}' is no file; if it is a key of the validation rows, give them too: "
        "--validation-file F",
        shown(words.groups)));
  }
  check_validation_file(words);
  return gradient_features::groups_by_key(words.validation_file, words.groups);
}

void check_name(const std::string& name) {
  constexpr size_t kMostBytes = 200;  // with its ending and a temporary's, 255
  const bool has_control = std::ranges::any_of(
      name, [](char letter) { return static_cast<unsigned char>(letter) < ' ' || letter == 127; });
  if (!name.empty() && name.size() <= kMostBytes && !has_control &&
      name.find('/') == std::string::npos) {
    return;
  }
  throw UserError(fmt::format("--name '{}' is no name of a file: give letters, at most {}",
                              shown(name), kMostBytes));
}

std::string name_of(const Words& words) {
  if (!words.name.empty()) return words.name;
  std::error_code ignored;  // of an empty word, which is no folder either
  const auto folder = fs::absolute(words.train[0], ignored).lexically_normal();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

// Of rows that are longer the beginning is compared.
void tell_dimension(const Words& words, int64_t dimension) {
  const int64_t train = gradient_features::read_collection(words.train[0]).dimension();
  const int64_t validation = gradient_features::read_collection(words.validation[0]).dimension();
  if (train == validation) return;
  log_info(
      "train rows have {} columns, validation rows {}: the first {} of both are compared (a "
      "smaller "
      "dimension is the beginning of a larger)",
      train, validation, dimension);
}

// "adam gradients in bfloat16".
std::string kind_of(const gradient_features::CollectionFacts& facts) {
  const bool is_gradients = facts.info_type == gradient_features::InfoType::kGrads;
  return fmt::format(
      "{} in {}",
      is_gradients ? fmt::format("{} gradients", gradient_features::word_of(facts.gradient_type))
                   : std::string(gradient_features::word_of(facts.info_type)),
      dtype_word(facts.dtype));
}

// What is compared with what. Score() refuses what cannot be; the rest is the user's to know.
void announce(const Words& words) {
  const auto train = gradient_features::read_collection(words.train[0]);
  const auto validation = gradient_features::read_collection(words.validation[0]);
  log_info("train rows: {}; validation rows: {}", kind_of(train), kind_of(validation));
  if (validation.info_type == gradient_features::InfoType::kGrads &&
      validation.gradient_type != gradient_features::GradientType::kSgd) {
    log_warning(
        "validation rows are {} gradients, where LESS takes sgd: what helps is a step's direction "
        "against the plain gradient; `skein gradients collect --validation` collects that",
        gradient_features::word_of(validation.gradient_type));
  }
  std::set<std::string> dtypes;
  for (const auto* folders : {&words.train, &words.validation}) {
    for (const auto& folder : *folders) {
      dtypes.emplace(dtype_word(gradient_features::read_collection(folder).dtype));
    }
  }
  if (dtypes.size() > 1) {
    log_warning("rows were computed in {}, which round differently: collect all with one dtype=…",
                fmt::join(dtypes, " and "));
  }
}

}  // namespace

int score_gradients(Arguments arguments) {
  const auto words = parse(arguments);
  const auto name = name_of(words);
  check_name(name);
  announce(words);
  const auto scores = gradient_features::score(
      {.train = {words.train.begin(), words.train.end()},
       .validation = {words.validation.begin(), words.validation.end()},
       .weights = weights_of(words),
       .groups = groups_of(words),
       .dimension = words.dimension,
       .threads = static_cast<int>(std::min<int64_t>(words.threads, 1024))});
  tell_overwritten(gradient_features::score_files(words.out, name));
  tell_dimension(words, scores.dimension);
  const auto files = gradient_features::write_scores(words.out, name, scores);
  if (scores.num_skipped > 0) {
    log_warning("{} without a row: last, with minus infinity",
                counted(static_cast<uint64_t>(scores.num_skipped), "sample"));
  }
  log_info("{}: {}, best {:.6f}; {} columns, {}, weights {:.4g}", files[0].string(),
           counted(scores.values.size(), "sample"), std::ranges::max(scores.values),
           scores.dimension, counted(scores.groups.size(), "group"),
           fmt::join(scores.weights, ", "));
  return 0;
}

}  // namespace skein::cli
