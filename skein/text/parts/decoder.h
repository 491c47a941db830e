// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How do tokens become text again?
//
// One class per kind; a further one is also a line in decoder.cpp. Thread-safe once built.

#include <memory>
#include <string>
#include <vector>

#include "skein/text/parts/part_reader.h"

namespace skein::text {

class Decoder {
 public:
  virtual ~Decoder() = default;

  // Changes the tokens of a whole text.
  virtual void decode(std::vector<std::string>& tokens) const = 0;
  // Changes one token somewhere inside a text to what it adds to it: bytes, which may be part of a
  // character.
  virtual void decode_inside(std::string& token) const = 0;
  // Whether all tokens are one afterwards: the steps that follow see the text, not its tokens.
  virtual bool joins() const { return false; }
};

// The steps of a tokenizer, in order; what they leave is joined. Without any step there are spaces
// between the tokens.
class Decoders {
 public:
  // Null, a part, or a Sequence of them.
  static Decoders read(const PartReader& reader, const Json& json);

  std::string decode(std::vector<std::string> tokens) const;
  std::string decode_inside(std::string token) const;
  // Whether a text is the bytes of its tokens, one after the other, where bytes that form no
  // character become U+FFFD.
  bool is_concatenation() const { return is_concatenation_; }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
  bool is_concatenation_ = false;
};

}  // namespace skein::text
