// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/same_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/hash.h"

namespace skein::gradient_features {
namespace {

constexpr size_t kShownBytes = 64;  // of a value
constexpr int64_t kBits = 63;       // of a word: sums stay positive

// What `root` gives: the others add nothing.
std::vector<int64_t> share(std::vector<int64_t> words, int64_t root, comm::Group& group) {
  if (group.rank() != root) std::ranges::fill(words, 0);
  return group.sum(words);
}

std::string share_text(std::string text, int64_t root, comm::Group& group) {
  text.resize(kShownBytes, '\0');
  std::vector<int64_t> words(kShownBytes / sizeof(int64_t));
  std::memcpy(words.data(), text.data(), kShownBytes);
  words = share(std::move(words), root, group);
  std::memcpy(text.data(), words.data(), kShownBytes);
  return text.substr(0, text.find('\0'));
}

// The first rank that says so.
std::optional<int64_t> first_rank(bool differs, comm::Group& group) {
  std::vector<int64_t> words(static_cast<size_t>(group.size() / kBits + 1));
  if (differs) {
    words[static_cast<size_t>(group.rank() / kBits)] = int64_t{1} << (group.rank() % kBits);
  }
  words = group.sum(words);
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    if (words[static_cast<size_t>(rank / kBits)] >> (rank % kBits) & 1) return rank;
  }
  return std::nullopt;
}

// What a digest is of, whose letters say nothing; null: the key is none.
const char* digested(std::string_view key) {
  if (key == "projection_digest") return "the choice of parameters";
  if (key == "model_digest") return "the model (its weights, adapter or settings)";
  if (key == "moments_digest") return "the optimizer's state";
  if (key == "data_digest") return "the data (its rows, tokenizer or template)";
  return nullptr;
}

}  // namespace

void require_same_facts(const CollectionFacts& facts, comm::Group& group) {
  const auto entries = fact_entries(facts);
  std::vector<int64_t> own;
  for (const auto& entry : entries) own.push_back(static_cast<int64_t>(hash64(entry.value)));
  const auto first = share(own, 0, group);
  const auto differs = std::ranges::mismatch(own, first).in1 - own.begin();
  const auto rank = first_rank(differs < std::ssize(own), group);
  if (!rank) return;
  const auto key = static_cast<size_t>(share({differs}, *rank, group)[0]);
  if (const auto* name = digested(entries[key].key)) {
    throw UserError(
        fmt::format("the ranks are to collect different rows: {} of rank {} is not that of rank 0. "
                    "Start all of them with the same words, on the same files",
                    name, *rank));
  }
  const auto asked = share_text(entries[key].value, 0, group);
  const auto other = share_text(entries[key].value, *rank, group);
  throw UserError(
      fmt::format("the ranks are to collect different rows: {} is {} on rank 0 and {} on rank {}. "
                  "Start all of them with the same words, on the same files",
                  entries[key].key, shown(asked), shown(other), *rank));
}

}  // namespace skein::gradient_features
