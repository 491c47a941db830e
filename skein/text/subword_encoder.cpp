// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/subword_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "skein/core/error.h"
#include "skein/core/hash.h"

namespace skein::text {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

// Patterns whose matches never lie across a safe cut: GPT-2's, Llama 3's (cl100k's), Qwen's.
const std::array<std::string_view, 3> kKnownPatterns = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

// Absent members are null.
const Json& member(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

bool splits_by_known_pattern(const Json& step) {
  const auto& type = member(step, "type");
  if (type == "ByteLevel") return member(step, "add_prefix_space") == false;
  const auto& pattern = member(member(step, "pattern"), "Regex");
  return type == "Split" && member(step, "behavior") == "Isolated" && pattern.is_string() &&
         member(step, "invert") != true &&
         std::ranges::find(kKnownPatterns, pattern.get<std::string>()) != kKnownPatterns.end();
}

bool is_local(const Json& added_token) {
  const auto& content = member(added_token, "content");
  return content.is_string() &&
         content.get<std::string>().find_first_of(" \t\r\n") == std::string::npos &&
         member(added_token, "lstrip") != true && member(added_token, "rstrip") != true;
}

fs::path file_of(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? path / "tokenizer.json" : path;
}

std::string read_tokenizer(const fs::path& path) {
  const auto file = file_of(path);
  if (std::error_code ignored; !fs::is_regular_file(file, ignored)) {
    throw UserError(
        fmt::format("tokenizer_name_or_path: there is no {}; give a folder with a tokenizer.json, "
                    "or make one with `skein tokenizer train`",
                    file.string()));
  }
  return read_file(file, kMaxFileBytes);
}

}  // namespace

Cuts cuts_of_tokenizer(std::string_view tokenizer_json) {
  const auto json = Json::parse(tokenizer_json, nullptr, /*allow_exceptions=*/false);
  const auto& normalizer = member(json, "normalizer");
  if (!normalizer.is_null() && member(normalizer, "type") != "NFC") return Cuts::kNowhere;
  const auto& added = member(json, "added_tokens");
  if (!std::all_of(added.begin(), added.end(), is_local)) return Cuts::kNowhere;
  const auto& splitter = member(json, "pre_tokenizer");
  const auto& steps = member(splitter, "pretokenizers");
  const bool is_known =
      member(splitter, "type") == "Sequence"
          ? !steps.empty() && std::all_of(steps.begin(), steps.end(), splits_by_known_pattern)
          : splits_by_known_pattern(splitter);
  return is_known ? Cuts::kBetweenWords : Cuts::kNowhere;
}

SubwordEncoder::SubwordEncoder(const fs::path& path) : path_(path) {
  const auto text = read_tokenizer(path);
  auto digests = digest(text);
  // These name the end of a document.
  for (const auto* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto beside = file_of(path).parent_path() / name;
    std::error_code ignored;
    digests += fs::exists(beside, ignored) ? digest(read_file(beside, kMaxFileBytes)) : "none";
  }
  identity_ = "tokenizer " + digest(digests);
  cuts_ = cuts_of_tokenizer(text);
}

const Tokenizer& SubwordEncoder::tokenizer() const {
  std::call_once(once_,
                 [&] { tokenizer_ = std::make_unique<const Tokenizer>(Tokenizer::load(path_)); });
  return *tokenizer_;
}

void SubwordEncoder::encode(std::string_view text, std::vector<uint32_t>& out) const {
  const auto ids = tokenizer().encode(text, {.add_special_tokens = false});
  out.insert(out.end(), ids.begin(), ids.end());
}

std::string SubwordEncoder::decode(std::span<const uint32_t> tokens) const {
  std::string text;
  for (const uint32_t token : tokens) {
    const auto bytes = tokenizer().bytes_of(token);
    text += bytes.empty() ? fmt::format("<|{}|>", token) : std::string(bytes);
  }
  return text;
}

uint32_t SubwordEncoder::end_of_document() const {
  if (const auto end = tokenizer().eos_id()) return *end;
  throw UserError(fmt::format(
      "{}: the tokenizer names no eos_token, which ends each document; give it one in its "
      "tokenizer_config.json",
      path_.string()));
}

int64_t SubwordEncoder::vocabulary() const { return tokenizer().vocab_size(); }

}  // namespace skein::text
