// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/chat_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "skein/core/error.h"
#include "skein/text/empty_turn.h"
#include "skein/text/turn_end.h"

namespace skein::text {
namespace {

// Of all renderings that one conversation may take: without {% generation %} they grow with the
// square of its messages.
constexpr uint64_t kMaxSteps = 10'000'000;

bool is_assistant(const Message& message) { return message.role == "assistant"; }

// What the template prints for single messages, found by rendering more and more of them.
class PrefixSpans {
 public:
  PrefixSpans(const ChatTemplate& chat_template, const Conversation& conversation,
              const std::string& whole)
      : template_(chat_template), conversation_(conversation), whole_(whole) {}

  jinja::Span span_of(size_t index) {
    const auto& message = conversation_.messages[index];
    auto before = begin_of(index);
    auto after = index + 1 == conversation_.messages.size() ? whole_ : text_of(index + 1, false);
    if (!after.starts_with(before)) refuse(index, "what comes before it");
    if (!whole_.starts_with(after)) refuse(index, "the messages that follow");
    if (message.role == "assistant" && before.size() == after.size()) {
      throw UserError(fmt::format("{}: prints nothing for message {} ({})", template_.name(),
                                  index + 1, message.role));
    }
    return {.begin = before.size(), .end = after.size()};
  }

 private:
  // The text that ends where the message begins. Nothing stands before the first message, and many
  // templates cannot print no message at all.
  std::string begin_of(size_t index) {
    if (index == 0) return {};
    return text_of(index, is_assistant(conversation_.messages[index]));
  }

  std::string text_of(size_t num_messages, bool add_generation_prompt) {
    const auto budget = std::min(jinja::Limits{}.steps, kMaxSteps - steps_);
    if (budget < jinja::Limits{}.steps) {
      throw UserError(
          fmt::format("{}: {} messages are too many for a template that does not mark "
                      "the assistant's text: put {{% generation %}} and "
                      "{{% endgeneration %}} around it",
                      template_.name(), conversation_.messages.size()));
    }
    auto rendered = template_.render(conversation_, {.add_generation_prompt = add_generation_prompt,
                                                     .extra_json = {},
                                                     .num_messages = num_messages,
                                                     .max_steps = budget});
    steps_ += rendered.steps;
    return std::move(rendered.text);
  }

  [[noreturn]] void refuse(size_t index, std::string_view others) const {
    throw UserError(fmt::format(
        "{}: the text of message {} ({}) depends on {}, so it is unknown which tokens to train. "
        "Set "
        "template to one of skein's (each turn prints alike), put {{% generation %}} and "
        "{{% endgeneration %}} around the assistant's text in the template, or train the last turn "
        "alone (mask_history: true)",
        template_.name(), index + 1, conversation_.messages[index].role, others));
  }

  const ChatTemplate& template_;
  const Conversation& conversation_;
  const std::string& whole_;
  uint64_t steps_ = 0;
};

std::vector<size_t> trained_messages(const Conversation& conversation, TrainedTurns turns) {
  const auto& messages = conversation.messages;
  size_t last = messages.size();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (is_assistant(messages[i])) last = i;
  }
  std::vector<size_t> trained;
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool by_turn = turns == TrainedTurns::kAll ||
                         (turns == TrainedTurns::kLast && i == last) ||
                         (turns == TrainedTurns::kAssistant && is_assistant(messages[i]));
    if (messages[i].trained.value_or(by_turn)) trained.push_back(i);
  }
  return trained;
}

// Of the marked spans those of `trained`, when there is one for each assistant's message.
std::optional<std::vector<jinja::Span>> marked_spans(const Conversation& conversation,
                                                     const std::vector<jinja::Span>& generated,
                                                     const std::vector<size_t>& trained) {
  std::vector<jinja::Span> spans;
  size_t turn = 0;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const bool wanted = std::ranges::find(trained, i) != trained.end();
    if (!is_assistant(conversation.messages[i])) {
      if (wanted) return std::nullopt;
      continue;
    }
    if (turn == generated.size()) return std::nullopt;
    if (wanted) spans.push_back(generated[turn]);
    ++turn;
  }
  if (turn != generated.size()) return std::nullopt;
  return spans;
}

