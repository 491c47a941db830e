// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/decoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "skein/core/error.h"
#include "skein/text/parts/byte_fallback.h"
#include "skein/text/parts/byte_level.h"
#include "skein/text/parts/metaspace.h"
#include "skein/text/parts/replace.h"
#include "skein/text/parts/strip.h"

namespace skein::text {
namespace {

class Fuse final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    tokens = {fmt::format("{}", fmt::join(tokens, ""))};
  }
  void decode_inside(std::string&) const override {}
  bool joins() const override { return true; }
};

// A file may ask for replacements that grow a text without end.
class Growth {
 public:
  explicit Growth(size_t bytes) : limit_(kMinRoom + kRoomPerByte * bytes) {}

  void check(size_t bytes) const {
    if (bytes <= limit_) return;
    throw UserError(
        "the decoder of the tokenizer makes a text many times longer; its tokenizer.json is "
        "damaged or hostile");
  }

 private:
  static constexpr size_t kMinRoom = 4096, kRoomPerByte = 64;
  size_t limit_;
};

size_t bytes_of(const std::vector<std::string>& tokens) {
  size_t bytes = 0;
  for (const auto& token : tokens) bytes += token.size();
  return bytes;
}

std::unique_ptr<Decoder> read_fuse(const PartReader&, const Json&) {
  return std::make_unique<Fuse>();
}

constexpr PartKind<Decoder> kKinds[] = {
    {"ByteFallback", read_byte_fallback_decoder},
    {"ByteLevel", read_byte_level_decoder},
    {"Fuse", read_fuse},
    {"Metaspace", read_metaspace_decoder},
    {"Replace", read_replace_decoder},
    {"Strip", read_strip_decoder},
};

}  // namespace

Decoders Decoders::read(const PartReader& reader, const Json& json) {
  Decoders decoders;
  decoders.steps_ = read_parts<Decoder>(reader, json, "decoders", "decoder", kKinds);
  decoders.is_concatenation_ =
      !json.is_null() && json.is_object() && reader.type(json) == "ByteLevel";
  return decoders;
}

std::string Decoders::decode(std::vector<std::string> tokens) const {
  const Growth growth(bytes_of(tokens));
  for (const auto& step : steps_) {
    step->decode(tokens);
    growth.check(bytes_of(tokens));
  }
  return fmt::format("{}", fmt::join(tokens, steps_.empty() ? " " : ""));
}

std::string Decoders::decode_inside(std::string token) const {
  if (steps_.empty()) return " " + token;
  const Growth growth(token.size());
  for (const auto& step : steps_) {
    if (step->joins()) break;
    step->decode_inside(token);
    growth.check(token.size());
  }
  return token;
}

}  // namespace skein::text
