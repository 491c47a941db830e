// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/text/bpe_alphabet.h"
#include "skein/text/unicode.h"

namespace skein::text {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

// Without a tokenizer_config.json: the names of GPT-2 and Qwen, Llama 3, and the older ones.
constexpr const char* kUsualEnds[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};

StringMap<uint32_t> by_bytes(const StringMap<uint32_t>& vocabulary) {
  StringMap<uint32_t> bytes;
  bytes.reserve(vocabulary.size());
  for (const auto& [spelling, id] : vocabulary) {
    if (auto word = unspell_bytes(spelling)) bytes.emplace(std::move(*word), id);
  }
  return bytes;
}

std::vector<AddedToken> tokens_to_find(const TokenizerParts& parts, bool normalized) {
  std::vector<AddedToken> tokens;
  for (auto token : parts.added_tokens) {
    if (token.normalized != normalized) continue;
    if (normalized && parts.nfc) token.content = to_nfc(token.content);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

constexpr const char* kFilesBeside[] = {"tokenizer_config.json", "special_tokens_map.json"};

fs::path file_of(const fs::path& path) {
  std::error_code ignored;
  const auto file = fs::is_directory(path, ignored) ? path / "tokenizer.json" : path;
  if (!fs::is_regular_file(file, ignored)) {
    throw UserError(fmt::format(
        "there is no {}; `skein tokenizer train --input F --vocab-size N --out DIR` makes one",
        file.string()));
  }
  return file;
}

// What the files beside tokenizer.json say; the first that names a token wins.
TokenizerNames names_beside(const fs::path& file) {
  TokenizerNames names;
  for (const char* name : kFilesBeside) {
    const auto beside = file.parent_path() / name;
    if (!fs::exists(beside)) continue;
    const auto found = parse_tokenizer_config(read_file(beside, kMaxFileBytes), beside.string());
    if (!names.bos) names.bos = found.bos;
    if (!names.eos) names.eos = found.eos;
    if (!names.pad) names.pad = found.pad;
  }
  return names;
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& path) {
  const auto file = file_of(path);
  return parse(read_file(file, kMaxFileBytes), file.string(), names_beside(file));
}

Tokenizer Tokenizer::parse(std::string_view tokenizer_json, const std::string& name,
                           const TokenizerNames& names) {
  Tokenizer tokenizer(parse_tokenizer_json(tokenizer_json, name));
  tokenizer.set_names(names);
  tokenizer.digest_ = skein::digest(tokenizer_json);
  return tokenizer;
}

Tokenizer::Tokenizer(TokenizerParts parts)
    : nfc_(parts.nfc),
      raw_finder_(tokens_to_find(parts, false)),
      normalized_finder_(tokens_to_find(parts, true)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      bpe_(by_bytes(parts.vocabulary), parts.merges, parts.bpe),
      prefix_(std::move(parts.prefix)),
      suffix_(std::move(parts.suffix)),
      cuts_(parts.cuts) {
  for (const auto& [spelling, id] : parts.vocabulary) set_token(id, spelling, false);
  for (const auto& token : parts.added_tokens) set_token(token.id, token.content, token.special);
}

void Tokenizer::set_token(uint32_t id, std::string spelling, bool is_special) {
  if (id >= tokens_.size()) tokens_.resize(id + 1);
  ids_[spelling] = id;
  auto bytes = unspell_bytes(spelling);
  tokens_[id].bytes = bytes ? std::move(*bytes) : spelling;
  tokens_[id].spelling = std::move(spelling);
  tokens_[id].exists = true;
  tokens_[id].is_special = is_special;
}

void Tokenizer::set_names(const TokenizerNames& names) {
  const auto find = [this](const std::optional<std::string>& name) {
    return name ? id_of(*name) : std::nullopt;
  };
  bos_ = find(names.bos);
  eos_ = find(names.eos);
  pad_ = find(names.pad);
  for (const char* usual : kUsualEnds) {
    if (!eos_) eos_ = id_of(usual);
  }
}

std::string digest_of_files(const fs::path& path) {
  const auto file = file_of(path);
  auto digests = digest(read_file(file, kMaxFileBytes));
  for (const char* name : kFilesBeside) {
    const auto beside = file.parent_path() / name;
    digests += fs::exists(beside) ? digest(read_file(beside, kMaxFileBytes)) : "none";
  }
  return digest(digests);
}

std::vector<uint32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  if (valid_utf8_prefix(text) < text.size()) text = repaired = repaired_utf8(text);
  std::vector<uint32_t> ids;
  ids.reserve(text.size() / 4 + prefix_.size() + suffix_.size());
  if (options.add_special_tokens) ids = prefix_;
  for (const auto& part : raw_finder_.split(text)) {
    if (part.token) {
      ids.push_back(*part.token);
    } else if (nfc_) {
      encode_plain(to_nfc(part.text), ids);
    } else {
      encode_plain(part.text, ids);
    }
  }
  if (options.add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

void Tokenizer::encode_plain(std::string_view text, std::vector<uint32_t>& ids) const {
  for (const auto& part : normalized_finder_.split(text)) {
    if (part.token) {
      ids.push_back(*part.token);
    } else {
      pre_tokenizer_.for_each(part.text, [&](std::string_view word) { bpe_.encode(word, ids); });
    }
  }
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, DecodeOptions options) const {
  std::string bytes;
  for (const uint32_t id : ids) {
    if (!options.skip_special_tokens || !is_special(id)) bytes += bytes_of(id);
  }
  return repaired_utf8(bytes);
}

std::string_view Tokenizer::bytes_of(uint32_t id) const {
  return id < tokens_.size() ? std::string_view(tokens_[id].bytes) : std::string_view();
}

std::optional<uint32_t> Tokenizer::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> Tokenizer::token_of(uint32_t id) const {
  if (id >= tokens_.size() || !tokens_[id].exists) return std::nullopt;
  return tokens_[id].spelling;
}

}  // namespace skein::text
