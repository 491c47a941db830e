// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/tokenizer.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/foreign_text.h"
#include "skein/core/hash.h"
#include "skein/text/new_tokens.h"
#include "skein/text/parts/bpe_alphabet.h"
#include "skein/text/parts/unicode.h"
#include "skein/text/tokenizer_files.h"

namespace skein::text {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";
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

// Bytes need not be spelled where nothing but the model looks at them.
Bpe make_bpe(TokenizerParts& parts) {
  const bool is_byte_level = !parts.bpe.byte_fallback && parts.pre_tokenizers.leave_bytes();
  parts.bpe.unit = is_byte_level ? BpeUnit::kByte : BpeUnit::kCharacter;
  return {is_byte_level ? by_bytes(parts.vocabulary) : parts.vocabulary, parts.merges, parts.bpe};
}

std::vector<AddedToken> tokens_to_find(const TokenizerParts& parts, bool normalized) {
  std::vector<AddedToken> tokens;
  for (auto token : parts.added_tokens) {
    if (token.normalized != normalized) continue;
    if (normalized) token.content = parts.normalizers.normalize(token.content);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// The text, with U+FFFD where bytes are no UTF-8; its places are those of the bytes.
Piece repaired_piece(std::string_view text, Workspace& workspace) {
  if (valid_utf8_prefix(text) == text.size()) return {text};
  auto& origins = workspace.new_origins();
  auto& repaired = workspace.new_text();
  for (size_t at = 0; at < text.size();) {
    const auto step = utf8_step(text.substr(at));
    const auto character = step.is_valid ? text.substr(at, step.size) : kReplacement;
    repaired += character;
    origins.insert(origins.end(), character.size(), {at, at + step.size});
    at += step.size;
  }
  return {repaired, origins.data(), 0};
}

TokenizerPlace place_of(const fs::path& path) {
  std::error_code ignored;
  auto place = tokenizer_place(path);
  const auto& file = place.file;
  if (fs::is_regular_file(file, ignored)) return place;
  if (fs::exists(file, ignored)) {
    throw UserError(fmt::format("{} is no regular file", file.string()));
  }
  throw UserError(fmt::format(
      "there is no {}; `skein tokenizer train --input F --vocab-size N --out DIR` makes one",
      file.string()));
}

// A folder's file, which may be no link out of it, or the file that the user named.
std::string text_of(const fs::path& path, const fs::path& file) {
  return path == file ? read_file(file, kMaxFileBytes)
                      : read_beneath(path, file.filename(), kMaxFileBytes);
}

// Of the files beside tokenizer.json.
std::optional<std::string> text_beside(const TokenizerPlace& place, const char* name) {
  if (place.folder.empty() || !fs::exists(place.folder / name)) return std::nullopt;
  return read_beneath(place.folder, name, kMaxFileBytes);
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& path, const std::vector<std::string>& new_tokens) {
  const auto place = place_of(path);
  const auto file = place.file.string();
  auto text = text_of(path, place.file);
  if (!new_tokens.empty()) text = with_tokens(text, new_special_tokens(text, new_tokens, file));
  const auto names =
      tokenizer_names(place.folder, [&](const char* name) { return text_beside(place, name); });
  return parse(text, file, names);
}

Tokenizer Tokenizer::parse(std::string_view tokenizer_json, const std::string& name,
                           const TokenizerNames& names) {
  auto parts = parse_tokenizer_json(tokenizer_json, name);
  const auto lost = parts.lost_unknown;
  Tokenizer tokenizer(std::move(parts));
  // As `tokenizers` does, though at the first unit that needs it.
  if (lost && !tokenizer.bpe_.has_all_units()) {
    throw UserError(
        fmt::format("{}: unk_token is '{}', which is not in the vocabulary, and a text "
                    "can need it: give it an id there, or make unk_token null",
                    name, shown(*lost)));
  }
  tokenizer.set_names(names);
  tokenizer.digest_ = skein::digest(tokenizer_json);
  return tokenizer;
}

Tokenizer::Tokenizer(TokenizerParts parts)
    : raw_finder_(tokens_to_find(parts, false)),
      normalized_finder_(tokens_to_find(parts, true)),
      bpe_(make_bpe(parts)),
      post_processors_(std::move(parts.post_processors)),
      decoders_(std::move(parts.decoders)),
      needs_origins_(parts.needs_origins),
      prefix_(post_processors_.prefix()),
      suffix_(post_processors_.suffix()),
      cuts_(parts.cuts) {
  for (const auto& [spelling, id] : parts.vocabulary) set_token(id, spelling, false);
  for (const auto& token : parts.added_tokens) {
    set_token(token.id, token.content, token.special);
    if (!token.normalized) continue;
    auto spelling = parts.normalizers.normalize(token.content);
    if (spelling == token.content) continue;
    tokens_[token.id].bytes = decoders_.decode_inside(spelling);
    normalized_spellings_[token.id] = std::move(spelling);
  }
  normalizers_ = std::move(parts.normalizers);
  pre_tokenizers_ = std::move(parts.pre_tokenizers);
}

void Tokenizer::set_token(uint32_t id, std::string spelling, bool is_special) {
  if (id >= tokens_.size()) tokens_.resize(id + 1);
  ids_[spelling] = id;
  tokens_[id].bytes = decoders_.decode_inside(spelling);
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

std::shared_ptr<const Tokenizer> shared_tokenizer(const fs::path& path,
                                                  const std::vector<std::string>& new_tokens) {
  static std::mutex mutex;
  static std::string last_key;
  static std::shared_ptr<const Tokenizer> last;
  // The path too: messages name it.
  const auto key = path.string() + '\0' + digest_of_files(path, new_tokens);
  const std::scoped_lock lock(mutex);
  if (key != last_key) {
    last = std::make_shared<const Tokenizer>(Tokenizer::load(path, new_tokens));
    last_key = key;
  }
  return last;
}

std::string digest_of_files(const fs::path& path, const std::vector<std::string>& new_tokens) {
  const auto place = place_of(path);
  auto digests = digest(text_of(path, place.file));
  for (const char* name : kNamingFiles) {
    const auto text = text_beside(place, name);
    digests += text ? digest(*text) : "none";
  }
  for (const auto& token : new_tokens) digests += digest(token);
  return digest(digests);
}

struct Tokenizer::Run {
  Run(bool tracks_origins, size_t text_bytes)
      : workspace(tracks_origins ? Workspace::Origins::kTracked : Workspace::Origins::kIgnored,
                  text_bytes) {}

  Workspace workspace;
  std::vector<uint32_t> ids;
  Pieces words;
  // With places:
  bool has_places = false;
  std::vector<TokenSpan> spans;
  std::vector<std::string_view> texts;
  std::vector<uint32_t> lengths;
};

std::vector<uint32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  if (valid_utf8_prefix(text) < text.size()) text = repaired = repaired_utf8(text);
  Run run(needs_origins_, text.size());
  run.ids.reserve(text.size() / 4 + prefix_.size() + suffix_.size());
  if (options.add_special_tokens) run.ids = prefix_;
  encode(Piece{text}, run);
  if (options.add_special_tokens) run.ids.insert(run.ids.end(), suffix_.begin(), suffix_.end());
  return std::move(run.ids);
}

Encoded Tokenizer::encode_with_offsets(std::string_view text, EncodeOptions options) const {
  Run run(true, text.size());
  run.has_places = true;
  encode(repaired_piece(text, run.workspace), run);
  Encoded encoded{std::move(run.ids), std::move(run.spans)};
  post_processors_.process(encoded, std::move(run.texts), text, options.add_special_tokens);
  return encoded;
}

void Tokenizer::encode(const Piece& text, Run& run) const {
  raw_finder_.for_each_part(text.text, [&](size_t begin, size_t end, const AddedToken* token) {
    const auto part = text.slice(begin, end);
    if (token != nullptr) {
      add_token(token->id, part, run);
    } else {
      encode_normalized(normalizers_.normalize(part, run.workspace), run);
    }
  });
}

void Tokenizer::encode_normalized(const Piece& text, Run& run) const {
  normalized_finder_.for_each_part(text.text,
                                   [&](size_t begin, size_t end, const AddedToken* token) {
                                     const auto part = text.slice(begin, end);
                                     if (token != nullptr) return add_token(token->id, part, run);
                                     run.words.clear();
                                     pre_tokenizers_.split(part, run.words, run.workspace);
                                     for (const auto& word : run.words) add_word(word, run);
                                   });
}

void Tokenizer::add_token(uint32_t id, const Piece& place, Run& run) {
  run.ids.push_back(id);
  if (!run.has_places) return;
  run.spans.push_back(place.origin(0, place.text.size()));
  run.texts.push_back(place.text);
}

void Tokenizer::add_word(const Piece& word, Run& run) const {
  if (!run.has_places) return bpe_.encode(word.text, run.ids);
  run.lengths.clear();
  const size_t first = run.ids.size();
  bpe_.encode(word.text, run.ids, &run.lengths);
  size_t done = 0;
  for (size_t i = 0; i < run.lengths.size(); ++i) {
    run.spans.push_back(word.origin(done, done + run.lengths[i]));
    run.texts.emplace_back(tokens_[run.ids[first + i]].spelling);
    done += run.lengths[i];
  }
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, DecodeOptions options) const {
  std::string bytes;
  std::vector<std::string> tokens;
  for (const uint32_t id : ids) {
    if (id >= tokens_.size() || !tokens_[id].exists) continue;
    const auto normalized = normalized_spellings_.find(id);
    const bool is_normalized = normalized != normalized_spellings_.end();
    if (options.skip_special_tokens && tokens_[id].is_special && !is_normalized) continue;
    if (decoders_.is_concatenation()) {
      bytes += tokens_[id].bytes;
    } else {
      tokens.push_back(is_normalized ? normalized->second : tokens_[id].spelling);
    }
  }
  return decoders_.is_concatenation() ? repaired_utf8(bytes) : decoders_.decode(std::move(tokens));
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
