// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/replace.h"

#include <utility>

namespace skein::text {
namespace {

// A file may not ask for more text than this for each character of a user's; a decoder's, which
// stands for a token's few bytes, is known to be shorter.
constexpr size_t kMaxContentBytes = 1024, kMaxDecodedBytes = 64;

struct Replacement {
  Pattern pattern;
  std::string content;
};

Replacement read_replacement(const PartReader& reader, const Json& json, size_t max_bytes) {
  Replacement replacement{reader.pattern(json), reader.text(json, "content")};
  if (replacement.content.size() > max_bytes) reader.refuse("a Replace with a long content");
  return replacement;
}

class ReplaceNormalizer final : public Normalizer {
 public:
  explicit ReplaceNormalizer(Replacement replacement) : replacement_(std::move(replacement)) {}
  Piece normalize(const Piece& piece, Workspace& workspace) const override {
    return replace_all(piece, replacement_.pattern, replacement_.content, workspace);
  }

 private:
  Replacement replacement_;
};

class ReplaceDecoder final : public Decoder {
 public:
  explicit ReplaceDecoder(Replacement replacement) : replacement_(std::move(replacement)) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (auto& token : tokens) decode_inside(token);
  }
  void decode_inside(std::string& token) const override {
    token = replace_all(token, replacement_.pattern, replacement_.content);
  }

 private:
  Replacement replacement_;
};

}  // namespace

Piece replace_all(const Piece& piece, const Pattern& pattern, std::string_view content,
                  Workspace& workspace) {
  Pattern::Search search(pattern, piece.text);
  auto match = search.next();
  if (!match) return piece;
  Rewriter rewriter(piece, workspace);
  size_t done = 0;
  for (; match; match = search.next()) {
    rewriter.copy(done, match->begin);
    if (match->end > 0) {
      rewriter.put(content, match->end - 1);
    } else {
      rewriter.put_new(content);
    }
    done = match->end;
  }
  rewriter.copy(done, piece.text.size());
  return rewriter.finish();
}

std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content) {
  std::string replaced;
  size_t done = 0;
  Pattern::Search search(pattern, text);
  while (const auto match = search.next()) {
    replaced += text.substr(done, match->begin - done);
    replaced += content;
    done = match->end;
  }
  replaced += text.substr(done);
  return replaced;
}

std::unique_ptr<Normalizer> read_replace_normalizer(const PartReader& reader, const Json& json) {
  return std::make_unique<ReplaceNormalizer>(read_replacement(reader, json, kMaxContentBytes));
}

std::unique_ptr<Decoder> read_replace_decoder(const PartReader& reader, const Json& json) {
  return std::make_unique<ReplaceDecoder>(read_replacement(reader, json, kMaxDecodedBytes));
}

}  // namespace skein::text
