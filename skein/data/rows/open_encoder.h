// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How do the rows of a run become tokens, by its configuration?
//
//   conversations         as the chat template prints them: `template`, `chat_template`, else the
//                         model's own
//   prompt, completion    behind each other, without a template, and the end token
//   text                  the document, and the end token
//   prompts               as conversations, with the template's prompt for an answer; or the text

#include <memory>

#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/data/rows/encode_rows.h"
#include "skein/data/rows/label_audit.h"
#include "skein/text/chat_template.h"
#include "skein/text/tokenizer.h"
#include "skein/text/turn_end.h"

namespace skein::data {

// All that is done with the tokens of rows.
struct RowTokens {
  RowEncoder encoder;
  AuditOptions audit;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template{};  // of conversations; null: none
  text::TurnEnd turn_end{};                                   // as it prints them
};

// The folder (or tokenizer.json) that text is read with: tokenizer_name_or_path, else the model's.
fs::path tokenizer_path(const config::ModelConfig& model);

// Throws UserError when there is no tokenizer.json, when it or the template is broken, and when
// train_on_prompt asks for more than the answers that were judged. A model without a template is
// refused at the first conversation, by the encoder.
RowTokens open_row_tokens(const config::ModelConfig& model, const config::RowsConfig& rows,
                          RowKind kind = RowKind::kRows);

}  // namespace skein::data
