// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/collection_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/hash.h"
#include "skein/core/json.h"

namespace skein::gradient_features {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kLimits{.bytes = uint64_t{16} << 20, .depth = 2, .whole_numbers = true};
constexpr std::string_view kFormatName = "skein gradients";
constexpr int kVersion = 1;  // stored on disk: a reader refuses others
constexpr int64_t kMaxSamples = int64_t{1} << 40;
constexpr int64_t kMaxBlocks = int64_t{1} << 31;

template <typename Choice, size_t N>
std::optional<Choice> find_word(const std::array<Choice, N>& choices, std::string_view word) {
  for (const auto choice : choices) {
    if (word == word_of(choice)) return choice;
  }
  return std::nullopt;
}

std::string json_text(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_text(const std::vector<std::string>& names) {
  std::vector<std::string> each;
  for (const auto& name : names) each.push_back(json_text(name));
  return fmt::format("[{}]", fmt::join(each, ", "));
}

std::vector<std::string> texts_of(const std::vector<DataFile>& files) {
  std::vector<std::string> texts;
  for (const auto& file : files) texts.push_back(to_text(file));
  return texts;
}

template <typename Choice>
Choice choice_in(const Json& json, const char* key,
                 std::optional<Choice> (*find)(std::string_view)) {
  const auto word = json.at(key).get<std::string>();
  const auto choice = find(word);
  if (!choice) throw IoError(fmt::format("{} is '{}'", key, shown(word)));
  return *choice;
}

std::optional<DType> output_dtype(std::string_view word) {
  for (const auto dtype : {DType::kF32, DType::kF16}) {
    if (word == dtype_word(dtype)) return dtype;
  }
  return std::nullopt;
}

std::optional<DType> compute_dtype(std::string_view word) {
  if (word == dtype_word(DType::kF64)) return DType::kF64;
  if (word == dtype_word(DType::kBF16)) return DType::kBF16;
  return output_dtype(word);
}

void check_format(const Json& json) {
  if (json.at("format") != kFormatName) throw IoError("it is no collection of gradients");
  if (json.at("version") != kVersion) {
    throw IoError(fmt::format("format version {}, and this program reads {}",
                              shown(json.at("version").dump()), kVersion));
  }
}

std::vector<DataFile> data_files_in(const Json& json) {
  std::vector<DataFile> files;
  for (const auto& text : json.at("data_files").get<std::vector<std::string>>()) {
    files.push_back(parse_data_file(text));
  }
  return files;
}

CollectionFacts facts_in(const Json& json) {
  check_format(json);
  return {.info_type = choice_in(json, "info_type", info_type),
          .gradient_type = choice_in(json, "gradient_type", gradient_type),
          .adam_form = choice_in(json, "adam_form", adam_form),
          .projection = choice_in(json, "projection", projection_kind),
          .seed = json.at("seed").get<uint64_t>(),
          .dimensions = json.at("dimensions").get<std::vector<int64_t>>(),
          .output_dtype = choice_in(json, "output_dtype", output_dtype),
          .projection_digest = json.at("projection_digest").get<std::string>(),
          .model_digest = json.at("model_digest").get<std::string>(),
          .moments_digest = json.at("moments_digest").get<std::string>(),
          .dtype = choice_in(json, "dtype", compute_dtype),
          .data_digest = json.at("data_digest").get<std::string>(),
          .data_files = data_files_in(json),
          .num_samples = json.at("num_samples").get<int64_t>(),
          .max_samples = json.at("max_samples").get<int64_t>(),
          .samples_per_block = json.at("samples_per_block").get<int64_t>(),
          .batch_tokens = json.at("batch_tokens").get<int64_t>(),
          .max_length = json.at("max_length").get<int64_t>(),
          .excess_length = json.at("excess_length").get<std::string>(),
          .parameters = json.at("parameters").get<std::vector<std::string>>()};
}

void check_dimensions(const CollectionFacts& facts) {
  const auto& dimensions = facts.dimensions;
  if (dimensions.empty()) throw UserError("gradient_projection_dimension names no dimension");
  for (const int64_t dimension : dimensions) {
    if (dimension >= 1 && dimension <= kMaxDimension) continue;
    throw UserError(fmt::format("gradient_projection_dimension is {}, expected 1 to {}", dimension,
                                kMaxDimension));
  }
  if (std::ranges::adjacent_find(dimensions, std::greater_equal()) != dimensions.end()) {
    throw UserError(fmt::format("gradient_projection_dimension is {}, expected rising numbers",
                                fmt::join(dimensions, ",")));
  }
  if (facts.projection != ProjectionKind::kDense && dimensions.size() > 1) {
    throw UserError(
        fmt::format("gradient_projection_dimension is {}, but only `projection: dense` has several "
                    "in one pass (it is {}): give one",
                    fmt::join(dimensions, ","), word_of(facts.projection)));
  }
}

// Others need an element's whole gradient, which a factorised projection never forms.
void check_form(const CollectionFacts& facts) {
  if (facts.projection != ProjectionKind::kFactorised) return;
  if (facts.gradient_type == GradientType::kSgd && facts.info_type == InfoType::kGrads) return;
  throw UserError(fmt::format("`projection: factorised` is of sgd gradients, not of {} {}",
                              word_of(facts.gradient_type), word_of(facts.info_type)));
}

void check_data_files(const CollectionFacts& facts) {
  int64_t rows = 0;
  for (const auto& file : facts.data_files) {
    if (file.rows < 0 || file.rows > kMaxSamples || rows > kMaxSamples) {
      throw UserError(fmt::format("a data file of {} rows", file.rows));
    }
    rows += file.rows;
  }
  if (rows >= facts.num_samples) return;
  throw UserError(fmt::format("{} samples of data files with {} rows", facts.num_samples, rows));
}

void check_counts(const CollectionFacts& facts) {
  if (facts.num_samples < 1 || facts.num_samples > kMaxSamples) {
    throw UserError(fmt::format("{} samples, expected 1 to {}", facts.num_samples, kMaxSamples));
  }
  const int64_t most = most_samples_per_block(facts.dimension());
  if (facts.samples_per_block < 1 || facts.samples_per_block > most) {
    throw UserError(fmt::format("blocks of {} samples, expected 1 to {} with {} columns",
                                facts.samples_per_block, most, facts.dimension()));
  }
  if (facts.num_blocks() > kMaxBlocks) {
    throw UserError(
        fmt::format("{} blocks, more than {}: make them larger", facts.num_blocks(), kMaxBlocks));
  }
  if (facts.batch_tokens < 1 || facts.max_length < 0 || facts.max_samples < 0 ||
      (facts.max_samples > 0 && facts.max_samples < facts.num_samples)) {
    throw UserError(
        fmt::format("batch_tokens {}, max_length {}, max_samples {} of {} samples do "
                    "not go together",
                    facts.batch_tokens, facts.max_length, facts.max_samples, facts.num_samples));
  }
}

bool is_digest(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void check_digests(const CollectionFacts& facts) {
  const bool has_moments =
      facts.info_type == InfoType::kGrads && facts.gradient_type == GradientType::kAdam;
  const std::pair<const char*, const std::string&> digests[] = {
      {"projection_digest", facts.projection_digest},
      {"model_digest", facts.model_digest},
      {"data_digest", facts.data_digest}};
  for (const auto& [key, value] : digests) {
    if (!is_digest(value)) throw UserError(fmt::format("{} is '{}'", key, shown(value)));
  }
  if (has_moments ? !is_digest(facts.moments_digest) : !facts.moments_digest.empty()) {
    throw UserError(fmt::format("moments_digest is '{}'", shown(facts.moments_digest)));
  }
}

}  // namespace

std::string_view word_of(InfoType type) {
  constexpr std::string_view kWords[] = {"grads", "reps", "loss"};
  return kWords[static_cast<int>(type)];
}

std::string_view word_of(GradientType type) {
  constexpr std::string_view kWords[] = {"adam", "sgd", "sign"};
  return kWords[static_cast<int>(type)];
}

std::string_view word_of(AdamForm form) { return form == AdamForm::kLess ? "less" : "standard"; }

std::optional<InfoType> info_type(std::string_view word) {
  return find_word(std::array{InfoType::kGrads, InfoType::kReps, InfoType::kLoss}, word);
}

std::optional<GradientType> gradient_type(std::string_view word) {
  return find_word(std::array{GradientType::kAdam, GradientType::kSgd, GradientType::kSign}, word);
}

std::optional<AdamForm> adam_form(std::string_view word) {
  return find_word(std::array{AdamForm::kLess, AdamForm::kStandard}, word);
}

int64_t most_samples_per_block(int64_t dimension) {
  const int64_t most = kMaxBlockBytes / (dimension * int64_t{sizeof(float)});
  return std::clamp<int64_t>(most, 1, kMaxSamplesPerBlock);
}

void check_facts(const CollectionFacts& facts) {
  check_dimensions(facts);
  check_form(facts);
  if (!output_dtype(dtype_word(facts.output_dtype))) {
    throw UserError(fmt::format("output_dtype is {}, expected float32 or float16",
                                dtype_word(facts.output_dtype)));
  }
  if (!compute_dtype(dtype_word(facts.dtype))) {
    throw UserError(
        fmt::format("dtype is {}, in which nothing is computed", dtype_word(facts.dtype)));
  }
  constexpr std::string_view kExcess[] = {"truncate", "drop", "error"};
  if (std::ranges::find(kExcess, facts.excess_length) == std::end(kExcess)) {
    throw UserError(fmt::format("excess_length is '{}', expected truncate, drop or error",
                                shown(facts.excess_length)));
  }
  check_counts(facts);
  check_data_files(facts);
  check_digests(facts);
}

void check_signs_fit(const CollectionFacts& facts, int64_t num_elements) {
  constexpr double kMostHalf = 65504, kDeviations = 6;
  if (facts.gradient_type != GradientType::kSign || facts.output_dtype != DType::kF16) return;
  if (kDeviations * std::sqrt(static_cast<double>(num_elements)) <= kMostHalf) return;
  throw UserError(
      fmt::format("signs of {} elements add up to more than float16 holds: give --output_dtype "
                  "float32, or fewer --parameters",
                  num_elements));
}

namespace {

// "37 rows in 1 file".
std::string rows_in_words(const CollectionFacts& facts) {
  int64_t rows = 0;
  for (const auto& file : facts.data_files) rows += file.rows;
  return fmt::format("{} in {}", counted(static_cast<uint64_t>(rows), "row"),
                     counted(facts.data_files.size(), "file"));
}

std::string parameter_difference(const CollectionFacts& one, const CollectionFacts& other) {
  if (one.parameters == other.parameters) {
    return one.seed == other.seed
               ? std::string("the parameters have the same names and other shapes: another model")
               : fmt::format("the seed of the projection is {} against {}", one.seed, other.seed);
  }
  const auto [mine, theirs] = std::ranges::mismatch(one.parameters, other.parameters);
  return fmt::format(
      "the parameters that are projected are others, {} against {}: the first that differs is {}",
      one.parameters.size(), other.parameters.size(),
      shown(mine != one.parameters.end() ? *mine : *theirs));
}

}  // namespace

std::vector<FactEntry> fact_entries(const CollectionFacts& facts) {
  return {{"format", json_text(kFormatName)},
          {"version", fmt::format("{}", kVersion)},
          {"info_type", json_text(word_of(facts.info_type))},
          {"gradient_type", json_text(word_of(facts.gradient_type))},
          {"adam_form", json_text(word_of(facts.adam_form))},
          {"projection", json_text(word_of(facts.projection))},
          {"seed", fmt::format("{}", facts.seed)},
          {"dimensions", fmt::format("[{}]", fmt::join(facts.dimensions, ", "))},
          {"output_dtype", json_text(dtype_word(facts.output_dtype))},
          {"projection_digest", json_text(facts.projection_digest)},
          {"model_digest", json_text(facts.model_digest)},
          {"moments_digest", json_text(facts.moments_digest)},
          {"dtype", json_text(dtype_word(facts.dtype))},
          {"data_digest", json_text(facts.data_digest)},
          {"data_files", json_text(texts_of(facts.data_files))},
          {"num_samples", fmt::format("{}", facts.num_samples)},
          {"max_samples", fmt::format("{}", facts.max_samples)},
          {"samples_per_block", fmt::format("{}", facts.samples_per_block)},
          {"batch_tokens", fmt::format("{}", facts.batch_tokens)},
          {"max_length", fmt::format("{}", facts.max_length)},
          {"excess_length", json_text(facts.excess_length)},
          {"parameters", json_text(facts.parameters)}};
}

std::string facts_text(const CollectionFacts& facts) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : fact_entries(facts)) {
    lines.push_back(fmt::format(" \"{}\": {}", key, value));
  }
  return fmt::format("{{\n{}\n}}\n", fmt::join(lines, ",\n"));
}

