// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/syntax/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "skein/config/syntax/paths.h"
#include "skein/config/syntax/suggest.h"
#include "skein/config/syntax/yaml_reader.h"

namespace skein::config {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Without a leading plus and without underscores; these must stand between digits.
std::optional<std::string> plain_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return plain;
}

template <typename Number>
std::optional<Number> read_whole(const std::string& text) {
  Number value{};
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

struct Unit {
  std::string_view suffix;
  double factor;
};
constexpr Unit kUnits[] = {{"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40},
                           {"kb", 1e3},     {"mb", 1e6},     {"gb", 1e9},     {"tb", 1e12}};

// Octal elsewhere, decimal to the eye: refused rather than guessed.
bool has_leading_zero(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && is_digit(text[1]);
}

// Words that other programs take, or that the key's name suggests, and what to type for them.
struct Guess {
  std::string_view key, word, cure;
};
constexpr Guess kGuesses[] = {
    {"finetuning_type", "qlora", "give finetuning_type: lora with quantization_bit: 4"},
    {"finetuning_type", "dora", "give finetuning_type: lora with use_dora: true"},
    {"stage", "ipo", "give stage: dpo with pref_loss: ipo"},
    {"stage", "orpo", "give stage: dpo with pref_loss: orpo"},
    {"stage", "simpo", "give stage: dpo with pref_loss: simpo"},
    {"pref_loss", "dpo", "DPO's own is sigmoid"},
    {"offload_optimizer", "true", "give cpu (host memory), or nvme with nvme_path: FOLDER"},
    {"offload_param", "true", "give cpu (host memory), or nvme with nvme_path: FOLDER"},
    {"offload_activations", "cpu", "true is host memory"},
    {"activation_offloading", "cpu", "true is host memory"},
    {"gradient_accumulation_steps", "auto",
     "leave it out: it follows from global_batch_size and per_device_train_batch_size, which may "
     "be auto"},
};

std::string cure_of(const Setting& setting) {
  const auto word = lower(setting.value.text);
  for (const auto& guess : kGuesses) {
    if (setting.key == guess.key && word == guess.word) return fmt::format("; {}", guess.cure);
  }
  return "";
}

[[noreturn]] void refuse_value(const Setting& setting, const std::string& expected) {
  const auto& origin = setting.value.origin;
  refuse(origin, fmt::format("'{}' must be {}, not '{}'{}", setting.key, expected,
                             setting.value.shown(), cure_of(setting)));
}

std::string or_also(const char* expected, const About& about) {
  return about.also.empty() ? expected : fmt::format("{} or {}", expected, about.also);
}

void check_range(const Setting& setting, const About& about, double value) {
  const bool low = about.min_is_allowed ? value < about.min : value <= about.min;
  if (low) {
    refuse_value(setting, fmt::format("{} {:.15g}", about.min_is_allowed ? "at least" : "more than",
                                      about.min));
  }
  const bool high = about.max_is_allowed ? value > about.max : value >= about.max;
  if (high) {
    refuse_value(setting, fmt::format("{} {:.15g}", about.max_is_allowed ? "at most" : "less than",
                                      about.max));
  }
}

// Lower-case words of `a`, `a,b` or `[a, b]`.
std::vector<std::string> list_items(const Setting& setting) {
  std::vector<std::string> items;
  if (setting.value.kind == Node::Kind::kList) {
    for (const auto& item : setting.value.items) {
      if (item.kind != Node::Kind::kScalar) refuse_value(setting, "a list of words");
      items.push_back(lower(item.text));
    }
    return items;
  }
  if (setting.value.kind == Node::Kind::kMap) refuse_value(setting, "a word or a list of words");
  std::string word;
  for (const char c : setting.value.text + ",") {
    if (c == ',') {
      if (!word.empty()) items.push_back(lower(word));
      word.clear();
    } else if (c != ' ' && c != '[' && c != ']') {
      word += c;
    }
  }
  return items;
}

// The words of `a`, `a,b` or `[a, b]` as they are written; `none` alone is no word. A comma inside
// brackets belongs to its word: words may be patterns.
std::vector<std::string> verbatim_items(const Setting& setting) {
  std::vector<std::string> items;
  if (is_absent(setting.value)) return items;
  if (setting.value.kind == Node::Kind::kMap) refuse_value(setting, "a word or a list of words");
  if (setting.value.kind == Node::Kind::kList) {
    for (const auto& item : setting.value.items) {
      if (item.kind != Node::Kind::kScalar) refuse_value(setting, "a list of words");
      items.push_back(item.text);
    }
    return items;
  }
  std::string_view text = setting.value.text;
  if (text.starts_with('[') && text.ends_with(']')) {
    text.remove_prefix(1);
    text.remove_suffix(1);
  }
  int depth = 0;
  std::string word;
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == ',' && depth <= 0) {
      items.push_back(std::exchange(word, {}));
    } else if (c != ' ' || !word.empty()) {
      word += c;
    }
  }
  items.push_back(std::move(word));
  for (auto& item : items) item.erase(item.find_last_not_of(' ') + 1);
  std::erase(items, "");
  return items;
}

