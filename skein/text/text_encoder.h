// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How does text become token ids?
//
// Either byte by byte, or with a tokenizer. Const calls are thread-safe.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skein/config/run_config.h"

namespace skein::text {

// Where a document may be cut, so that its parts give the same ids as the whole.
enum class Cuts {
  kNowhere,
  kBetweenWords,  // see is_safe_cut() in skein/data/text_pieces.h
  kAnywhere,      // byte by byte; the text need not be UTF-8
};

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  // Appends to `out`. The text is valid UTF-8 unless cuts() is kAnywhere.
  virtual void encode(std::string_view text, std::vector<uint32_t>& out) const = 0;
  // For people to read: any ids, also parts of a character.
  virtual std::string decode(std::span<const uint32_t> tokens) const = 0;
  virtual uint32_t end_of_document() const = 0;
  virtual int64_t vocabulary() const = 0;
  // The same for two encoders only if they give the same ids for every text.
  virtual std::string identity() const = 0;
  virtual Cuts cuts() const = 0;
};

constexpr uint32_t kByteEndOfDocument = 256;
constexpr int64_t kByteVocabulary = 257;

// Bytes are ids 0-255, and 256 ends a document.
class ByteEncoder final : public TextEncoder {
 public:
  void encode(std::string_view text, std::vector<uint32_t>& out) const override;
  std::string decode(std::span<const uint32_t> tokens) const override;
  uint32_t end_of_document() const override { return kByteEndOfDocument; }
  int64_t vocabulary() const override { return kByteVocabulary; }
  std::string identity() const override { return "bytes"; }
  Cuts cuts() const override { return Cuts::kAnywhere; }
};

// tokenizer_name_or_path, else the tokenizer of the model's folder, else bytes. Throws UserError
// when a tokenizer is named and not there.
std::unique_ptr<TextEncoder> make_encoder(const config::ModelConfig& model);

}  // namespace skein::text