CollectionFacts parse_facts(std::string_view text, std::string_view file) try {
  const auto facts = facts_in(parse_json(text, kLimits));
  check_facts(facts);
  // What is not compared with anything else (a digest, a name) must not have changed either.
  if (facts_text(facts) != text) throw IoError("its text is not what skein writes");
  return facts;
} catch (const JsonError& error) {
  throw IoError(json_message(error, text, file));
} catch (const std::exception& error) {
  throw IoError(fmt::format("{} is damaged, or another program's: {}", file, shown(error.what())));
}

std::string facts_digest(const CollectionFacts& facts) { return digest(facts_text(facts)); }

std::string difference_in_words(std::string_view key, const CollectionFacts& one,
                                const CollectionFacts& other) {
  if (key == "projection_digest" || key == "parameters") return parameter_difference(one, other);
  if (key == "model_digest") {
    return "the model is another: its weights, its adapter's, or its settings (config.json, "
           "adapter_config.json)";
  }
  if (key == "moments_digest") {
    return "the optimizer's moments are others, or another number of updates";
  }
  if (key != "data_digest" && key != "data_files") return "";
  if (one.data_files == other.data_files) {
    return "the files of rows are the same, and their tokens others: another tokenizer, template "
           "or mask";
  }
  const auto rows = rows_in_words(one), others = rows_in_words(other);
  return fmt::format("the files of rows are others, {} against {}", rows,
                     rows == others ? "as many with other bytes" : others);
}

std::optional<std::string> first_difference(const CollectionFacts& there,
                                            const CollectionFacts& now) {
  const auto old_entries = fact_entries(there), new_entries = fact_entries(now);
  for (size_t i = 0; i < old_entries.size(); ++i) {
    const auto& [key, value] = old_entries[i];
    if (value == new_entries[i].value) continue;
    if (auto words = difference_in_words(key, there, now); !words.empty()) return words;
    return fmt::format("{} is {} there and {} now", key, shown(value), shown(new_entries[i].value));
  }
  return std::nullopt;
}

}  // namespace skein::gradient_features
