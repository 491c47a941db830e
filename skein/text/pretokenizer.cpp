// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/pretokenizer.h"

#include <fmt/format.h>

#include <cstdint>
#include <ctime>
#include <utility>

#include "skein/core/error.h"
#include "skein/text/pretokenizer_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace skein::text {
namespace {

template <auto function>
struct Free {
  template <typename T>
  void operator()(T* pointer) const {
    function(pointer);
  }
};

using Regex = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

constexpr size_t kJitStackBytes = size_t{64} << 20;

std::string message_of(int error) {
  std::string message(128, '\0');
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR8*>(message.data()), message.size());
  message.resize(message.find('\0'));
  return message;
}

Regex compile(std::string_view pattern) {
  const auto translated = to_pcre2_pattern(pattern);
  int error = 0;
  size_t offset = 0;
  Regex regex(pcre2_compile(reinterpret_cast<PCRE2_SPTR8>(translated.data()), translated.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                            nullptr));
  if (!regex) {
    throw UserError(
        fmt::format("the pattern '{}' cannot be compiled: {}", pattern, message_of(error)));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(regex.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    throw UserError(fmt::format("the pattern '{}' matches the empty string", pattern));
  }
  pcre2_jit_compile(regex.get(), PCRE2_JIT_COMPLETE);
  return regex;
}

}  // namespace

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Splitter::Code {
  explicit Code(std::string_view text)
      : pattern(text), regex(compile(text)), context(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(context.get(), kMatchLimit);
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

  std::string pattern;
  Regex regex;
  MatchContext context;
  bool has_jit = false;
};

namespace {

// A pattern may be cheap at every place and yet look through the rest of the text from each of
// them. The time of this thread counts: a machine that is busy with other things is no reason.
class TimeLimit {
 public:
  explicit TimeLimit(size_t bytes) : end_(now() + 0.5 + 2e-6 * static_cast<double>(bytes)) {}

  bool is_over() { return ++calls_ % 1024 == 0 && now() > end_; }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  double end_;
  uint64_t calls_ = 0;
};

}  // namespace

Splitter::Splitter(std::string_view pattern, SplitBehavior behavior)
    : code_(std::make_unique<Code>(pattern)), behavior_(behavior) {}
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

void Splitter::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const MatchData data(pcre2_match_data_create(1, nullptr));
  const size_t* ends = pcre2_get_ovector_pointer(data.get());
  const auto take = [&](size_t begin, size_t end, SplitBehavior dropped_by) {
    if (begin < end && behavior_ != dropped_by) pieces.push_back(text.substr(begin, end - begin));
  };
  TimeLimit limit(text.size());
  size_t done = 0;
  while (done < text.size()) {
    const int result = code_->match(text, done, data.get());
    if (result == PCRE2_ERROR_NOMATCH) break;
    const bool is_late = limit.is_over();
    if (result < 0 || is_late) {
      throw UserError(fmt::format(
          "the pattern '{}' of the tokenizer gave up at byte {} of a text of {} bytes: {}",
          code_->pattern, done, text.size(), is_late ? "too slow" : message_of(result)));
    }
    take(done, ends[0], SplitBehavior::kKeepsMatches);
    take(ends[0], ends[1], SplitBehavior::kKeepsGaps);
    done = ends[1];
  }
  take(done, text.size(), SplitBehavior::kKeepsMatches);
}

PreTokenizer::PreTokenizer(PreTokenizerOptions options) : options_(std::move(options)) {
  if (options_.gpt2_split) gpt2_.emplace(kGpt2Pattern);
}

void PreTokenizer::split(std::string_view text, Pieces& pieces) const {
  if (!text.empty()) pieces.views = {text};
  for (const auto& splitter : options_.splits) apply(splitter, pieces);
  if (options_.add_prefix_space) add_spaces(pieces);
  if (gpt2_) apply(*gpt2_, pieces);
}

void PreTokenizer::apply(const Splitter& splitter, Pieces& pieces) {
  std::vector<std::string_view> parts;
  for (const auto piece : pieces.views) splitter.split(piece, parts);
  pieces.views = std::move(parts);
}

void PreTokenizer::add_spaces(Pieces& pieces) {
  for (auto& view : pieces.views) {
    if (view.starts_with(' ')) continue;
    view = pieces.owned.emplace_back(fmt::format(" {}", view));
  }
}

}  // namespace skein::text
