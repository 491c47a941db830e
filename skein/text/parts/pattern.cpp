// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/pattern.h"

#include <fmt/format.h>

#include <cstdint>
#include <ctime>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/pcre2.h"
#include "skein/text/parts/pattern_syntax.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

using pcre2::JitStack;
using pcre2::MatchContext;
using pcre2::MatchData;
using pcre2::Regex;

constexpr size_t kJitStackBytes = size_t{64} << 20;

// Backtracking steps of one match. Nested repetitions can ask for exponentially many at every
// place, so theirs end earlier and their clock is looked at more often.
constexpr uint32_t kMatchLimit = 50'000'000, kNestedMatchLimit = 5'000'000;
constexpr uint32_t kCallsPerLook = 1024, kNestedCallsPerLook = 16;

std::string message_of(int error) {
  std::string message(128, '\0');
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR8*>(message.data()), message.size());
  message.resize(message.find('\0'));
  return message;
}

Regex compile(std::string_view expression, const std::string& translated) {
  int error = 0;
  size_t offset = 0;
  Regex regex(pcre2_compile(reinterpret_cast<PCRE2_SPTR8>(translated.data()), translated.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                            nullptr));
  if (!regex) {
    throw UserError(
        fmt::format("the pattern '{}' cannot be compiled: {}", expression, message_of(error)));
  }
  pcre2_jit_compile(regex.get(), PCRE2_JIT_COMPLETE);
  return regex;
}

// Of this thread: a machine that is busy with other things is no reason to give up.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

pcre2_match_data* match_data() {
  thread_local const MatchData data(pcre2_match_data_create(1, nullptr));
  return data.get();
}

}  // namespace

struct Pattern::Code {
  explicit Code(std::string_view expression) : Code(expression, to_pcre2_pattern(expression)) {}

  Code(std::string_view expression, const Pcre2Pattern& translated)
      : regex(compile(expression, translated.text)),
        context(pcre2_match_context_create(nullptr)),
        calls_per_look(translated.is_nested ? kNestedCallsPerLook : kCallsPerLook) {
    pcre2_set_match_limit(context.get(), translated.is_nested ? kNestedMatchLimit : kMatchLimit);
    size_t jit_bytes = 0;
    pcre2_pattern_info(regex.get(), PCRE2_INFO_JITSIZE, &jit_bytes);
    has_jit = jit_bytes > 0;
  }

  int match(std::string_view text, size_t from, pcre2_match_data* data) const {
    const auto* bytes = reinterpret_cast<PCRE2_SPTR8>(text.data());
    // No jit where the system forbids writable code; the interpreter gives the same answers.
    const auto run = has_jit ? pcre2_jit_match : pcre2_match;
    const int result =
        run(regex.get(), bytes, text.size(), from, PCRE2_NO_UTF_CHECK, data, context.get());
    return result == PCRE2_ERROR_JIT_STACKLIMIT ? match_with_stack(text, from, data) : result;
  }

  // Deep backtracking outgrows the 32 KiB that a match has on the machine's stack.
  int match_with_stack(std::string_view text, size_t from, pcre2_match_data* data) const {
    const JitStack stack(pcre2_jit_stack_create(size_t{1} << 20, kJitStackBytes, nullptr));
    const MatchContext own(pcre2_match_context_copy(context.get()));
    pcre2_jit_stack_assign(own.get(), nullptr, stack.get());
    return pcre2_jit_match(regex.get(), reinterpret_cast<PCRE2_SPTR8>(text.data()), text.size(),
                           from, PCRE2_NO_UTF_CHECK, data, own.get());
  }

  Regex regex;
  MatchContext context;
  uint32_t calls_per_look;
  bool has_jit = false;
};

Pattern::Pattern() = default;
Pattern::Pattern(std::string_view expression, Engine engine)
    : expression_(expression),
      finder_(engine == Engine::kBest ? known_finder(expression) : nullptr) {
  if (finder_ == nullptr) code_ = std::make_unique<Code>(expression);
}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Pattern Pattern::literal(std::string_view text) {
  Pattern pattern;
  pattern.expression_ = text;
  return pattern;
}

Pattern::Search::Search(const Pattern& pattern, std::string_view text)
    : pattern_(pattern), text_(text) {}

std::optional<TokenSpan> Pattern::Search::next() {
  TokenSpan found;
  while (from_ <= text_.size() && find(found)) {
    if (found.begin == found.end && last_end_ == found.end) {
      from_ += from_ < text_.size() ? first_character(text_.substr(from_)).size : 1;
      continue;
    }
    from_ = found.end;
    last_end_ = found.end;
    return found;
  }
  return std::nullopt;
}

bool Pattern::Search::find(TokenSpan& found) {
  if (pattern_.finder_ != nullptr) return pattern_.finder_(text_, from_, found);
  if (pattern_.is_literal()) {
    found.begin = text_.find(pattern_.expression_, from_);
    found.end = found.begin + pattern_.expression_.size();
    return found.begin != std::string_view::npos;
  }
  auto* data = match_data();
  const int result = pattern_.code_->match(text_, from_, data);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) give_up(message_of(result));
  if (is_late()) give_up("too slow");
  const size_t* ends = pcre2_get_ovector_pointer(data);
  found = {ends[0], ends[1]};
  return true;
}

// A pattern may be cheap at every place and yet look through the rest of the text from each of
// them.
bool Pattern::Search::is_late() {
  if (++calls_ % pattern_.code_->calls_per_look != 0) return false;
  const double now = thread_seconds();
  if (deadline_ == 0) deadline_ = now + 0.5 + 2e-6 * static_cast<double>(text_.size());
  return now > deadline_;
}

void Pattern::Search::give_up(std::string_view reason) const {
  throw UserError(
      fmt::format("the pattern '{}' of the tokenizer gave up at byte {} of a text of {} bytes: {}",
                  pattern_.expression_, from_, text_.size(), reason));
}

}  // namespace skein::text
