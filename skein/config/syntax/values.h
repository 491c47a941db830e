// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Text to value and back, by the declared type of a field.
//
// Integers: 42, 1_000, 2e8, 25MiB (KiB MiB GiB TiB, and kB MB GB TB by thousands); never octal.
// Reals: also 5%. Booleans: true/false, yes/no, on/off, 1/0. Optionals: none, null or ~ is absent.
// Lists: a word, words with commas, or a YAML list; none is empty, all is every choice. Maps:
// {name: number, …}. Commands: a list of words, or text that is split as a shell would split it.

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "skein/config/syntax/about.h"
#include "skein/config/syntax/choices.h"
#include "skein/config/syntax/node.h"
#include "skein/core/dtype.h"

namespace skein::config {

using NumberMap = std::map<std::string, double>;

// None when the text is not such a value.
std::optional<bool> parse_bool(const std::string& text);
std::optional<int64_t> parse_integer(const std::string& text);
std::optional<double> parse_real(const std::string& text);
// null or ~; `none` too for optionals.
bool is_null(const Node& value);
bool is_absent(const Node& value);

std::string lower(std::string text);

// The words of a choice: canonical spellings first, then synonyms.
template <typename Choice>
struct Spelling {
  const char* text;
  Choice value;
};
template <typename Choice>
struct Spellings {
  std::span<const Spelling<Choice>> known;
  std::span<const char* const> not_built;  // real values elsewhere that this version cannot do
  const char* why_not = nullptr;           // why it cannot; null: it does not yet
};
Spellings<std::optional<DType>> spellings_of(std::optional<DType>);  // absent: auto
Spellings<Device> spellings_of(Device);
Spellings<Strategy> spellings_of(Strategy);
Spellings<Schedule> spellings_of(Schedule);
Spellings<NanPolicy> spellings_of(NanPolicy);
Spellings<TrainingStage> spellings_of(TrainingStage);
Spellings<PreferenceLoss> spellings_of(PreferenceLoss);
Spellings<Divergence> spellings_of(Divergence);
Spellings<PolicyLoss> spellings_of(PolicyLoss);
Spellings<RatioLevel> spellings_of(RatioLevel);
Spellings<KlEstimator> spellings_of(KlEstimator);
Spellings<AdvantageEstimator> spellings_of(AdvantageEstimator);
Spellings<ScaleRewards> spellings_of(ScaleRewards);
Spellings<RolloutCorrection> spellings_of(RolloutCorrection);
Spellings<KlPlace> spellings_of(KlPlace);
Spellings<LongPrompts> spellings_of(LongPrompts);
Spellings<FinetuningType> spellings_of(FinetuningType);
Spellings<ExcessLength> spellings_of(ExcessLength);
Spellings<EqualPairs> spellings_of(EqualPairs);
Spellings<BatchConflict> spellings_of(BatchConflict);
Spellings<WarmupCurve> spellings_of(WarmupCurve);
Spellings<Curve> spellings_of(Curve);
Spellings<DsCompat> spellings_of(DsCompat);
Spellings<LossScaleRule> spellings_of(LossScaleRule);
Spellings<Offload> spellings_of(Offload);
Spellings<OptimizerKind> spellings_of(OptimizerKind);
Spellings<QuantizationBit> spellings_of(QuantizationBit);
Spellings<LrScaling> spellings_of(LrScaling);
Spellings<BadLines> spellings_of(BadLines);
Spellings<EvalStrategy> spellings_of(EvalStrategy);
Spellings<SaveStrategy> spellings_of(SaveStrategy);
Spellings<GreaterIsBetter> spellings_of(GreaterIsBetter);

template <typename T>
concept IsChoice = std::is_enum_v<T> || std::is_same_v<T, std::optional<DType>>;
// Absent: `auto`, what another key makes of it.
template <typename T>
concept IsOpenChoice = std::is_enum_v<typename T::value_type> && !IsChoice<T> &&
                       std::is_same_v<T, std::optional<typename T::value_type>>;
inline constexpr std::string_view kAuto = "auto";

// Throw UserError at the value's place when it is of the wrong type or out of range.
void assign(const Setting& setting, const About& about, std::string& member);
void assign(const Setting& setting, const About& about, bool& member);
void assign(const Setting& setting, const About& about, int64_t& member);
void assign(const Setting& setting, const About& about, double& member);
void assign(const Setting& setting, const About& about, std::optional<int64_t>& member);
void assign(const Setting& setting, const About& about, std::optional<double>& member);
void assign(const Setting& setting, const About& about, std::vector<std::string>& member);
void assign(const Setting& setting, const About& about, std::vector<double>& member);
void assign(const Setting& setting, const About& about, NumberMap& member);
template <IsChoice Choice>
void assign(const Setting& setting, const About& about, Choice& member);
template <IsChoice Choice>
void assign(const Setting& setting, const About& about, std::vector<Choice>& member);
template <IsOpenChoice Choice>
void assign(const Setting& setting, const About& about, Choice& member);

// As YAML; assign() reads it back to the same value.
std::string to_text(const std::string& value);
std::string to_text(bool value);
std::string to_text(int64_t value);
std::string to_text(double value);
std::string to_text(const std::optional<int64_t>& value);
std::string to_text(const std::optional<double>& value);
std::string to_text(const std::vector<std::string>& value);
std::string to_text(const std::vector<double>& value);
std::string to_text(const NumberMap& value);
template <IsChoice Choice>
std::string to_text(const Choice& value) {
  for (const auto& word : spellings_of(value).known) {
    if (word.value == value) return word.text;
  }
  return "";
}

template <IsOpenChoice Choice>
std::string to_text(const Choice& value) {
  return value ? to_text(*value) : std::string(kAuto);
}

// The words that mean different things.
template <IsChoice Choice>
std::vector<std::string> words_of(const std::vector<Choice>& values) {
  std::vector<std::string> words;
  for (const auto& value : values) words.push_back(to_text(value));
  return words;
}
template <IsChoice Choice>
std::string to_text(const std::vector<Choice>& value) {
  return to_text(words_of(value));
}

// What refuses a word: those that are known, and those that are known elsewhere.
struct Words {
  std::vector<std::string> known;
  std::span<const char* const> not_built;
  const char* why_not = nullptr;
};
[[noreturn]] void refuse_word(const Setting& setting, const std::string& word, const Words& words);
// The words of `a`, `a,b` or `[a, b]` in lower case; none, null and false are no words.
std::vector<std::string> words_in(const Setting& setting);

template <IsChoice Choice>
Words words_of(const Spellings<Choice>& spellings) {
  Words words{{}, spellings.not_built, spellings.why_not};
  for (const auto& word : spellings.known) words.known.emplace_back(word.text);
  return words;
}

template <IsChoice Choice>
void assign(const Setting& setting, const About& about, Choice& member) {
  const auto spellings = spellings_of(member);
  const auto text = lower(setting.value.text);
  for (const auto& word : spellings.known) {
    if (setting.value.kind == Node::Kind::kScalar && text == word.text) {
      member = word.value;
      return;
    }
  }
  auto words = words_of(spellings);
  if (!about.also.empty()) words.known.emplace_back(about.also);
  refuse_word(setting, setting.value.text, words);
}

template <IsChoice Choice>
void assign(const Setting& setting, const About&, std::vector<Choice>& member) {
  member.clear();
  const auto spellings = spellings_of(Choice());
  for (const auto& text : words_in(setting)) {
    const auto found =
        std::ranges::find_if(spellings.known, [&](const auto& word) { return text == word.text; });
    if (found == spellings.known.end()) refuse_word(setting, text, words_of(spellings));
    member.push_back(found->value);
  }
}

template <IsOpenChoice Choice>
void assign(const Setting& setting, const About& about, Choice& member) {
  member.reset();
  if (is_null(setting.value) || lower(setting.value.text) == kAuto) return;
  auto open = about;
  open.also = kAuto;
  typename Choice::value_type value{};
  assign(setting, open, value);
  member = value;
}

}  // namespace skein::config
