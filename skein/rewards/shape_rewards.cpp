// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Rewards for what a completion looks like: its tags, a pattern, its length.
#include <fmt/format.h>

#include <algorithm>

#include "skein/core/log.h"
#include "skein/rewards/bounded_regex.h"
#include "skein/rewards/kinds.h"

namespace skein::rewards {
namespace {

constexpr std::string_view kThink = "<think>", kEndThink = "</think>";
constexpr std::string_view kAnswer = "<answer>", kEndAnswer = "</answer>";

// Templates of reasoning models end the prompt with the tag that the completion would begin with.
std::string with_tag_of_prompt(const Completion& completion) {
  const bool in_prompt = trimmed(completion.prompt).ends_with(kThink);
  return std::string(in_prompt ? kThink : "").append(trimmed(completion.text));
}

// Takes `<tag>…</tag>`, each of which occurs nowhere else in the text.
bool take_element(std::string_view& text, std::string_view open, std::string_view close) {
  if (!text.starts_with(open)) return false;
  const auto end = text.find(close);
  if (end == std::string_view::npos) return false;
  const bool once = text.find(open, 1) == std::string_view::npos && text.rfind(close) == end;
  text = trimmed(text.substr(end + close.size()));
  return once;
}

class FormatReward final : public SingleReward {
 public:
  using SingleReward::SingleReward;

 private:
  std::optional<double> judge(const Completion& completion) override {
    const auto whole = with_tag_of_prompt(completion);
    std::string_view text = whole;
    if (!take_element(text, kThink, kEndThink)) return 0;
    const bool early = std::string_view(whole).find(kAnswer) < whole.size() - text.size();
    return !early && take_element(text, kAnswer, kEndAnswer) && text.empty() ? 1 : 0;
  }
};

class ThinkFormatReward final : public SingleReward {
 public:
  using SingleReward::SingleReward;

 private:
  std::optional<double> judge(const Completion& completion) override {
    const auto whole = with_tag_of_prompt(completion);
    std::string_view text = whole;
    return take_element(text, kThink, kEndThink) ? 1 : 0;
  }
};

class RegexReward final : public SingleReward {
 public:
  RegexReward(const std::string& name, const std::string& pattern)
      : SingleReward(name), pattern_(pattern), regex_(pattern) {}

 private:
  std::optional<double> judge(const Completion& completion) override {
    const auto found = regex_.occurs_in(completion.text);
    if (!found && !has_warned_) {
      has_warned_ = true;
      log_warning(
          "the reward 'regex:{}' gives 0 to {}, and without further words to others like it: the "
          "pattern needs too many steps there; simpler repetitions need fewer",
          pattern_, place_of(completion));
    }
    return found.value_or(false) ? 1 : 0;
  }

  std::string pattern_;
  BoundedRegex regex_;
  bool has_warned_ = false;
};

class LengthReward final : public SingleReward {
 public:
  LengthReward(const std::string& name, const Arguments& arguments)
      : SingleReward(name),
        min_(arguments.required_count("min")),
        max_(arguments.required_count("max")),
        margin_(arguments.count("margin").value_or(0)) {
    if (min_ > max_) arguments.refuse(fmt::format("min is {}, above max {}", min_, max_));
  }

 private:
  std::optional<double> judge(const Completion& completion) override {
    const auto tokens = completion.num_tokens;
    const auto beyond = std::max({int64_t{0}, min_ - tokens, tokens - max_});
    if (beyond == 0) return 1;
    if (beyond >= margin_) return 0;
    return 1 - static_cast<double>(beyond) / static_cast<double>(margin_);
  }

  int64_t min_, max_, margin_;
};

class OverlongReward final : public SingleReward {
 public:
  OverlongReward(const std::string& name, const Arguments& arguments)
      : SingleReward(name),
        max_(arguments.required_count("max")),
        buffer_(arguments.required_count("buffer")) {
    if (buffer_ > max_) {
      arguments.refuse(fmt::format("buffer is {}, above max {}", buffer_, max_));
    }
  }

 private:
  std::optional<double> judge(const Completion& completion) override {
    const auto beyond = completion.num_tokens - (max_ - buffer_);
    if (beyond <= 0) return 0;
    if (beyond > buffer_) return -1;
    return -static_cast<double>(beyond) / static_cast<double>(buffer_);
  }

  int64_t max_, buffer_;
};

}  // namespace

RewardPointer make_format_reward(const std::string& name) {
  return std::make_unique<FormatReward>(name);
}

RewardPointer make_think_format_reward(const std::string& name) {
  return std::make_unique<ThinkFormatReward>(name);
}

RewardPointer make_regex_reward(const std::string& name, const std::string& pattern) {
  return std::make_unique<RegexReward>(name, pattern);
}

RewardPointer make_length_reward(const std::string& name, const Arguments& arguments) {
  return std::make_unique<LengthReward>(name, arguments);
}

RewardPointer make_overlong_reward(const std::string& name, const Arguments& arguments) {
  return std::make_unique<OverlongReward>(name, arguments);
}

}  // namespace skein::rewards