// A program and its arguments. Text is split at spaces, but inside of quotes; nothing in it is
// expanded, since no shell ever sees it.
std::vector<std::string> command_words(const Setting& setting) {
  if (setting.value.kind != Node::Kind::kScalar) return verbatim_items(setting);
  const std::string_view text = setting.value.text;
  if (is_absent(setting.value)) return {};
  if (text.starts_with('[')) {
    const auto map = read_yaml("list: " + setting.value.text, setting.origin.place());
    return verbatim_items({setting.key, *map.find("list"), setting.origin});
  }
  std::vector<std::string> words;
  std::string word;
  char quote = 0;
  bool has_word = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < text.size();
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (has_word) words.push_back(std::exchange(word, {}));
      has_word = false;
      continue;
    }
    has_word = true;
    if (escapes) {
      word += text[++i];
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else {
      word += c;
    }
  }
  if (quote != 0) refuse_value(setting, fmt::format("a command whose {} ends", quote));
  if (has_word) words.push_back(std::move(word));
  return words;
}

std::string joined(const Setting& setting) {
  std::string text;
  for (const auto& item : setting.value.items) {
    if (item.kind != Node::Kind::kScalar) refuse_value(setting, "a list of words");
    text += (text.empty() ? "" : ",") + item.text;
  }
  return text;
}

