// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_set>

namespace skein::text {
namespace {

constexpr size_t kMaxAddedTokenBytes = 1024;

// Whether no pre-token lies across a safe cut, as far as is known.
bool keeps_safe_cuts(const PartReader& reader, const Json& root) {
  for (const auto& step : reader.sequence(reader.at(root, "normalizer"), "normalizers")) {
    if (reader.type(step) != "NFC") return false;
  }
  const auto steps = reader.sequence(reader.at(root, "pre_tokenizer"), "pretokenizers");
  if (steps.empty() || reader.type(steps.back()) != "ByteLevel") return false;
  for (const auto& step : std::span(steps).first(steps.size() - 1)) {
    const auto& pattern = reader.at(step, "pattern");
    if (reader.type(step) != "Split" || reader.text(step, "behavior") != "Isolated" ||
        !pattern.contains("Regex") || !has_safe_cuts(reader.text(pattern, "Regex"))) {
      return false;
    }
  }
  const bool splits = steps.size() > 1 || reader.flag(steps.back(), "use_regex", true);
  return splits && !reader.flag(steps.back(), "add_prefix_space", true);
}

// Metaspace looks whether a piece begins the original. A piece that was changed before does not
// know unless its origins are tracked.
bool needs_origins(const PartReader& reader, const Json& root) {
  bool was_changed = !reader.at(root, "normalizer").is_null();
  for (const auto& step : reader.sequence(reader.at(root, "pre_tokenizer"), "pretokenizers")) {
    const auto type = reader.type(step);
    const bool is_metaspace = type == "Metaspace";
    if (is_metaspace && was_changed && reader.at(step, "prepend_scheme") == "first") return true;
    was_changed |= is_metaspace || type == "ByteLevel";
  }
  return false;
}

StringMap<uint32_t> read_vocabulary(const PartReader& reader, const Json& model) {
  const auto& vocab = reader.at(model, "vocab");
  if (!vocab.is_object()) reader.refuse("'vocab' must be an object of tokens and ids");
  StringMap<uint32_t> vocabulary;
  vocabulary.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items()) vocabulary.emplace(token, reader.id(id));
  return vocabulary;
}

// "a b", or ["a", "b"] in files whose tokens may hold spaces.
std::pair<std::string, std::string> merge_parts(const PartReader& reader, const Json& merge) {
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

std::vector<Merge> read_merges(const PartReader& reader, const Json& model,
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

void require_bpe(const PartReader& reader, const Json& model) {
  const auto& type = reader.at(model, "type");  // absent in old files
  if (!type.is_null() && reader.type(model) != "BPE") {
    reader.refuse_type("model", reader.type(model), "BPE");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto& value = reader.at(model, key);
    if (!value.is_null() && value != "") reader.refuse(fmt::format("'{}' must be empty", key));
  }
  const auto& dropout = reader.at(model, "dropout");
  if (!dropout.is_null() && dropout != 0.0) reader.refuse("'dropout' must be null");
}

std::optional<std::string> unknown_of(const PartReader& reader, const Json& model) {
  if (reader.at(model, "unk_token").is_null()) return std::nullopt;
  return reader.text(model, "unk_token");
}

BpeOptions read_bpe_options(const PartReader& reader, const Json& model,
                            const StringMap<uint32_t>& vocabulary) {
  BpeOptions options;
  options.fuse_unknown = reader.flag(model, "fuse_unk", false);
  options.ignore_merges = reader.flag(model, "ignore_merges", false);
  options.byte_fallback = reader.flag(model, "byte_fallback", false);
  if (const auto unknown = unknown_of(reader, model)) {
    const auto found = vocabulary.find(*unknown);
    if (found != vocabulary.end()) options.unknown = found->second;
  }
  return options;
}

AddedToken read_added_token(const PartReader& reader, const Json& entry) {
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

std::vector<AddedToken> read_added_tokens(const PartReader& reader, const Json& root,
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

std::optional<std::string> read_token_name(const PartReader& reader, const Json& root,
                                           const char* key) {
  const auto& value = reader.at(root, key);
  if (value.is_null()) return std::nullopt;
  return value.is_object() ? reader.text(value, "content") : reader.text(root, key);
}

// What the post-processor adds reaches the model's embedding like every other token.
void require_known_ids(const PartReader& reader, const TokenizerParts& parts) {
  std::unordered_set<uint32_t> known;
  for (const auto& [spelling, id] : parts.vocabulary) known.insert(id);
  for (const auto& token : parts.added_tokens) known.insert(token.id);
  auto ids = parts.post_processors.prefix();
  const auto suffix = parts.post_processors.suffix();
  ids.insert(ids.end(), suffix.begin(), suffix.end());
  for (const auto id : ids) {
    if (known.contains(id)) continue;
    reader.refuse(fmt::format(
        "the post_processor adds token {}, which neither the vocabulary nor added_tokens has", id));
  }
}

}  // namespace

TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& name) {
  const PartReader reader(name);
  const auto root = reader.parse(text);
  const auto& model = reader.at(root, "model");
  require_bpe(reader, model);
  TokenizerParts parts;
  parts.normalizers = Normalizers::read(reader, reader.at(root, "normalizer"));
  parts.pre_tokenizers = PreTokenizers::read(reader, reader.at(root, "pre_tokenizer"));
  parts.post_processors = PostProcessors::read(reader, reader.at(root, "post_processor"));
  parts.decoders = Decoders::read(reader, reader.at(root, "decoder"));
  parts.vocabulary = read_vocabulary(reader, model);
  parts.merges = read_merges(reader, model, parts.vocabulary);
  parts.bpe = read_bpe_options(reader, model, parts.vocabulary);
  if (!parts.bpe.unknown) parts.lost_unknown = unknown_of(reader, model);
  parts.added_tokens = read_added_tokens(reader, root, parts.vocabulary);
  require_known_ids(reader, parts);
  parts.needs_origins = needs_origins(reader, root);
  if (keeps_safe_cuts(reader, root) && std::ranges::all_of(parts.added_tokens, is_local)) {
    parts.cuts = Cuts::kBetweenWords;
  }
  return parts;
}

TokenizerNames parse_tokenizer_config(std::string_view text, const std::string& name) {
  const PartReader reader(name);
  const auto root = reader.parse(text);
  return {.bos = read_token_name(reader, root, "bos_token"),
          .eos = read_token_name(reader, root, "eos_token"),
          .pad = read_token_name(reader, root, "pad_token")};
}

}  // namespace skein::text
