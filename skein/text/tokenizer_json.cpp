// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "skein/core/error.h"
#include "skein/core/json.h"
#include "skein/text/pretokenizer_pattern.h"

namespace skein::text {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kLimits{.bytes = uint64_t{256} << 20, .depth = 16};
constexpr uint64_t kMaxId = 10'000'000;  // a table of ids is made: no file may ask for all of them
constexpr size_t kMaxAddedTokenBytes = 1024;
constexpr size_t kMaxSplits = 16;

// Reads one file; every refusal begins with its name.
class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  Json parse(std::string_view text) const {
    auto json = parse_json<UserError>(text, name_, kLimits);
    if (!json.is_object()) refuse("expected an object");
    return json;
  }

  [[noreturn]] void refuse(std::string_view reason) const {
    throw UserError(fmt::format("{}: {}", name_, reason));
  }

  // Null where the key is absent.
  const Json& at(const Json& object, const char* key) const {
    static const Json kNull;
    if (!object.is_object()) refuse(fmt::format("expected an object that may hold '{}'", key));
    const auto found = object.find(key);
    return found == object.end() ? kNull : *found;
  }

  bool flag(const Json& object, const char* key, bool otherwise) const {
    const auto& value = at(object, key);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) refuse(fmt::format("'{}' must be true or false", key));
    return value.get<bool>();
  }

  const std::string& text(const Json& object, const char* key) const {
    const auto& value = at(object, key);
    if (!value.is_string()) refuse(fmt::format("'{}' must be a string", key));
    return value.get_ref<const std::string&>();
  }

  const Json& list(const Json& object, const char* key) const {
    const auto& value = at(object, key);
    if (!value.is_array()) refuse(fmt::format("'{}' must be a list", key));
    return value;
  }

  uint32_t id(const Json& value) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kMaxId) {
      refuse(fmt::format("a token id must be a number from 0 to {}", kMaxId));
    }
    return value.get<uint32_t>();
  }

  // A part of the tokenizer: its "type", or an empty name for null.
  std::string type(const Json& part) const { return part.is_null() ? "" : text(part, "type"); }

  [[noreturn]] void refuse_type(const char* part, const std::string& type,
                                const char* known) const {
    refuse(fmt::format("the {} '{}' is not one that skein knows ({})", part,
                       type.empty() ? "null" : type.substr(0, 64), known));
  }

  // The members of a Sequence under `key`, or the part itself; null: none.
  std::vector<Json> sequence(const Json& part, const char* key) const {
    if (part.is_null()) return {};
    if (type(part) != "Sequence") return {part};
    std::vector<Json> members;
    for (const auto& member : list(part, key)) members.push_back(member);
    return members;
  }

 private:
  const std::string& name_;
};

bool has_nfc(const Reader& reader, const Json& normalizer) {
  bool nfc = false;
  for (const auto& step : reader.sequence(normalizer, "normalizers")) {
    if (reader.type(step) != "NFC") {
      reader.refuse_type("normalizer", reader.type(step), "null, NFC");
    }
    nfc = true;
  }
  return nfc;
}

SplitBehavior behavior_of(const Reader& reader, const Json& split) {
  const auto& name = reader.text(split, "behavior");
  const bool invert = reader.flag(split, "invert", false);
  if (name == "Isolated") return SplitBehavior::kIsolated;  // inverted it is the same
  if (name == "Removed") return invert ? SplitBehavior::kKeepsMatches : SplitBehavior::kKeepsGaps;
  reader.refuse_type("Split behavior", name, "Isolated, Removed");
}

std::string pattern_of(const Reader& reader, const Json& split) {
  const auto& pattern = reader.at(split, "pattern");
  if (pattern.is_object() && pattern.contains("Regex")) return reader.text(pattern, "Regex");
  const auto& literal = reader.text(pattern, "String");
  if (literal.empty()) reader.refuse("a Split pattern is empty");
  return quoted_pattern(literal);
}

// A pattern's refusal does not know the file.
Splitter make_splitter(const Reader& reader, const std::string& pattern, SplitBehavior behavior) {
  try {
    return Splitter(pattern, behavior);
  } catch (const UserError& error) {
    reader.refuse(error.what());
  }
}

// Read together: only the patterns say where a text may be cut.
struct PreTokenizerPart {
  PreTokenizerOptions options;
  bool has_safe_cuts = false;
};