[[noreturn]] void refuse_item(const Setting& setting, const About& about,
                              const std::vector<std::string>& known, const std::string& word) {
  if (std::ranges::count(about.not_built, word) > 0) {
    refuse(setting.value.origin,
           fmt::format("'{}: {}' is known, but this version does not support it; it has {}",
                       setting.key, word, fmt::join(known, ", ")));
  }
  refuse(setting.value.origin,
         fmt::format("'{}' takes none, all or some of {}, not '{}'{}", setting.key,
                     fmt::join(known, ", "), word, did_you_mean(word, known)));
}

}  // namespace

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::optional<bool> parse_bool(const std::string& text) {
  const auto word = lower(text);
  for (const auto* yes : {"true", "yes", "on", "1"}) {
    if (word == yes) return true;
  }
  for (const auto* no : {"false", "no", "off", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

std::optional<double> parse_real(const std::string& text) {
  auto plain = plain_number(text);
  if (!plain || plain->empty()) return std::nullopt;
  const bool percent = plain->back() == '%';
  if (percent) plain->pop_back();
  const auto value = read_whole<double>(*plain);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return percent ? *value / 100 : *value;
}

std::optional<int64_t> parse_integer(const std::string& text) {
  auto plain = plain_number(text);
  if (!plain || has_leading_zero(*plain)) return std::nullopt;
  double factor = 1;
  for (const auto& unit : kUnits) {
    if (factor == 1 && lower(*plain).ends_with(unit.suffix)) {
      plain->resize(plain->size() - unit.suffix.size());
      while (plain->ends_with(' ')) plain->pop_back();
      factor = unit.factor;
    }
  }
  if (factor == 1) {
    if (const auto value = read_whole<int64_t>(*plain)) return value;
  }
  const auto real = read_whole<double>(*plain);
  if (!real) return std::nullopt;
  const double value = *real * factor;
  // Beyond 2^53 a double may already have been rounded.
  if (value != std::floor(value) || std::abs(value) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(value);
}

bool is_null(const Node& value) {
  if (value.kind == Node::Kind::kNull) return true;
  return value.kind == Node::Kind::kScalar && !value.quoted &&
         (value.text == "~" || lower(value.text) == "null");
}

bool is_absent(const Node& value) {
  return is_null(value) || (value.kind == Node::Kind::kScalar && lower(value.text) == "none");
}

void assign(const Setting& setting, const About& about, std::string& member) {
  if (is_null(setting.value)) {
    member.clear();
    return;
  }
  auto text = setting.value.text;
  if (about.takes_list && setting.value.kind == Node::Kind::kList) {
    text = joined(setting);
  } else if (setting.value.kind != Node::Kind::kScalar) {
    refuse_value(setting, about.takes_list ? "text or a list" : "text");
  }
  if (!about.choices.empty() && std::ranges::count(about.choices, text) == 0) {
    refuse_value(setting, fmt::format("one of {}", fmt::join(about.choices, ", ")));
  }
  member = about.is_path ? expanded_path(text, setting.value.origin) : std::move(text);
}

void assign(const Setting& setting, const About& about, bool& member) {
  const auto value = parse_bool(setting.value.text);
  if (!value) {
    refuse_value(setting, or_also(about.also.empty() ? "true or false" : "true, false", about));
  }
  member = *value;
}

void assign(const Setting& setting, const About& about, int64_t& member) {
  const auto value = parse_integer(setting.value.text);
  if (!value && has_leading_zero(setting.value.text)) {
    refuse_value(setting, "a whole number without leading zeros (octal elsewhere)");
  }
  if (!value) refuse_value(setting, or_also("a whole number", about));
  check_range(setting, about, static_cast<double>(*value));
  member = *value;
}

void assign(const Setting& setting, const About& about, double& member) {
  const auto value = parse_real(setting.value.text);
  if (!value) refuse_value(setting, or_also("a number", about));
  const bool by_sign = about.is_percentage && setting.value.text.ends_with('%');
  const double number = by_sign ? *value * 100 : *value;
  check_range(setting, about, number);
  member = number;
}

void assign(const Setting& setting, const About& about, std::optional<int64_t>& member) {
  member.reset();
  if (is_absent(setting.value)) return;
  int64_t value = 0;
  assign(setting, about, value);
  member = value;
}

void assign(const Setting& setting, const About& about, std::optional<double>& member) {
  member.reset();
  if (is_absent(setting.value)) return;
  double value = 0;
  assign(setting, about, value);
  member = value;
}

void assign(const Setting& setting, const About& about, std::vector<std::string>& member) {
  member.clear();
  if (about.is_command) {
    member = command_words(setting);
    return;
  }
  if (about.is_verbatim) {
    member = verbatim_items(setting);
    return;
  }
  const auto add = [&](const std::string& word) {
    if (std::ranges::count(member, word) == 0) member.push_back(word);
  };
  const std::vector<std::string> known(about.choices.begin(), about.choices.end());
  for (const auto& word : list_items(setting)) {
    if (word == "none" || word == "false" || word == "null") continue;
    if (word == "all") {
      for (const auto& choice : known) add(choice);
    } else if (known.empty() || std::ranges::count(known, word) > 0) {
      add(word);
    } else {
      refuse_item(setting, about, known, word);
    }
  }
}

std::vector<std::string> words_in(const Setting& setting) {
  if (is_absent(setting.value)) return {};
  auto words = list_items(setting);
  std::erase_if(
      words, [](const auto& word) { return word == "none" || word == "false" || word == "null"; });
  return words;
}

void assign(const Setting& setting, const About& about, std::vector<double>& member) {
  member.clear();
  for (const auto& word : words_in(setting)) {
    const auto number = parse_real(word);
    if (!number) refuse_value(setting, "a number or a list of numbers");
    check_range(setting, about, *number);
    member.push_back(*number);
  }
}

void assign(const Setting& setting, const About& about, NumberMap& member) {
  member.clear();
  if (is_absent(setting.value)) return;
  auto map = setting.value;
  if (map.kind == Node::Kind::kScalar && map.text.starts_with('{')) {
    map = read_yaml(map.text, setting.origin.place());
  }
  if (map.kind != Node::Kind::kMap) refuse_value(setting, "names with numbers, {name: number}");
  for (const auto& [name, origin, value] : map.members) {
    double number = 0;
    assign(Setting{setting.key + "." + name, value, origin}, about, number);
    member[name] = number;
  }
}

void refuse_word(const Setting& setting, const std::string& word, const Words& words) {
  const auto text = lower(word);
  const auto all = fmt::format("{}", fmt::join(words.known, ", "));
  if (std::ranges::find(words.not_built, text) != words.not_built.end()) {
    if (words.why_not != nullptr) {
      refuse(setting.value.origin, fmt::format("'{}: {}' is known, but {}; there are {}",
                                               setting.key, text, words.why_not, all));
    }
    refuse(setting.value.origin,
           fmt::format("'{}: {}' is known, but this version does not support it; it has {}",
                       setting.key, text, all));
  }
  auto near = cure_of(setting);
  if (near.empty()) near = did_you_mean(text, words.known);
  const auto shown = word == setting.value.text ? setting.value.shown() : word;
  refuse(setting.value.origin,
         fmt::format("'{}' must be one of {}, not '{}'{}", setting.key, all, shown, near));
}

std::string to_text(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      text += fmt::format("\\x{:02x}", static_cast<int>(c));
    } else {
      text += c;
    }
  }
  return text + "\"";
}

std::string to_text(bool value) { return value ? "true" : "false"; }
std::string to_text(int64_t value) { return fmt::format("{}", value); }
std::string to_text(double value) { return fmt::format("{}", value); }
std::string to_text(const std::optional<int64_t>& value) {
  return value ? to_text(*value) : "null";
}
std::string to_text(const std::optional<double>& value) { return value ? to_text(*value) : "null"; }
std::string to_text(const std::vector<std::string>& value) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  std::vector<std::string> words;
  for (const auto& word : value) {
    const bool is_plain = word.find_first_not_of(kPlain) == std::string::npos;
    words.push_back(is_plain ? word : to_text(word));
  }
  return fmt::format("[{}]", fmt::join(words, ", "));
}
std::string to_text(const std::vector<double>& value) {
  std::vector<std::string> numbers;
  for (const double number : value) numbers.push_back(to_text(number));
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}
std::string to_text(const NumberMap& value) {
  std::vector<std::string> pairs;
  for (const auto& [name, number] : value) {
    pairs.push_back(fmt::format("{}: {}", to_text(name), to_text(number)));
  }
  return fmt::format("{{{}}}", fmt::join(pairs, ", "));
}

Spellings<std::optional<DType>> spellings_of(std::optional<DType>) {
  static constexpr Spelling<std::optional<DType>> kKnown[] = {
      {"auto", std::nullopt},   {"float32", DType::kF32}, {"bfloat16", DType::kBF16},
      {"float16", DType::kF16}, {"float64", DType::kF64}, {"fp32", DType::kF32},
      {"bf16", DType::kBF16},   {"fp16", DType::kF16},    {"half", DType::kF16},
      {"fp64", DType::kF64}};
  return {kKnown, {}};
}
Spellings<Device> spellings_of(Device) {
  static constexpr Spelling<Device> kKnown[] = {{"auto", Device::kAuto},
                                                {"cuda", Device::kCuda},
                                                {"cpu", Device::kCpu},
                                                {"gpu", Device::kCuda}};
  return {kKnown, {}};
}
Spellings<Strategy> spellings_of(Strategy) {
  static constexpr Spelling<Strategy> kKnown[] = {{"auto", Strategy::kAuto},
                                                  {"ddp", Strategy::kDdp},
                                                  {"zero1", Strategy::kZero1},
                                                  {"zero2", Strategy::kZero2},
                                                  {"zero3", Strategy::kZero3}};
  static constexpr const char* kNotBuilt[] = {"fsdp", "fsdp2", "megatron", "tp", "pp"};
  return {kKnown, kNotBuilt};
}
Spellings<Schedule> spellings_of(Schedule) {
  static constexpr Spelling<Schedule> kKnown[] = {
      {"constant", Schedule::kConstant},
      {"constant_with_warmup", Schedule::kConstantWithWarmup},
      {"linear", Schedule::kLinear},
      {"cosine", Schedule::kCosine},
      {"cosine_with_restarts", Schedule::kCosineWithRestarts},
      {"polynomial", Schedule::kPolynomial},
      {"inverse_sqrt", Schedule::kInverseSqrt},
      {"cosine_with_min_lr", Schedule::kCosineWithMinLr},
      {"warmup_stable_decay", Schedule::kWarmupStableDecay},
      {"nanogpt", Schedule::kNanoGpt},
      {"warmuplr", Schedule::kWarmupLr},
      {"warmupdecaylr", Schedule::kWarmupDecayLr},
      {"warmupcosinelr", Schedule::kWarmupCosineLr},
      {"onecycle", Schedule::kOneCycle},
      {"lrrangetest", Schedule::kLrRangeTest},
      {"wsd", Schedule::kWarmupStableDecay}};
  static constexpr const char* kNotBuilt[] = {"reduce_lr_on_plateau", "cosine_warmup_with_min_lr",
                                              "greedy", "one_cycle", "rex"};
  return {kKnown, kNotBuilt};
}
Spellings<WarmupCurve> spellings_of(WarmupCurve) {
  static constexpr Spelling<WarmupCurve> kKnown[] = {{"auto", WarmupCurve::kAuto},
                                                     {"linear", WarmupCurve::kLinear},
                                                     {"log", WarmupCurve::kLog},
                                                     {"cosine", WarmupCurve::kCosine},
                                                     {"1-sqrt", WarmupCurve::kOneMinusSqrt}};
  return {kKnown, {}};
}
Spellings<DsCompat> spellings_of(DsCompat) {
  static constexpr Spelling<DsCompat> kKnown[] = {{"0.16", DsCompat::k0_16},
                                                  {"0.19", DsCompat::k0_19}};
  return {kKnown, {}};
}
Spellings<LossScaleRule> spellings_of(LossScaleRule) {
  static constexpr Spelling<LossScaleRule> kKnown[] = {{"pytorch", LossScaleRule::kPyTorch},
                                                       {"deepspeed", LossScaleRule::kDeepSpeed}};
  return {kKnown, {}};
}
Spellings<Offload> spellings_of(Offload) {
  static constexpr Spelling<Offload> kKnown[] = {{"none", Offload::kNone},
                                                 {"cpu", Offload::kCpu},
                                                 {"nvme", Offload::kNvme},
                                                 {"false", Offload::kNone}};
  return {kKnown, {}};
}
Spellings<OptimizerKind> spellings_of(OptimizerKind) {
  static constexpr Spelling<OptimizerKind> kKnown[] = {
      {"adamw_torch", OptimizerKind::kAdamW},
      {"adamw_8bit", OptimizerKind::kAdamW8bit},
      {"adamw_torch_fused", OptimizerKind::kAdamW},
      {"adamw", OptimizerKind::kAdamW},
      {"adamw_hf", OptimizerKind::kAdamW},
      {"adamw_apex_fused", OptimizerKind::kAdamW},
      {"paged_adamw", OptimizerKind::kAdamW},
      {"paged_adamw_32bit", OptimizerKind::kAdamW},
      {"adamw_torch_8bit", OptimizerKind::kAdamW8bit},
      {"adamw_bnb_8bit", OptimizerKind::kAdamW8bit},
      {"paged_adamw_8bit", OptimizerKind::kAdamW8bit}};
  static constexpr const char* kNotBuilt[] = {
      "adafactor",           "sgd", "adagrad", "lion_8bit", "lion_32bit", "rmsprop", "galore_adamw",
      "schedule_free_adamw", "muon"};
  return {kKnown, kNotBuilt};
}
Spellings<QuantizationBit> spellings_of(QuantizationBit) {
  static constexpr Spelling<QuantizationBit> kKnown[] = {{"none", QuantizationBit::kNone},
                                                         {"4", QuantizationBit::kFour},
                                                         {"0", QuantizationBit::kNone},
                                                         {"null", QuantizationBit::kNone},
                                                         {"false", QuantizationBit::kNone}};
  static constexpr const char* kNotBuilt[] = {"8", "3", "2"};
  return {kKnown, kNotBuilt};
}
Spellings<Curve> spellings_of(Curve) {
  static constexpr Spelling<Curve> kKnown[] = {
      {"linear", Curve::kLinear}, {"cosine", Curve::kCosine}, {"1-sqrt", Curve::kOneMinusSqrt}};
  return {kKnown, {}};
}
Spellings<LrScaling> spellings_of(LrScaling) {
  static constexpr Spelling<LrScaling> kKnown[] = {
      {"none", LrScaling::kNone}, {"linear", LrScaling::kLinear}, {"sqrt", LrScaling::kSqrt}};
  return {kKnown, {}};
}
Spellings<BadLines> spellings_of(BadLines) {
  static constexpr Spelling<BadLines> kKnown[] = {{"stop", BadLines::kStop},
                                                  {"skip", BadLines::kSkip}};
  return {kKnown, {}};
}
Spellings<EvalStrategy> spellings_of(EvalStrategy) {
  static constexpr Spelling<EvalStrategy> kKnown[] = {{"no", EvalStrategy::kNo},
                                                      {"steps", EvalStrategy::kSteps},
                                                      {"epoch", EvalStrategy::kEpoch},
                                                      {"none", EvalStrategy::kNo},
                                                      {"false", EvalStrategy::kNo}};
  return {kKnown, {}};
}
Spellings<SaveStrategy> spellings_of(SaveStrategy) {
  static constexpr Spelling<SaveStrategy> kKnown[] = {{"no", SaveStrategy::kNo},
                                                      {"steps", SaveStrategy::kSteps},
                                                      {"epoch", SaveStrategy::kEpoch},
                                                      {"none", SaveStrategy::kNo},
                                                      {"false", SaveStrategy::kNo}};
  static constexpr const char* kNotBuilt[] = {"best"};
  return {kKnown, kNotBuilt};
}
Spellings<GreaterIsBetter> spellings_of(GreaterIsBetter) {
  static constexpr Spelling<GreaterIsBetter> kKnown[] = {{"auto", GreaterIsBetter::kAuto},
                                                         {"true", GreaterIsBetter::kYes},
                                                         {"false", GreaterIsBetter::kNo},
                                                         {"null", GreaterIsBetter::kAuto},
                                                         {"none", GreaterIsBetter::kAuto}};
  return {kKnown, {}};
}
Spellings<NanPolicy> spellings_of(NanPolicy) {
  static constexpr Spelling<NanPolicy> kKnown[] = {
      {"stop", NanPolicy::kStop}, {"skip", NanPolicy::kSkip}, {"rollback", NanPolicy::kRollback}};
  return {kKnown, {}};
}
Spellings<TrainingStage> spellings_of(TrainingStage) {
  static constexpr Spelling<TrainingStage> kKnown[] = {{"pt", TrainingStage::kPretrain},
                                                       {"sft", TrainingStage::kSft},
                                                       {"rm", TrainingStage::kReward},
                                                       {"dpo", TrainingStage::kDpo},
                                                       {"kto", TrainingStage::kKto},
                                                       {"ppo", TrainingStage::kPpo},
                                                       {"grpo", TrainingStage::kGrpo},
                                                       {"rloo", TrainingStage::kRloo},
                                                       {"pretrain", TrainingStage::kPretrain},
                                                       {"reward", TrainingStage::kReward},
                                                       {"reward_model", TrainingStage::kReward}};
  static constexpr const char* kNotBuilt[] = {"less"};
  return {kKnown, kNotBuilt};
}
Spellings<PreferenceLoss> spellings_of(PreferenceLoss) {
  using enum PreferenceLoss;
  static constexpr Spelling<PreferenceLoss> kKnown[] = {{"sigmoid", kSigmoid},
                                                        {"hinge", kHinge},
                                                        {"ipo", kIpo},
                                                        {"robust", kRobust},
                                                        {"exo_pair", kExoPair},
                                                        {"nca_pair", kNcaPair},
                                                        {"sppo_hard", kSppoHard},
                                                        {"apo_zero", kApoZero},
                                                        {"apo_down", kApoDown},
                                                        {"discopop", kDiscopop},
                                                        {"sigmoid_norm", kSigmoidNorm},
                                                        {"simpo", kSimpo},
                                                        {"orpo", kOrpo},
                                                        {"sft", kSft},
                                                        {"kto", kKto},
                                                        {"apo_zero_unpaired", kApoZeroUnpaired}};
  static constexpr const char* kNotBuilt[] = {"aot", "aot_pair", "aot_unpaired",
                                              "bco", "bco_pair", "kto_pair"};
  return {kKnown, kNotBuilt,
          "it mixes the samples of a batch, so that the loss would depend on how a step is split"};
}
Spellings<Divergence> spellings_of(Divergence) {
  static constexpr Spelling<Divergence> kKnown[] = {{"reverse_kl", Divergence::kReverseKl},
                                                    {"forward_kl", Divergence::kForwardKl},
                                                    {"js_divergence", Divergence::kJensenShannon},
                                                    {"alpha_divergence", Divergence::kAlpha}};
  return {kKnown, {}};
}
Spellings<FinetuningType> spellings_of(FinetuningType) {
  static constexpr Spelling<FinetuningType> kKnown[] = {{"full", FinetuningType::kFull},
                                                        {"freeze", FinetuningType::kFreeze},
                                                        {"lora", FinetuningType::kLora}};
  static constexpr const char* kNotBuilt[] = {"oft", "galore", "badam"};
  return {kKnown, kNotBuilt};
}
Spellings<ExcessLength> spellings_of(ExcessLength) {
  static constexpr Spelling<ExcessLength> kKnown[] = {{"truncate", ExcessLength::kTruncate},
                                                      {"drop", ExcessLength::kDrop},
                                                      {"error", ExcessLength::kError},
                                                      {"raise", ExcessLength::kError}};
  return {kKnown, {}};
}
Spellings<EqualPairs> spellings_of(EqualPairs) {
  static constexpr Spelling<EqualPairs> kKnown[] = {
      {"drop", EqualPairs::kDrop}, {"keep", EqualPairs::kKeep}, {"error", EqualPairs::kError}};
  return {kKnown, {}};
}
Spellings<BatchConflict> spellings_of(BatchConflict) {
  static constexpr Spelling<BatchConflict> kKnown[] = {{"error", BatchConflict::kError},
                                                       {"keep_micro", BatchConflict::kKeepMicro},
                                                       {"keep_global", BatchConflict::kKeepGlobal}};
  return {kKnown, {}};
}

}  // namespace skein::config
