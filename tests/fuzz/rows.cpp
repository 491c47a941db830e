// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A file of rows, and one row.
#include <sys/mman.h>

#include "skein/core/error.h"
#include "skein/data/rows/row.h"
#include "skein/data/rows/row_reader.h"
#include "skein/text/parts/unicode.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

void require_text(const std::string& text) {
  require(text::valid_utf8_prefix(text) == text.size(), "a text is UTF-8");
}

void parse(std::string_view bytes) try {
  const auto row = data::parse_row(bytes);
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
} catch (const IoError&) {
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
