// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For this folder's tests: an encoder that can be followed by eye, and rows of chosen lengths.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/rows/row_source.h"

namespace skein::data {

// A byte is an id. The completion is trained on, and 256 after it; a conversation's messages are
// "role:content" in turn, of which the assistant's contents are trained on.
inline text::MaskedTokens encode_bytes(const Row& row) {
  text::MaskedTokens out;
  const auto add = [&](std::string_view text, bool trained) {
    for (const char letter : text) {
      out.ids.push_back(static_cast<unsigned char>(letter));
      out.trained.push_back(trained ? 1 : 0);
    }
  };
  const auto end = [&] {
    out.ids.push_back(256);
    out.trained.push_back(1);
  };
  if (row.text == "refuse me") throw IoError("the template has no word for this");
  if (row.kind != Row::Kind::kConversation) {
    add(row.text, row.kind == Row::Kind::kText);
    add(row.completion, true);
    end();
    return out;
  }
  for (const auto& message : row.conversation.messages) {
    add(message.role + ":", false);
    add(message.content, message.role == "assistant");
    if (message.role != "assistant") continue;
    end();
    if (message.content.empty()) ++out.empty_turns;
  }
  return out;
}

inline RowEncoder byte_encoder(RowKind kind = RowKind::kRows) {
  return {.kind = kind, .encode = encode_bytes, .identity = "bytes", .vocab_size = 257};
}

// A fixture with a cache of its own.
class RowsTest : public TemporaryFolder {
 protected:
  RowsTest() { data_.data_cache_dir = (folder_ / "cache").string(); }

  PreparedRows prepare(const std::string& jsonl, RowKind kind = RowKind::kRows) {
    data_.train_file = write("train.jsonl", jsonl).string();
    return prepare_rows(data_, byte_encoder(kind), Split::kTrain);
  }

  // A prompt and a completion of so many tokens, the end included.
  static std::string row_of(int64_t prompt, int64_t completion) {
    return fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n",
                       std::string(static_cast<size_t>(prompt), 'p'),
                       std::string(static_cast<size_t>(completion - 1), 'c'));
  }

  // A pair behind a prompt of so many tokens.
  static std::string pair_of(int64_t prompt, const std::string& chosen, const std::string& rejected,
                             const std::string& more = "") {
    return fmt::format("{{\"prompt\": \"{}\", \"chosen\": \"{}\", \"rejected\": \"{}\"{}}}\n",
                       std::string(static_cast<size_t>(prompt), 'p'), chosen, rejected, more);
  }

  // An answer that was judged alone.
  static std::string judged(const std::string& prompt, const std::string& completion, bool label) {
    return fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\", \"label\": {}}}\n", prompt,
                       completion, label);
  }

  config::DataConfig data_;
};

}  // namespace skein::data
