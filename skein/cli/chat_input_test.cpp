// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/chat_input.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/testing.h"

namespace skein::cli {
namespace {

using Kind = ChatLine::Kind;

class Input : public TemporaryFolder {
 protected:
  // Of a file with this content.
  ChatInput input_of(std::string_view content) {
    file_ = File::open_to_read(write("lines", content));
    return ChatInput(file_.descriptor());
  }

  File file_;
};

TEST_F(Input, LinesWithTheirNumbers) {
  auto input = input_of("one\n\n第二\r\nlast");
  for (const auto& [text, number] : {std::pair("one", 1), {"", 2}, {"第二", 3}, {"last", 4}}) {
    const auto line = input.next();
    EXPECT_EQ(line.kind, Kind::kText);
    EXPECT_EQ(line.text, text);
    EXPECT_EQ(line.number, number);
  }
  EXPECT_EQ(input.next().kind, Kind::kEnd);
  EXPECT_EQ(input.next().kind, Kind::kEnd);
}

TEST_F(Input, NothingEndsAtOnce) { EXPECT_EQ(input_of("").next().kind, Kind::kEnd); }

TEST_F(Input, WhatIsNotUtf8IsNamed) {
  auto input = input_of("fine\n\xc4\xe3\n");
  input.next();
  EXPECT_PRED2(contains, refusal<IoError>([&] { input.next(); }), "stdin:2: invalid UTF-8");
}

TEST_F(Input, EndlessLinesAreRefused) {
  auto input = input_of(std::string(ChatInput::kMaxLineBytes + (1 << 17), 'x'));
  EXPECT_EQ(refusal<UserError>([&] { input.next(); }), "stdin:1: the line is longer than 16 MiB");
}

TEST_F(Input, AnInterruptBeforeTheWaitIsNotMissed) {
  const int interrupts = ::eventfd(1, EFD_CLOEXEC);
  file_ = File::open_to_read(write("lines", "said\n"));
  ChatInput input(file_.descriptor(), interrupts);
  EXPECT_EQ(input.next().kind, Kind::kInterrupted);
  eventfd_t count = 0;
  ::eventfd_read(interrupts, &count);
  EXPECT_EQ(input.next().text, "said");
  ::close(interrupts);
}

}  // namespace
}  // namespace skein::cli