PreTokenizerPart read_pre_tokenizer(const Reader& reader, const Json& part) {
  constexpr const char* kKnown = "ByteLevel, or a Sequence of Split and Digits that ends with it";
  const auto steps = reader.sequence(part, "pretokenizers");
  if (steps.empty() || reader.type(steps.back()) != "ByteLevel") {
    reader.refuse_type("pre_tokenizer", steps.empty() ? "" : reader.type(steps.back()), kKnown);
  }
  if (steps.size() > kMaxSplits) reader.refuse("the pre_tokenizer has too many steps");
  PreTokenizerOptions options;
  bool all_safe = true;
  for (const auto& step : std::span(steps).first(steps.size() - 1)) {
    const auto type = reader.type(step);
    if (type == "Split") {
      const auto behavior = behavior_of(reader, step);
      const auto pattern = pattern_of(reader, step);
      options.splits.push_back(make_splitter(reader, pattern, behavior));
      all_safe &= behavior == SplitBehavior::kIsolated && has_safe_cuts(pattern);
    } else if (type == "Digits") {
      const bool one_by_one = reader.flag(step, "individual_digits", false);
      options.splits.push_back(
          make_splitter(reader, one_by_one ? "\\p{N}" : "\\p{N}+", SplitBehavior::kIsolated));
      all_safe = false;
    } else {
      reader.refuse_type("pre_tokenizer", type, kKnown);
    }
  }
  options.add_prefix_space = reader.flag(steps.back(), "add_prefix_space", true);
  options.gpt2_split = reader.flag(steps.back(), "use_regex", true);
  const bool splits = options.gpt2_split || !options.splits.empty();
  all_safe &= splits && !options.add_prefix_space;
  return {std::move(options), all_safe};
}

StringMap<uint32_t> read_vocabulary(const Reader& reader, const Json& model) {
  const auto& vocab = reader.at(model, "vocab");
  if (!vocab.is_object()) reader.refuse("'vocab' must be an object of tokens and ids");
  StringMap<uint32_t> vocabulary;
  vocabulary.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items()) vocabulary.emplace(token, reader.id(id));
  return vocabulary;
}

// "a b", or ["a", "b"] in files whose tokens may hold spaces.
std::pair<std::string, std::string> merge_parts(const Reader& reader, const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const auto space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  reader.refuse("a merge must be two tokens, as \"a b\" or [\"a\", \"b\"]");
}

