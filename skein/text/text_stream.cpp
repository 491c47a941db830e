// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/text_stream.h"

#include <algorithm>
#include <iterator>

#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

// How long is the character that begins with this byte? 1 where none does.
size_t character_size(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
}

// How many bytes at the end are the beginning of a character that is not there yet?
size_t begun_character(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const char byte = text[text.size() - back];
    if ((static_cast<unsigned char>(byte) & 0xC0) == 0x80) continue;  // inside a character
    return character_size(byte) > back ? back : 0;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(std::span<const std::string> stops) {
  std::ranges::copy_if(stops, std::back_inserter(stops_),
                       [](const std::string& stop) { return !stop.empty(); });
}

std::string TextStream::add(std::string_view bytes) {
  if (is_stopped_) return {};
  held_ += bytes;
  size_t end = std::string::npos;
  for (const auto& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    is_stopped_ = true;
    held_.resize(end);
    return finish();
  }
  const auto ready = held_.size() - begun_stop();
  const auto whole = ready - begun_character(std::string_view(held_).substr(0, ready));
  auto shown = repaired_utf8(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  return shown;
}

std::string TextStream::finish() {
  auto shown = repaired_utf8(held_);
  held_.clear();
  return shown;
}

size_t TextStream::begun_stop() const {
  size_t longest = 0;
  for (const auto& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > longest; --size) {
      if (held_.ends_with(std::string_view(stop).substr(0, size))) longest = size;
    }
  }
  return longest;
}

}  // namespace skein::text
