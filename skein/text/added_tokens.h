// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which parts of a text are tokens by themselves, before any splitting?
//
// Added tokens are found from left to right, the longest first. Thread-safe once built.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::text {

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool special = false;      // left out by decoding with skip_special_tokens
  bool single_word = false;  // not where it touches a word character
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // swallows the white space after it
  bool normalized = true;    // looked for in the normalised text, else in the text as given
};

class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  // Calls take(begin, end, token) for the parts of `text` (valid UTF-8) in order, none of which is
  // empty. The token of plain text is null.
  using Take = std::function<void(size_t begin, size_t end, const AddedToken* token)>;
  void for_each_part(std::string_view text, const Take& take) const;

 private:
  // A trie of the contents. Children are linked as first child and next sibling.
  struct Node {
    uint32_t token = kNone;  // index into tokens_, when a content ends here
    uint32_t child = kNone;
    uint32_t sibling = kNone;
    char byte = 0;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  void insert(uint32_t token);
  // The first place from `from` on where a content may begin; the end: none.
  size_t next_root(std::string_view text, size_t from) const;
  uint32_t child_of(uint32_t node, char byte) const;
  // The longest content that `text` begins with: an index into tokens_, or kNone.
  uint32_t match(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  uint32_t roots_[256];  // the nodes of first bytes
  size_t num_roots_ = 0;
  char root_ = 0;  // of several any one
};

}  // namespace skein::text
