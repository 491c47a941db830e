// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tokens does a pre-token become? Byte-level byte pair encoding.
//
// Thread-safe once built.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "skein/text/bpe_merges.h"

namespace skein::text {

struct BpeOptions {
  // What stands for a byte that the vocabulary lacks; none: such bytes are dropped.
  std::optional<uint32_t> unknown = std::nullopt;
  bool fuse_unknown = false;   // one for a run of such bytes
  bool ignore_merges = false;  // a pre-token that is in the vocabulary is taken as it is
};

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <typename Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

class Bpe {
 public:
  // `vocabulary` maps bytes (not their spelling) to ids.
  Bpe(const StringMap<uint32_t>& vocabulary, const std::vector<Merge>& merges, BpeOptions options);

  // Appends the ids of one pre-token.
  void encode(std::string_view word, std::vector<uint32_t>& ids) const;

 private:
  static constexpr uint32_t kMissing = UINT32_MAX;

  std::vector<uint32_t> byte_tokens(std::string_view word) const;
  bool merges_to_itself(std::string_view word, uint32_t id) const;

  MergeTable merges_;
  BpeOptions options_;
  std::array<uint32_t, 256> byte_ids_;
  // The tokens that their own bytes merge to: most words of a text are found here at once.
  StringMap<uint32_t> whole_;
};

}  // namespace skein::text
