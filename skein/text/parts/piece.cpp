// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/piece.h"

#include "skein/core/error.h"

namespace skein::text {
namespace {

bool is_inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

Piece Piece::slice(size_t from, size_t to) const {
  return {text.substr(from, to - from), origins == nullptr ? nullptr : origins + from,
          begin + from};
}

TokenSpan Piece::origin(size_t from, size_t to) const {
  if (origins != nullptr) return {origins[from].begin, origins[to - 1].end};
  while (from > 0 && is_inside_character(text[from])) --from;
  while (to < text.size() && is_inside_character(text[to])) ++to;
  return {begin + from, begin + to};
}

void Workspace::take(size_t bytes) {
  if (bytes > room_) {
    throw UserError(
        "the normalizer of the tokenizer makes a text hundreds of times longer; its tokenizer.json "
        "is damaged or hostile");
  }
  room_ -= bytes;
}

Rewriter::Rewriter(const Piece& piece, Workspace& workspace)
    : piece_(piece),
      workspace_(workspace),
      text_(workspace.new_text()),
      origins_(workspace.tracks() ? &workspace.new_origins() : nullptr) {
  text_.reserve(piece.text.size() + piece.text.size() / 4 + 4);
}

void Rewriter::copy(size_t from, size_t to) {
  append(piece_.text.substr(from, to - from));
  if (origins_ == nullptr) return;
  for (; from < to; ++from) origins_->push_back(piece_.origin(from, from + 1));
}

void Rewriter::put(std::string_view text, size_t like) {
  if (origins_ == nullptr) {
    append(text);
  } else {
    put(text, piece_.origin(like, like + 1));
  }
}

void Rewriter::put_new(std::string_view text) {
  const size_t place = piece_.origins == nullptr ? piece_.begin : piece_.origins[0].begin;
  put(text, TokenSpan{place, place});
}

void Rewriter::put(std::string_view text, TokenSpan origin) {
  append(text);
  if (origins_ != nullptr) origins_->insert(origins_->end(), text.size(), origin);
}

void Rewriter::append(std::string_view text) {
  workspace_.take(text.size());
  text_ += text;
}

Piece Rewriter::finish() {
  return {text_, origins_ == nullptr ? nullptr : origins_->data(), piece_.begin};
}

Piece with_prefix(const Piece& piece, std::string_view text, Workspace& workspace) {
  Rewriter rewriter(piece, workspace);
  rewriter.put(text, 0);
  rewriter.copy(0, piece.text.size());
  return rewriter.finish();
}

}  // namespace skein::text
