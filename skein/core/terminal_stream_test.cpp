// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/terminal_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>

namespace skein {
namespace {

using std::chrono::milliseconds;

std::string read_all(const File& file) {
  fcntl(file.descriptor(), F_SETFL, O_NONBLOCK);
  std::string text;
  char bytes[65536];
  for (ssize_t count; (count = ::read(file.descriptor(), bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<size_t>(count));
  }
  return text;
}

struct Ends {
  File reader, writer;
};

Ends make_pipe() {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  return {File(ends[0]), File(ends[1])};
}

Ends make_sockets() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {File(ends[0]), File(ends[1])};
}

Ends make_terminal() {
  int master = -1, slave = -1;
  EXPECT_EQ(openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  termios mode{};
  tcgetattr(slave, &mode);
  cfmakeraw(&mode);
  tcsetattr(slave, TCSANOW, &mode);
  return {File(master), File(slave)};
}

// More than any of them holds; whole lines of 100 bytes.
void write_much(TerminalStream& stream, int lines) {
  for (int i = 0; i < lines; ++i) stream.write(fmt::format("{:099}\n", i));
}

TEST(TerminalStream, LinesComeAtOnceAndInOrder) {
  for (const auto& make : {make_pipe, make_sockets, make_terminal}) {
    const auto ends = make();
    TerminalStream stream(ends.writer.descriptor());
    stream.write("one\n");
    stream.write("redrawn");
    stream.write("two\n");
    EXPECT_EQ(read_all(ends.reader), "one\nredrawntwo\n");
    EXPECT_FALSE(stream.entry());
  }
}

TEST(TerminalStream, NobodyReadsAndItGoesOn) {
  for (const auto& make : {make_pipe, make_sockets, make_terminal}) {
    const auto ends = make();
    TerminalStream stream(ends.writer.descriptor());
    write_much(stream, 8000);  // of 800,000 bytes what does not fit waits
    stream.write("redrawn");
    ASSERT_TRUE(stream.entry());
    EXPECT_EQ(fcntl(ends.writer.descriptor(), F_GETFL) & O_NONBLOCK, 0) << "others share it";
    std::string text;
    while (stream.entry()) {
      text += read_all(ends.reader);
      stream.flush(milliseconds(10));
    }
    text += read_all(ends.reader);
    EXPECT_EQ(text.size(), 800'000U);
    EXPECT_TRUE(text.ends_with(fmt::format("{:099}\n", 7999)));
    EXPECT_EQ(text.find("redrawn"), std::string::npos);
  }
}

TEST(TerminalStream, WhatIsTooMuchIsCounted) {
  const auto ends = make_pipe();
  TerminalStream stream(ends.writer.descriptor());
  write_much(stream, 20'000);
  std::string text;
  while (stream.entry()) {
    text += read_all(ends.reader);
    stream.flush(milliseconds(10));
  }
  text += read_all(ends.reader);
  const auto shown = text.rfind("\n(") / 100 + 1;
  EXPECT_TRUE(
      text.ends_with(fmt::format("\n({} lines are not shown: nobody read them)\n", 20'000 - shown)))
      << text.substr(text.size() - 200);
}

TEST(TerminalStream, AStoppedTerminalHoldsNobody) {  // Ctrl-S
  const auto ends = make_terminal();
  TerminalStream stream(ends.writer.descriptor());
  ASSERT_EQ(tcflow(ends.writer.descriptor(), TCOOFF), 0);
  stream.write("while stopped\n");
  stream.flush(milliseconds(1));
  EXPECT_EQ(read_all(ends.reader), "");
  ASSERT_EQ(tcflow(ends.writer.descriptor(), TCOON), 0);
  stream.flush(milliseconds(1000));
  EXPECT_EQ(read_all(ends.reader), "while stopped\n");
}

TEST(TerminalStream, AReaderThatIsGoneIsNoTrouble) {
  auto ends = make_sockets();
  TerminalStream stream(ends.writer.descriptor());
  ends.reader = File();
  stream.write("to nobody\n");
  EXPECT_FALSE(stream.entry());
}

TEST(TerminalStream, FollowsItsDescriptorElsewhere) {
  const auto first = make_pipe(), second = make_pipe();
  const File shared(dup(first.writer.descriptor()));
  TerminalStream stream(shared.descriptor());
  stream.write("here\n");
  dup2(second.writer.descriptor(), shared.descriptor());
  stream.write("there\n");
  EXPECT_EQ(read_all(first.reader), "here\n");
  EXPECT_EQ(read_all(second.reader), "there\n");
}

}  // namespace
}  // namespace skein