// What the template prints of the assistant's turns when they are empty: of the last, and of one
// before it. None of a template that does not take them.
std::set<std::string, std::less<>> find_empty_turns(const ChatTemplate& chat_template) {
  std::set<std::string, std::less<>> found;
  Conversation example;
  for (int turns = 1; turns <= 2; ++turns) {
    example.messages.push_back({.role = "user", .content = "Hi"});
    example.messages.push_back({.role = "assistant", .content = ""});
    try {
      const auto rendered = chat_template.render(example);
      const auto trained = trained_messages(example, TrainedTurns::kAssistant);
      std::vector<jinja::Span> spans;
      if (chat_template.has_generation(example)) {
        spans = marked_spans(example, rendered.generated, trained).value_or(spans);
      } else {
        PrefixSpans prefixes(chat_template, example, rendered.text);
        for (const size_t index : trained) spans.push_back(prefixes.span_of(index));
      }
      for (const auto& [begin, end] : spans) {
        found.emplace(without_blanks(std::string_view(rendered.text).substr(begin, end - begin)));
      }
    } catch (const UserError&) {  // rows will tell what it objects to
    }
  }
  return found;
}

}  // namespace

// What of a conversation is trained on.
struct ChatEncoder::Trained {
  std::vector<size_t> messages;
  std::vector<jinja::Span> spans;  // of the text
  bool by_message = false;         // each span is the text of one of the messages, in their order
};

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, ChatTemplate chat_template, TrainedTurns turns)
    : tokenizer_(tokenizer),
      template_(std::move(chat_template)),
      turns_(turns),
      empty_turns_(find_empty_turns(template_)) {}

ChatEncoder::Trained ChatEncoder::find_trained(const Conversation& conversation,
                                               const jinja::Rendered& rendered) const {
  Trained result{.messages = trained_messages(conversation, turns_), .spans = {}};
  const auto& trained = result.messages;
  auto& spans = result.spans;
  const bool says_itself = std::ranges::any_of(
      conversation.messages, [](const Message& message) { return message.trained.has_value(); });
  if (turns_ == TrainedTurns::kAll && trained.size() == conversation.messages.size()) {
    spans = {{.begin = 0, .end = rendered.text.size()}};
    return result;
  }
  if (template_.has_generation(conversation)) {
    if (auto marked = marked_spans(conversation, rendered.generated, trained)) {
      spans = std::move(*marked);
      result.by_message = true;
      return result;
    }
    // Such as one block around a run of turns: what is marked is trained.
    if (!says_itself && turns_ == TrainedTurns::kAssistant) {
      spans = rendered.generated;
      return result;
    }
    if (!says_itself && turns_ == TrainedTurns::kLast && !rendered.generated.empty()) {
      spans = {rendered.generated.back()};
      return result;
    }
  }
  PrefixSpans prefixes(template_, conversation, rendered.text);
  if (turns_ != TrainedTurns::kAll) {
    for (const size_t index : trained) spans.push_back(prefixes.span_of(index));
    result.by_message = true;
    return result;
  }
  // All but what the others print.
  spans.push_back({.begin = 0, .end = rendered.text.size()});
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    if (std::ranges::find(trained, i) != trained.end()) continue;
    const auto [begin, end] = prefixes.span_of(i);
    spans.back().end = begin;
    spans.push_back({.begin = end, .end = rendered.text.size()});
  }
  return result;
}

