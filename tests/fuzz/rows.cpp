// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A file of rows, and one row of each kind.
#include <sys/mman.h>

#include "skein/core/error.h"
#include "skein/data/rows/preference_row.h"
#include "skein/data/rows/row.h"
#include "skein/data/rows/row_reader.h"
#include "skein/text/parts/unicode.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

void require_text(const std::string& text) {
  require(text::valid_utf8_prefix(text) == text.size(), "a text is UTF-8");
}

void check(const data::Row& row) {
  require_text(row.text);
  require_text(row.completion);
  const auto& messages = row.conversation.messages;
  require((row.kind == data::Row::Kind::kConversation) == !messages.empty(), "no empty one");
  require(row.prompt_messages < messages.size() || messages.empty(), "a completion has messages");
  for (const auto& message : messages) {
    require(!message.role.empty(), "a message has a role");
    require_text(message.content);
    require_text(message.extra_json);
  }
}

// What was judged follows something.
void check_judged(const data::Row& row) {
  check(row);
  require(row.kind != data::Row::Kind::kText, "an answer has a prompt");
  require((row.prompt_messages > 0) == !row.conversation.messages.empty(),
          "an answer has a prompt");
}

void parse_row(std::string_view bytes) try {
  check(data::parse_row(bytes));
} catch (const IoError&) {
}

void parse_preference(std::string_view bytes) try {
  const auto pair = data::parse_preference(bytes);
  check_judged(pair.chosen);
  check_judged(pair.rejected);
  require(pair.chosen.text == pair.rejected.text, "both answer the same");
  require(pair.chosen.prompt_messages == pair.rejected.prompt_messages, "both answer the same");
} catch (const IoError&) {
}

void parse_feedback(std::string_view bytes) try {
  check_judged(data::parse_feedback(bytes).row);
} catch (const IoError&) {
}

void parse(std::string_view bytes) {
  parse_row(bytes);
  parse_preference(bytes);
  parse_feedback(bytes);
}

void read(std::string_view bytes, const char* name) try {
  File file(::memfd_create(name, MFD_CLOEXEC));
  file.write_at(0, std::as_bytes(std::span(bytes)));
  data::RowReader reader(std::move(file), name);
  uint64_t before = 0, total = 0;
  for (data::RawRow row; reader.next(row);) {
    require(row.number > before, "rows come in order");
    before = row.number;
    total += row.json.size();
    parse(row.json);
  }
  require(total <= bytes.size(), "rows are parts of their file");
} catch (const IoError&) {
}

}  // namespace

void rows(std::string_view bytes) {
  parse(bytes);
  read(bytes, "rows.json");
  read(bytes, "rows.jsonl");
}

}  // namespace skein::fuzz
