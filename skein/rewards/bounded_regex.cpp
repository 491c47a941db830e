// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/bounded_regex.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "skein/core/error.h"
#include "skein/core/foreign_text.h"

namespace skein::rewards {
namespace {

constexpr uint64_t kSteps = 4'000'000, kStepsPerByte = 64;
constexpr size_t kMaxPattern = 16 << 10;
constexpr uint32_t kHeapKiB = 64 << 10;

struct Budget {
  uint64_t left;
  size_t position = 0;
};

// PCRE2 calls it before every item: what lies between two places was run over.
int count_steps(pcre2_callout_block* block, void* data) {
  auto& budget = *static_cast<Budget*>(data);
  const auto here = block->current_position;
  const uint64_t steps =
      1 + (here > budget.position ? here - budget.position : budget.position - here);
  budget.position = here;
  if (steps > budget.left) return PCRE2_ERROR_CALLOUT;
  budget.left -= steps;
  return 0;
}

}  // namespace

BoundedRegex::BoundedRegex(const std::string& pattern) {
  if (pattern.size() > kMaxPattern) {
    throw UserError(fmt::format("a pattern of {} bytes; {} are read", pattern.size(), kMaxPattern));
  }
  int error = 0;
  size_t offset = 0;
  constexpr uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF |
                               PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT;
  regex_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR8>(pattern.data()), pattern.size(), options,
                             &error, &offset, nullptr));
  if (regex_) return;
  std::array<char, 128> reason{};
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR8*>(reason.data()), reason.size());
  throw UserError(fmt::format("the pattern '{}' cannot be compiled: {} (at byte {})",
                              shown(pattern), reason.data(), offset));
}

std::optional<bool> BoundedRegex::occurs_in(std::string_view text) const {
  const pcre2::MatchContext context(pcre2_match_context_create(nullptr));
  const pcre2::MatchData data(pcre2_match_data_create(1, nullptr));
  Budget budget{.left = kSteps + kStepsPerByte * text.size()};
  pcre2_set_callout(context.get(), count_steps, &budget);
  pcre2_set_heap_limit(context.get(), kHeapKiB);
  const auto* bytes = reinterpret_cast<PCRE2_SPTR8>(text.empty() ? "" : text.data());
  const int result = pcre2_match(regex_.get(), bytes, text.size(), 0, 0, data.get(), context.get());
  if (result >= 0) return true;
  return result == PCRE2_ERROR_NOMATCH ? std::optional(false) : std::nullopt;
}

}  // namespace skein::rewards