uint32_t ChatEncoder::count_empty(const Conversation& conversation, std::string_view text,
                                  const Trained& trained) const {
  uint32_t count = 0;
  for (size_t i = 0; i < trained.messages.size(); ++i) {
    const auto& message = conversation.messages[trained.messages[i]];
    if (!is_assistant(message)) continue;
    auto printed = text;
    if (trained.by_message) {
      const auto [begin, end] = trained.spans[i];
      printed = text.substr(begin, end - begin);
    }
    count += is_empty_turn(message, printed, empty_turns_) ? 1 : 0;
  }
  return count;
}

MaskedTokens ChatEncoder::masked(const Encoded& encoded,
                                 const std::vector<jinja::Span>& spans) const {
  MaskedTokens tokens;
  tokens.ids.assign(encoded.ids.begin(), encoded.ids.end());
  tokens.trained.assign(encoded.ids.size(), 0);
  for (const auto& span : spans) {
    // From the first token that holds a part of the span to the last, also those of no width.
    const auto holds = [&](const TokenSpan& token) {
      return token.begin < span.end && token.end > span.begin;
    };
    const auto first = std::ranges::find_if(encoded.spans, holds);
    const auto last = std::find_if(encoded.spans.rbegin(), encoded.spans.rend(), holds).base();
    if (first >= last) continue;
    std::fill(tokens.trained.begin() + (first - encoded.spans.begin()),
              tokens.trained.begin() + (last - encoded.spans.begin()), uint8_t{1});
  }
  const auto bos = tokenizer_.bos_id();
  if (bos && encoded.ids.size() > 1 && encoded.ids[0] == *bos && encoded.ids[1] == *bos) {
    tokens.ids.erase(tokens.ids.begin());
    tokens.trained.erase(tokens.trained.begin());
  }
  return tokens;
}

MaskedTokens ChatEncoder::encode(const Conversation& conversation) const {
  if (conversation.messages.empty()) throw UserError("a conversation without messages");
  const auto rendered = template_.render(conversation);
  const auto trained = find_trained(conversation, rendered);
  auto tokens = masked(tokenizer_.encode_with_offsets(rendered.text, {.add_special_tokens = false}),
                       trained.spans);
  tokens.empty_turns = count_empty(conversation, rendered.text, trained);
  return tokens;
}

MaskedTokens ChatEncoder::encode_completion(std::string_view prompt,
                                            std::string_view completion) const {
  std::string text(prompt);
  text += completion;
  const size_t begin = turns_ == TrainedTurns::kAll ? 0 : prompt.size();
  auto tokens =
      masked(tokenizer_.encode_with_offsets(text), {{.begin = begin, .end = text.size()}});
  const auto end = tokenizer_.eos_id();
  if (end && (tokens.ids.empty() || tokens.ids.back() != static_cast<int32_t>(*end))) {
    tokens.ids.push_back(static_cast<int32_t>(*end));
    tokens.trained.push_back(0);
  }
  if (end) tokens.trained.back() = 1;
  tokens.empty_turns = without_blanks(completion).empty() ? 1 : 0;
  return tokens;
}

MaskedTokens ChatEncoder::encode_prompt(const Conversation& conversation) const {
  if (conversation.messages.empty()) throw UserError("a conversation without messages");
  const auto rendered = template_.render(
      conversation,
      {.add_generation_prompt = true, .extra_json = {}, .num_messages = std::nullopt});
  return masked(tokenizer_.encode_with_offsets(rendered.text, {.add_special_tokens = false}), {});
}

MaskedTokens ChatEncoder::encode_prompt(std::string_view text) const {
  auto tokens = masked(tokenizer_.encode_with_offsets(text), {});
  // Some tokenizers put an end behind every text; this one goes on.
  const auto plain = tokenizer_.encode_with_offsets(text, {.add_special_tokens = false}).ids.size();
  const auto end = tokenizer_.eos_id();
  if (end && tokens.ids.size() > plain && tokens.ids.back() == static_cast<int32_t>(*end)) {
    tokens.ids.pop_back();
    tokens.trained.pop_back();
  }
  return tokens;
}

}  // namespace skein::text
