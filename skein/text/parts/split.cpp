// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/split.h"

#include <utility>

namespace skein::text {
namespace {

struct Part {
  TokenSpan span;
  bool is_match = false;
};

// The parts of a text, matches and the gaps between them, in order. Gaps are not empty.
std::vector<Part> parts_of(const Pattern& pattern, std::string_view text, bool invert) {
  std::vector<Part> parts;
  size_t done = 0;
  Pattern::Search search(pattern, text);
  while (const auto match = search.next()) {
    if (done < match->begin) parts.push_back({{done, match->begin}, invert});
    parts.push_back({*match, !invert});
    done = match->end;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, invert});
  return parts;
}

// Whether a part joins the one before it (merged with next: the one after it, from the end).
bool joins(SplitBehavior behavior, bool is_match, bool after_match) {
  return behavior == SplitBehavior::kContiguous ? is_match == after_match
                                                : is_match && !after_match;
}

void join_forwards(std::vector<Part>& parts, SplitBehavior behavior) {
  bool after_match = false;
  size_t count = 0;
  for (const auto& part : parts) {
    if (count > 0 && joins(behavior, part.is_match, after_match)) {
      parts[count - 1].span.end = part.span.end;
    } else {
      parts[count++].span = part.span;
    }
    after_match = part.is_match;
  }
  parts.resize(count);
}

void join_backwards(std::vector<Part>& parts) {
  bool after_match = false;
  size_t first = parts.size();
  for (size_t i = parts.size(); i-- > 0;) {
    const auto part = parts[i];
    if (first < parts.size() && joins(SplitBehavior::kMergedWithNext, part.is_match, after_match)) {
      parts[first].span.begin = part.span.begin;
    } else {
      parts[--first].span = part.span;
    }
    after_match = part.is_match;
  }
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(first));
}

SplitBehavior read_behavior(const PartReader& reader, const std::string& name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  reader.refuse_type("behavior", name,
                     "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

std::unique_ptr<PreTokenizer> make_split(const char* expression, Split::Options options) {
  return std::make_unique<Split>(Pattern(expression), options);
}

}  // namespace

Split::Split(Pattern pattern, Options options) : pattern_(std::move(pattern)), options_(options) {
  // Then both parts are pieces, whichever of them counts as a match.
  if (options_.behavior == SplitBehavior::kIsolated) options_.invert = false;
}

void Split::take(const Piece& piece, TokenSpan part, bool is_match, Pieces& pieces) const {
  if (part.begin == part.end) return;
  if (options_.behavior == SplitBehavior::kRemoved && is_match != options_.invert) return;
  pieces.push_back(piece.slice(part.begin, part.end));
}

void Split::split(const Piece& piece, Pieces& pieces, Workspace&) const {
  if (options_.behavior != SplitBehavior::kRemoved &&
      options_.behavior != SplitBehavior::kIsolated) {
    return split_and_join(piece, pieces);
  }
  size_t done = 0;
  Pattern::Search search(pattern_, piece.text);
  while (const auto match = search.next()) {
    take(piece, {done, match->begin}, false, pieces);
    take(piece, *match, true, pieces);
    done = match->end;
  }
  take(piece, {done, piece.text.size()}, false, pieces);
}

void Split::split_and_join(const Piece& piece, Pieces& pieces) const {
  auto parts = parts_of(pattern_, piece.text, options_.invert);
  if (options_.behavior == SplitBehavior::kMergedWithNext) {
    join_backwards(parts);
  } else {
    join_forwards(parts, options_.behavior);
  }
  for (const auto& part : parts) {
    if (part.span.begin < part.span.end) {
      pieces.push_back(piece.slice(part.span.begin, part.span.end));
    }
  }
}

std::unique_ptr<PreTokenizer> read_split(const PartReader& reader, const Json& json) {
  return std::make_unique<Split>(
      reader.pattern(json),
      Split::Options{.behavior = read_behavior(reader, reader.text(json, "behavior")),
                     .invert = reader.flag(json, "invert", false)});
}

std::unique_ptr<PreTokenizer> read_digits(const PartReader& reader, const Json& json) {
  const bool one_by_one = reader.flag(json, "individual_digits", false);
  return make_split(one_by_one ? "\\p{N}" : "\\p{N}+", {});
}

std::unique_ptr<PreTokenizer> read_punctuation(const PartReader& reader, const Json& json) {
  const auto& behavior = reader.at(json, "behavior");
  return make_split(
      "[\\p{P}$+<=>^`|~]",
      {.behavior = behavior.is_null() ? SplitBehavior::kIsolated
                                      : read_behavior(reader, reader.text(json, "behavior"))});
}

// This one is no pattern of Oniguruma's: joiners are word characters, fractions are none.
std::unique_ptr<PreTokenizer> read_whitespace(const PartReader&, const Json&) {
  return make_split("[\\w\\u200c\\u200d]+|[^\\w\\u200c\\u200d\\s]+",
                    {.behavior = SplitBehavior::kRemoved, .invert = true});
}

std::unique_ptr<PreTokenizer> read_whitespace_split(const PartReader&, const Json&) {
  return make_split("\\s", {.behavior = SplitBehavior::kRemoved});
}

std::unique_ptr<PreTokenizer> read_delimiter(const PartReader& reader, const Json& json) {
  return std::make_unique<Split>(Pattern::literal(reader.character(json, "delimiter")),
                                 Split::Options{.behavior = SplitBehavior::kRemoved});
}

}  // namespace skein::text
