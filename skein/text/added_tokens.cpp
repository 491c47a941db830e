// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/added_tokens.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "skein/text/parts/piece.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

using Span = TokenSpan;

// What do matches cover once their flags are honoured?
class Coverage {
 public:
  explicit Coverage(std::string_view text) : text_(text) {}

  // None where the match does not count. `done` is the end of what was covered before.
  std::optional<Span> of(const AddedToken& token, size_t begin, size_t done) {
    Span span{begin, begin + token.content.size()};
    if (token.single_word && touches_word(span)) return std::nullopt;
    if (token.lstrip) span.begin = before(begin, done);
    if (token.rstrip) span.end = whitespace_end(span.end);
    if (span.begin >= span.end) return std::nullopt;
    return span;
  }

 private:
  bool touches_word(const Span& span) const {
    const auto before = text_.substr(0, span.begin), after = text_.substr(span.end);
    return (!before.empty() && is_word_character(last_character(before).code)) ||
           (!after.empty() && is_word_character(first_character(after).code));
  }

  static size_t whitespace_begin(std::string_view text, size_t end) {
    return end - trailing_whitespace(text.substr(0, end));
  }

  // What an earlier match has swallowed stays with it.
  size_t before(size_t begin, size_t done) const {
    if (begin <= done) return done;
    return done + whitespace_begin(text_.substr(done), begin - done);
  }

  // Remembers the last run, so that many tokens inside one run do not scan it again and again.
  size_t whitespace_end(size_t begin) {
    if (begin < run_.begin || begin >= run_.end) {
      run_ = {begin, begin + leading_whitespace(text_.substr(begin))};
    }
    return run_.end;
  }

  std::string_view text_;
  Span run_;
};

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::fill(std::begin(roots_), std::end(roots_), kNone);
  for (uint32_t i = 0; i < tokens_.size(); ++i) insert(i);
}

void AddedTokenFinder::insert(uint32_t token) {
  const auto& content = tokens_[token].content;
  if (content.empty()) return;
  auto& root = roots_[static_cast<uint8_t>(content[0])];
  if (root == kNone) {
    root = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back({.byte = content[0]});
    root_ = content[0];
    ++num_roots_;
  }
  uint32_t node = root;
  for (const char byte : std::string_view(content).substr(1)) {
    uint32_t child = child_of(node, byte);
    if (child == kNone) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[node].child, .byte = byte});
      nodes_[node].child = child;
    }
    node = child;
  }
  nodes_[node].token = token;
}

uint32_t AddedTokenFinder::child_of(uint32_t node, char byte) const {
  uint32_t child = nodes_[node].child;
  while (child != kNone && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

uint32_t AddedTokenFinder::match(std::string_view text) const {
  uint32_t longest = kNone;
  uint32_t node = roots_[static_cast<uint8_t>(text[0])];
  for (size_t i = 1; node != kNone; ++i) {
    if (nodes_[node].token != kNone) longest = nodes_[node].token;
    if (i == text.size()) break;
    node = child_of(node, text[i]);
  }
  return longest;
}

size_t AddedTokenFinder::next_root(std::string_view text, size_t from) const {
  if (num_roots_ == 0) return text.size();
  if (num_roots_ == 1) return std::min(text.find(root_, from), text.size());
  while (from < text.size() && roots_[static_cast<uint8_t>(text[from])] == kNone) ++from;
  return from;
}

void AddedTokenFinder::for_each_part(std::string_view text, const Take& take) const {
  Coverage coverage(text);
  size_t done = 0;
  // The search goes on behind a match's own end, not behind the white space that it swallowed.
  for (size_t at = next_root(text, 0); at < text.size();) {
    const uint32_t found = match(text.substr(at));
    if (found == kNone) {
      at = next_root(text, at + 1);
      continue;
    }
    if (const auto span = coverage.of(tokens_[found], at, done)) {
      if (done < span->begin) take(done, span->begin, nullptr);
      take(span->begin, span->end, &tokens_[found]);
      done = span->end;
    }
    at = next_root(text, at + tokens_[found].content.size());
  }
  if (done < text.size()) take(done, text.size(), nullptr);
}

}  // namespace skein::text
