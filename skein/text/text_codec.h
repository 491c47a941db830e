// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How does text become token ids, and ids text? For training data, prompts and generated text.
//
// Either byte by byte, or with a tokenizer.json. Const calls are thread-safe.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/text/cuts.h"

namespace skein::text {

class TextCodec {
 public:
  virtual ~TextCodec() = default;

  // Appends the ids of a text as training data has it: nothing is put around it. The text is valid
  // UTF-8 unless cuts() is kAnywhere.
  virtual void encode(std::string_view text, std::vector<uint32_t>& ids) const = 0;
  // With what the tokenizer puts around a text, as for generation. Any bytes.
  virtual std::vector<uint32_t> encode_prompt(std::string_view text) const = 0;

  // What a token adds to a generated text, perhaps part of a character. Nothing for special tokens.
  virtual std::string bytes_of(uint32_t id) const = 0;
  // For people to read: any ids, special ones too, also parts of a character.
  virtual std::string decode(std::span<const uint32_t> ids) const = 0;

  // The token that ends a text. A tokenizer may have none.
  virtual std::optional<uint32_t> end() const = 0;
  // The same for training data, where each document needs one. Throws UserError without.
  uint32_t end_of_document() const;

  // "bytes", or the tokenizer's path: for messages.
  virtual std::string name() const = 0;
  // The highest id + 1.
  virtual int64_t vocab_size() const = 0;
  // The same for two codecs only if they give the same ids for every text.
  virtual std::string identity() const = 0;
  virtual Cuts cuts() const = 0;
  // Known without reading a tokenizer's vocabulary.
  virtual bool is_bytes() const { return false; }
};

// Bytes are ids 0-255, and 256 ends a document.
class ByteCodec final : public TextCodec {
 public:
  static constexpr uint32_t kEnd = 256;

  void encode(std::string_view text, std::vector<uint32_t>& ids) const override;
  std::vector<uint32_t> encode_prompt(std::string_view text) const override;
  std::string bytes_of(uint32_t id) const override;
  std::string decode(std::span<const uint32_t> ids) const override;
  std::optional<uint32_t> end() const override { return kEnd; }
  int64_t vocab_size() const override { return kEnd + 1; }
  std::string name() const override { return "bytes"; }
  std::string identity() const override { return "bytes"; }
  Cuts cuts() const override { return Cuts::kAnywhere; }
  bool is_bytes() const override { return true; }
};

// The tokenizer.json of a folder, or the file itself. It is digested at once and parsed when first
// needed: a start that finds its data prepared need not know the vocabulary. Throws UserError when
// it is not there; the codec's calls do when it is broken. `new_tokens` are those of
// text/new_tokens.h.
std::unique_ptr<TextCodec> open_tokenizer(const fs::path& path,
                                          const std::vector<std::string>& new_tokens = {});
// Of a model's folder; bytes without a tokenizer. Throws UserError when it has one in another form.
std::unique_ptr<TextCodec> open_codec(const fs::path& model_folder,
                                      const std::vector<std::string>& new_tokens = {});
// tokenizer_name_or_path ("bytes": bytes), else the tokenizer of the model's folder, else bytes.
std::unique_ptr<TextCodec> open_codec(const config::ModelConfig& model);
// "FOLDER has no tokenizer.json: tokens are bytes" where they are so without having been asked to
// be, else "".
std::string bytes_note(const config::ModelConfig& model);

}  // namespace skein::text
