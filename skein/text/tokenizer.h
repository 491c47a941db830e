// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How does text become token ids, and ids text?
//
// Reads the `tokenizer.json` of Hugging Face's tokenizers, a BPE model with any list of the parts
// of skein/text/parts, and gives the same ids and places as that package. A file with anything that
// skein does not know exactly is refused. See docs/tokenizer.md.
//
// All calls are const and thread-safe. encode() takes time linear in the text (n log n at worst);
// it is cheap to call for short texts.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "skein/core/file.h"
#include "skein/text/added_tokens.h"
#include "skein/text/bpe.h"
#include "skein/text/tokenizer_json.h"

namespace skein::text {

struct EncodeOptions {
  bool add_special_tokens = true;  // what the file's post-processor puts around a text
};

struct DecodeOptions {
  bool skip_special_tokens = false;
};

class Tokenizer {
 public:
  // `path` is a tokenizer.json, or a folder that holds one; tokenizer_config.json and
  // special_tokens_map.json beside it name the special tokens. Throws UserError that names the file
  // when it is missing, broken or unknown to skein. With `new_tokens` (text/new_tokens.h) besides.
  static Tokenizer load(const fs::path& path, const std::vector<std::string>& new_tokens = {});
  // `name` begins error messages.
  static Tokenizer parse(std::string_view tokenizer_json, const std::string& name,
                         const TokenizerNames& names = {});

  // Bytes that are no UTF-8 count as U+FFFD, as Python reads them with errors="replace".
  std::vector<uint32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  // The same ids, each with the bytes of `text` that it stands for: whole characters, as
  // `tokenizers` reports offsets (which counts characters). Several tokens may share a character,
  // and what the post-processor adds lies at {0, 0}.
  Encoded encode_with_offsets(std::string_view text, EncodeOptions options = {}) const;
  // Valid UTF-8: bytes that form no character become U+FFFD. Unknown ids are left out.
  std::string decode(std::span<const uint32_t> ids, DecodeOptions options = {}) const;
  // The bytes that an id adds to a text, which may be part of a character. Empty for unknown ids.
  std::string_view bytes_of(uint32_t id) const;

  // The highest id + 1: what a model's embedding must have at least.
  int64_t vocab_size() const { return static_cast<int64_t>(tokens_.size()); }
  // Of tokenizer_config.json, else of special_tokens_map.json; the end also by its usual names.
  std::optional<uint32_t> eos_id() const { return eos_; }
  std::optional<uint32_t> bos_id() const { return bos_; }
  std::optional<uint32_t> pad_id() const { return pad_; }

  // Tokens as the file spells them ("Ġthe").
  std::optional<uint32_t> id_of(std::string_view token) const;
  std::optional<std::string> token_of(uint32_t id) const;
  bool is_special(uint32_t id) const { return id < tokens_.size() && tokens_[id].is_special; }

  // Tells one tokenizer from another: 32 hexadecimal digits of the file.
  const std::string& digest() const { return digest_; }
  // Where a text may be cut before it is encoded.
  Cuts cuts() const { return cuts_; }

 private:
  struct Token {
    std::string spelling;
    std::string bytes;
    bool exists = false;
    bool is_special = false;
  };

  explicit Tokenizer(TokenizerParts parts);
  void set_token(uint32_t id, std::string spelling, bool is_special);
  void set_names(const TokenizerNames& names);
  struct Run;  // one call of encode
  void encode(const Piece& text, Run& run) const;
  void encode_normalized(const Piece& text, Run& run) const;
  static void add_token(uint32_t id, const Piece& place, Run& run);
  void add_word(const Piece& word, Run& run) const;

  StringMap<uint32_t> ids_;    // by spelling, added tokens too
  std::vector<Token> tokens_;  // by id
  // Added tokens that are looked for in the normalised text decode as they look there.
  std::unordered_map<uint32_t, std::string> normalized_spellings_;
  Normalizers normalizers_;
  AddedTokenFinder raw_finder_;         // in the text as given
  AddedTokenFinder normalized_finder_;  // in the normalised text
  PreTokenizers pre_tokenizers_;
  Bpe bpe_;
  PostProcessors post_processors_;
  Decoders decoders_;
  bool needs_origins_;
  std::vector<uint32_t> prefix_, suffix_;
  std::optional<uint32_t> bos_, eos_, pad_;
  std::string digest_;
  Cuts cuts_;
};

// Tokenizer::load(), but the process keeps the last one: a large vocabulary takes seconds to read,
// and a start asks for it in many places. Files that have changed are read again. For all threads.
std::shared_ptr<const Tokenizer> shared_tokenizer(const fs::path& path,
                                                  const std::vector<std::string>& new_tokens = {});

// Of all that Tokenizer::load() reads. Throws UserError when there is no tokenizer.json.
std::string digest_of_files(const fs::path& path, const std::vector<std::string>& new_tokens = {});

}  // namespace skein::text
