// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/open_encoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "skein/core/error.h"
#include "skein/text/chat_encoder.h"
#include "skein/text/text_codec.h"
#include "skein/text/tokenizer_files.h"
#include "skein/text/turn_end.h"

namespace skein::data {
namespace {

using text::TrainedTurns;

TrainedTurns turns_of(const config::RowsConfig& rows, RowKind kind) {
  if (kind == RowKind::kPrompts) return TrainedTurns::kAssistant;  // nothing is
  if (!rows.train_on_prompt) {
    return rows.mask_history ? TrainedTurns::kLast : TrainedTurns::kAssistant;
  }
  if (kind != RowKind::kRows) {
    throw UserError(
        "train_on_prompt: answers that were judged are compared without their prompt: leave it "
        "out");
  }
  if (!rows.mask_history) return TrainedTurns::kAll;
  throw UserError(
      "train_on_prompt trains on everything and mask_history on the last turn alone: leave one "
      "out");
}

text::ChatTemplateOptions template_options(const fs::path& path, const config::RowsConfig& rows) {
  return {.folder = text::tokenizer_place(path).folder,
          .file = rows.chat_template,
          .name = rows.chat_format};
}

// Of a text, and of the assistant's turns.
std::vector<uint32_t> ends_of_turn(const text::Tokenizer& tokenizer, const text::TurnEnd& turn) {
  std::vector<uint32_t> ends;
  if (const auto end = tokenizer.eos_id()) ends.push_back(*end);
  if (turn.token && turn.token != tokenizer.eos_id()) ends.push_back(*turn.token);
  return ends;
}

// Where the token ends turns too, as GPT-2's does, it is no sign of a beginning.
std::optional<uint32_t> begin_of_row(const text::Tokenizer& tokenizer,
                                     const std::vector<uint32_t>& ends) {
  const auto begin = tokenizer.bos_id();
  if (begin && std::ranges::find(ends, *begin) != ends.end()) return std::nullopt;
  return begin;
}

std::string missing_text(const text::Tokenizer& tokenizer, const text::ChatTemplate& chat_template,
                         const fs::path& path) {
  if (text::lacks_end_token(chat_template)) {
    const auto usual = tokenizer.eos_id() ? *tokenizer.token_of(*tokenizer.eos_id()) : "…";
    return fmt::format(
        "{} ends turns with eos_token, and {} names none: give its tokenizer_config.json an "
        "\"eos_token\": \"{}\", or take a template with an end of its own",
        chat_template.name(), path.string(), usual);
  }
  const auto missing = text::missing_turn_tokens(chat_template, tokenizer);
  if (missing.empty()) return "";
  return fmt::format(
      "{} ends turns with tokens that {} does not have: give new_special_tokens: [\"{}\"] and "
      "resize_vocab: true, or a template that fits the tokenizer",
      chat_template.name(), path.string(), fmt::join(missing, "\", \""));
}

// What needs a tokenizer, for messages.
const char* needing(RowKind kind) {
  if (kind == RowKind::kPrompts) return "a run over prompts";
  return kind == RowKind::kRows ? "stage: sft" : "a run over preferences";
}

// Thread-safe. The tokenizer is at one address for good: the chat encoder refers to it.
class EncodeRow {
 public:
  EncodeRow(std::shared_ptr<const text::Tokenizer> tokenizer, text::ChatTemplateOptions options,
            const std::optional<text::ChatTemplate>& chat_template, RowKind kind,
            TrainedTurns turns)
      : tokenizer_(std::move(tokenizer)),
        options_(std::move(options)),
        has_template_(chat_template.has_value()),
        kind_(kind),
        turns_(turns),
        encoder_(std::make_shared<const text::ChatEncoder>(
            *tokenizer_, chat_template ? *chat_template : text::ChatTemplate::parse("", "none"),
            turns)) {}

  text::MaskedTokens operator()(const Row& row) const {
    const bool is_prompt = kind_ == RowKind::kPrompts;
    switch (row.kind) {
      case Row::Kind::kText:
        return is_prompt ? encoder_->encode_prompt(row.text)
                         : encoder_->encode_completion("", row.text);
      case Row::Kind::kPromptCompletion:
        return encoder_->encode_completion(row.text, row.completion);
      case Row::Kind::kConversation:
        break;
    }
    if (!has_template_) text::ChatTemplate::open(options_);  // says what is missing
    try {
      if (is_prompt) return encoder_->encode_prompt(row.conversation);
      return encoder_->encode(with_own_masks(row));
    } catch (const UserError& error) {
      throw IoError(error.what());  // of this row: others may pass
    }
  }

 private:
  // Of a completion's row, what the prompt holds is not trained on, the assistant's turns neither.
  text::Conversation with_own_masks(const Row& row) const {
    auto conversation = row.conversation;
    if (turns_ == TrainedTurns::kAll) return conversation;
    for (size_t i = 0; i < row.prompt_messages; ++i) {
      auto& message = conversation.messages[i];
      if (message.role == "assistant" && !message.trained) message.trained = false;
    }
    return conversation;
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  text::ChatTemplateOptions options_;
  bool has_template_;
  RowKind kind_;
  TrainedTurns turns_;
  std::shared_ptr<const text::ChatEncoder> encoder_;
};

}  // namespace

fs::path tokenizer_path(const config::ModelConfig& model) {
  const auto& asked = model.tokenizer_name_or_path;
  return asked.empty() ? model.model_name_or_path : asked;
}

RowTokens open_row_tokens(const config::ModelConfig& model, const config::RowsConfig& rows,
                          RowKind kind) {
  if (text::open_codec(model)->is_bytes()) {
    throw UserError(fmt::format(
        "{} needs a tokenizer, and {} has no tokenizer.json: give tokenizer_name_or_path",
        needing(kind),
        model.tokenizer_name_or_path.empty() ? model.model_name_or_path
                                             : model.tokenizer_name_or_path));
  }
  const auto path = tokenizer_path(model);
  const auto turns = turns_of(rows, kind);
  const auto options = template_options(path, rows);
  const auto chat_template = text::ChatTemplate::find(options);
  auto tokenizer = text::shared_tokenizer(path, model.new_special_tokens);
  auto turn_end = chat_template ? text::find_turn_end(*chat_template, *tokenizer) : text::TurnEnd();
  auto ends = ends_of_turn(*tokenizer, turn_end);
  const auto begin = begin_of_row(*tokenizer, ends);
  RowTokens result{
      .encoder = {.kind = kind,
                  .encode = EncodeRow(tokenizer, options, chat_template, kind, turns),
                  .identity =
                      fmt::format("tokenizer {} template {} trained {}",
                                  text::digest_of_files(path, model.new_special_tokens),
                                  chat_template ? chat_template->digest() : "none",
                                  kind == RowKind::kPrompts ? "none" : text::turns_name(turns)),
                  .vocab_size = tokenizer->vocab_size()},
      .audit = {.ends_of_turn = std::move(ends),
                .begin = begin,
                .missing = chat_template ? missing_text(*tokenizer, *chat_template, path) : "",
                .missing_tokens = chat_template
                                      ? text::missing_turn_tokens(*chat_template, *tokenizer)
                                      : std::vector<std::string>{},
                .has_template = chat_template.has_value()},
      .tokenizer = tokenizer,
      .chat_template =
          chat_template ? std::make_shared<const text::ChatTemplate>(*chat_template) : nullptr,
      .turn_end = std::move(turn_end)};
  return result;
}

}  // namespace skein::data
