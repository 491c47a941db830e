// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is put around the tokens of a text, and which white space do their places leave out?
//
// ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing.

#include <cstdint>
#include <string_view>
#include <vector>

#include "skein/text/parts/part_reader.h"
#include "skein/text/parts/piece.h"

namespace skein::text {

// The tokens of a text and where each lies in it. What a post-processor adds lies at {0, 0}.
struct Encoded {
  std::vector<uint32_t> ids;
  std::vector<TokenSpan> spans;
};

class PostProcessors {
 public:
  // Null, a part, or a Sequence of them.
  static PostProcessors read(const PartReader& reader, const Json& json);

  // Of all steps together.
  std::vector<uint32_t> prefix() const;
  std::vector<uint32_t> suffix() const;

  // `texts`: what each token covers of the text (an added token), or is spelled like.
  void process(Encoded& encoded, std::vector<std::string_view> texts, std::string_view original,
               bool add_special_tokens) const;

 private:
  struct Step {
    bool trims = false;             // white space inside a token belongs to no token's place,
    bool add_prefix_space = false;  // but a space that was added in front has none
    std::vector<uint32_t> prefix, suffix;
  };
  static void read_template(const PartReader& reader, const Json& json, Step& step);
  static void read_pair(const PartReader& reader, const Json& json, Step& step);
  static Step read_step(const PartReader& reader, const Json& json);
  static void trim(const Step& step, Encoded& encoded, const std::vector<std::string_view>& texts,
                   std::string_view original);

  std::vector<Step> steps_;
};

}  // namespace skein::text
