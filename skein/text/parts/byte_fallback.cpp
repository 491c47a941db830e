// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/byte_fallback.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

// Runs of byte tokens become the text that they spell, or U+FFFD for each byte.
class ByteFallback final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::vector<std::string> decoded;
    std::string bytes;
    for (auto& token : tokens) {
      if (const auto byte = byte_of_token(token)) {
        bytes += static_cast<char>(*byte);
        continue;
      }
      flush(bytes, decoded);
      decoded.push_back(std::move(token));
    }
    flush(bytes, decoded);
    tokens = std::move(decoded);
  }
  void decode_inside(std::string& token) const override {
    if (const auto byte = byte_of_token(token)) token.assign(1, static_cast<char>(*byte));
  }

 private:
  static void flush(std::string& bytes, std::vector<std::string>& decoded) {
    if (bytes.empty()) return;
    if (valid_utf8_prefix(bytes) == bytes.size()) {
      decoded.push_back(bytes);
    } else {
      decoded.insert(decoded.end(), bytes.size(), "\uFFFD");
    }
    bytes.clear();
  }
};

}  // namespace

std::string byte_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

std::optional<uint8_t> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const char* end = token.data() + 5;
  const auto [stop, error] = std::from_chars(token.data() + 3, end, byte, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return byte;
}

std::unique_ptr<Decoder> read_byte_fallback_decoder(const PartReader&, const Json&) {
  return std::make_unique<ByteFallback>();
}

}  // namespace skein::text