std::vector<Merge> read_merges(const Reader& reader, const Json& model,
                               const StringMap<uint32_t>& vocabulary) {
  std::vector<Merge> merges;
  const auto id_of = [&](const std::string& token) {
    const auto found = vocabulary.find(token);
    if (found == vocabulary.end()) {
      reader.refuse(fmt::format("merge {} needs the token '{}', which is not in the vocabulary",
                                merges.size(), token.substr(0, 64)));
    }
    return found->second;
  };
  for (const auto& merge : reader.list(model, "merges")) {
    const auto [left, right] = merge_parts(reader, merge);
    if (left.empty() || right.empty()) reader.refuse("a merge of an empty token");
    merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
  return merges;
}

void require_byte_level(const Reader& reader, const Json& model) {
  const auto& type = reader.at(model, "type");  // absent in old files
  if (!type.is_null() && reader.type(model) != "BPE") {
    reader.refuse_type("model", reader.type(model), "BPE");
  }
  if (reader.flag(model, "byte_fallback", false)) {
    reader.refuse("byte_fallback is not known to skein: only byte-level BPE is");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto& value = reader.at(model, key);
    if (!value.is_null() && value != "") reader.refuse(fmt::format("'{}' must be empty", key));
  }
  const auto& dropout = reader.at(model, "dropout");
  if (!dropout.is_null() && dropout != 0.0) reader.refuse("'dropout' must be null");
}

BpeOptions read_bpe_options(const Reader& reader, const Json& model,
                            const StringMap<uint32_t>& vocabulary) {
  BpeOptions options;
  options.fuse_unknown = reader.flag(model, "fuse_unk", false);
  options.ignore_merges = reader.flag(model, "ignore_merges", false);
  if (const auto& unknown = reader.at(model, "unk_token"); !unknown.is_null()) {
    const auto found = vocabulary.find(reader.text(model, "unk_token"));
    if (found != vocabulary.end()) options.unknown = found->second;
  }
  return options;
}

AddedToken read_added_token(const Reader& reader, const Json& entry) {
  AddedToken token{.id = reader.id(reader.at(entry, "id")),
                   .content = reader.text(entry, "content"),
                   .special = reader.flag(entry, "special", false),
                   .single_word = reader.flag(entry, "single_word", false),
                   .lstrip = reader.flag(entry, "lstrip", false),
                   .rstrip = reader.flag(entry, "rstrip", false)};
  token.normalized = reader.flag(entry, "normalized", !token.special);
  if (token.content.size() > kMaxAddedTokenBytes) {
    reader.refuse(fmt::format("an added token of {} bytes; skein takes {} at most",
                              token.content.size(), kMaxAddedTokenBytes));
  }
  return token;
}

// Whether the token is found in a part of a text if and only if it is found in the whole.
bool is_local(const AddedToken& token) {
  return token.content.find_first_of(" \t\r\n") == std::string::npos && !token.lstrip &&
         !token.rstrip;
}

std::vector<AddedToken> read_added_tokens(const Reader& reader, const Json& root,
                                          const StringMap<uint32_t>& vocabulary) {
  std::vector<AddedToken> tokens;
  if (reader.at(root, "added_tokens").is_null()) return tokens;
  for (const auto& entry : reader.list(root, "added_tokens")) {
    auto token = read_added_token(reader, entry);
    if (token.content.empty()) continue;
    const auto found = vocabulary.find(token.content);
    if (found != vocabulary.end() && found->second != token.id) {
      reader.refuse(fmt::format("the added token '{}' has id {}, in the vocabulary {}",
                                token.content, token.id, found->second));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": …}
void read_template(const Reader& reader, const Json& part, TokenizerParts& parts) {
  const auto& special = reader.at(part, "special_tokens");
  bool after_text = false;
  for (const auto& piece : reader.list(part, "single")) {
    if (piece.is_object() && piece.contains("Sequence")) {
      if (after_text) reader.refuse("the post_processor repeats the text");
      after_text = true;
      continue;
    }
    const auto& name = reader.text(reader.at(piece, "SpecialToken"), "id");
    auto& side = after_text ? parts.suffix : parts.prefix;
    for (const auto& id : reader.list(reader.at(special, name.c_str()), "ids")) {
      side.push_back(reader.id(id));
    }
  }
  if (!after_text) reader.refuse("the post_processor drops the text");
}

void read_post_processor(const Reader& reader, const Json& part, TokenizerParts& parts) {
  for (const auto& step : reader.sequence(part, "processors")) {
    const auto type = reader.type(step);
    if (type == "ByteLevel") continue;  // concerns offsets only
    if (type != "TemplateProcessing" || !parts.prefix.empty() || !parts.suffix.empty()) {
      reader.refuse_type("post_processor", type, "null, ByteLevel, one TemplateProcessing");
    }
    read_template(reader, step, parts);
  }
}

void require_byte_level_decoder(const Reader& reader, const Json& part) {
  const auto steps = reader.sequence(part, "decoders");
  if (steps.size() != 1 || reader.type(steps[0]) != "ByteLevel") {
    reader.refuse_type("decoder", steps.empty() ? "" : reader.type(steps[0]), "ByteLevel");
  }
}

std::optional<std::string> read_token_name(const Reader& reader, const Json& root,
                                           const char* key) {
  const auto& value = reader.at(root, key);
  if (value.is_null()) return std::nullopt;
  return value.is_object() ? reader.text(value, "content") : reader.text(root, key);
}

}  // namespace

TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& name) {
  const Reader reader(name);
  const auto root = reader.parse(text);
  const auto& model = reader.at(root, "model");
  require_byte_level(reader, model);
  require_byte_level_decoder(reader, reader.at(root, "decoder"));
  TokenizerParts parts;
  parts.nfc = has_nfc(reader, reader.at(root, "normalizer"));
  auto pre_tokenizer = read_pre_tokenizer(reader, reader.at(root, "pre_tokenizer"));
  parts.pre_tokenizer = std::move(pre_tokenizer.options);
  parts.vocabulary = read_vocabulary(reader, model);
  parts.merges = read_merges(reader, model, parts.vocabulary);
  parts.bpe = read_bpe_options(reader, model, parts.vocabulary);
  parts.added_tokens = read_added_tokens(reader, root, parts.vocabulary);
  read_post_processor(reader, reader.at(root, "post_processor"), parts);
  if (pre_tokenizer.has_safe_cuts && std::ranges::all_of(parts.added_tokens, is_local)) {
    parts.cuts = Cuts::kBetweenWords;
  }
  return parts;
}

TokenizerNames parse_tokenizer_config(std::string_view text, const std::string& name) {
  const Reader reader(name);
  const auto root = reader.parse(text);
  return {.bos = read_token_name(reader, root, "bos_token"),
          .eos = read_token_name(reader, root, "eos_token"),
          .pad = read_token_name(reader, root, "pad_token")};
}

}  // namespace skein::text
