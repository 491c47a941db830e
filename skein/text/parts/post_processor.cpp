// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/post_processor.h"

#include <algorithm>

#include "skein/text/parts/bpe_alphabet.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

bool is_space(char32_t code) { return code == byte_characters()[' '] || is_whitespace(code); }

// Characters at the beginning and at the end of a token.
size_t leading_spaces(std::string_view text) {
  size_t count = 0;
  for (; !text.empty() && is_space(first_character(text).code); ++count) {
    text.remove_prefix(first_character(text).size);
  }
  return count;
}

size_t trailing_spaces(std::string_view text) {
  size_t count = 0;
  for (; !text.empty() && is_space(last_character(text).code); ++count) {
    text.remove_suffix(last_character(text).size);
  }
  return count;
}

bool is_inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

size_t forwards(std::string_view text, size_t at) {
  do ++at;
  while (at < text.size() && is_inside_character(text[at]));
  return at;
}

size_t backwards(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && is_inside_character(text[at]));
  return at;
}

}  // namespace

// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": …}
void PostProcessors::read_template(const PartReader& reader, const Json& json, Step& step) {
  const auto& special = reader.at(json, "special_tokens");
  bool after_text = false;
  for (const auto& piece : reader.list(json, "single")) {
    if (piece.is_object() && piece.contains("Sequence")) {
      if (after_text) reader.refuse("the post_processor repeats the text");
      after_text = true;
      continue;
    }
    const auto& name = reader.text(reader.at(piece, "SpecialToken"), "id");
    auto& side = after_text ? step.suffix : step.prefix;
    for (const auto& id : reader.list(reader.at(special, name.c_str()), "ids")) {
      side.push_back(reader.id(id));
    }
  }
  if (!after_text) reader.refuse("the post_processor drops the text");
}

// {"cls": ["<s>", 0], "sep": ["</s>", 2]}
void PostProcessors::read_pair(const PartReader& reader, const Json& json, Step& step) {
  const auto id_of = [&](const char* key) {
    const auto& token = reader.list(json, key);
    if (token.size() != 2) reader.refuse("'cls' and 'sep' must be a token and its id");
    return reader.id(token[1]);
  };
  step.prefix = {id_of("cls")};
  step.suffix = {id_of("sep")};
}

PostProcessors::Step PostProcessors::read_step(const PartReader& reader, const Json& json) {
  Step step;
  const auto type = reader.type(json);
  if (type == "TemplateProcessing") {
    read_template(reader, json, step);
  } else if (type == "BertProcessing") {
    read_pair(reader, json, step);
  } else if (type == "ByteLevel" || type == "RobertaProcessing") {
    step.trims = reader.flag(json, "trim_offsets", true);
    step.add_prefix_space = reader.flag(json, "add_prefix_space", true);
    if (type == "RobertaProcessing") read_pair(reader, json, step);
  } else {
    reader.refuse_type("post_processor", type,
                       "BertProcessing, ByteLevel, RobertaProcessing, TemplateProcessing");
  }
  return step;
}

PostProcessors PostProcessors::read(const PartReader& reader, const Json& json) {
  PostProcessors processors;
  for (const auto& step : reader.sequence(json, "processors")) {
    processors.steps_.push_back(read_step(reader, step));
  }
  return processors;
}

std::vector<uint32_t> PostProcessors::prefix() const {
  std::vector<uint32_t> ids;
  for (const auto& step : steps_) ids.insert(ids.begin(), step.prefix.begin(), step.prefix.end());
  return ids;
}

std::vector<uint32_t> PostProcessors::suffix() const {
  std::vector<uint32_t> ids;
  for (const auto& step : steps_) ids.insert(ids.end(), step.suffix.begin(), step.suffix.end());
  return ids;
}

void PostProcessors::process(Encoded& encoded, std::vector<std::string_view> texts,
                             std::string_view original, bool add_special_tokens) const {
  for (const auto& step : steps_) {
    if (step.trims) trim(step, encoded, texts, original);
    if (!add_special_tokens) continue;
    encoded.ids.insert(encoded.ids.begin(), step.prefix.begin(), step.prefix.end());
    encoded.ids.insert(encoded.ids.end(), step.suffix.begin(), step.suffix.end());
    encoded.spans.insert(encoded.spans.begin(), step.prefix.size(), {});
    encoded.spans.resize(encoded.ids.size());
    texts.insert(texts.begin(), step.prefix.size(), {});
    texts.resize(encoded.ids.size());
  }
}

void PostProcessors::trim(const Step& step, Encoded& encoded,
                          const std::vector<std::string_view>& texts, std::string_view original) {
  for (size_t i = 0; i < encoded.spans.size(); ++i) {
    auto& [begin, end] = encoded.spans[i];
    size_t leading = leading_spaces(texts[i]);
    const size_t trailing = trailing_spaces(texts[i]);
    // One that was put in front has no place to leave out.
    if (leading == 1 && step.add_prefix_space && (i == 0 || begin == 0)) leading = 0;
    for (; leading > 0 && begin < end; --leading) begin = forwards(original, begin);
    for (size_t back = 0; back < trailing && end > begin; ++back) end = backwards(original, end);
  }
}

}  // namespace skein::text
