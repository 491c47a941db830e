// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/child_lines.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/rewards/protocol.h"

namespace skein::rewards {
namespace {

using Lines = std::vector<std::string>;

ChildLines shell(const std::string& script, std::function<bool()> stop = {}) {
  return {{"sh", "-c", script}, std::move(stop)};
}

Time in(std::chrono::milliseconds patience) { return Clock::now() + patience; }
const std::chrono::seconds kLong{60};

// What became of it, in words; the lines are put into `lines`.
std::string exchanged(ChildLines& child, std::string_view text, size_t count, Lines& lines) {
  const auto trouble = child.exchange(text, count, in(kLong), lines);
  return trouble ? trouble->what : "";
}

TEST(ChildLines, TalksInBothDirectionsAtOnce) {
  auto child = shell("cat");
  std::string text;
  Lines sent;
  // Many times what two pipes hold: whoever only wrote, or only read, would wait for ever.
  for (int i = 0; i < 20'000; ++i) {
    sent.push_back(std::string(100, 'x') + std::to_string(i));
    text += sent.back() + "\n";
  }
  Lines lines;
  EXPECT_EQ(exchanged(child, text, sent.size(), lines), "");
  EXPECT_EQ(lines, sent);
  EXPECT_EQ(child.unasked(), std::nullopt);
}

TEST(ChildLines, OneThatEndsSaysHow) {
  Lines lines;
  auto failed = shell("echo one; echo first >&2; echo the reason >&2; exit 3");
  EXPECT_EQ(exchanged(failed, "", 2, lines), "has ended (exit code 3); its last words: the reason");
  EXPECT_EQ(lines, Lines{"one"});
  auto killed = shell("kill -9 $$");
  EXPECT_EQ(exchanged(killed, "", 2, lines), "has ended (killed by SIGKILL)");
}

TEST(ChildLines, OneThatHasEndedIsNotWaitedForThoughItsChildHoldsThePipe) {
  Lines lines;
  auto child = shell("sleep 1000 & echo one; exit 3");
  EXPECT_EQ(exchanged(child, "", 2, lines), "has ended (exit code 3)");
  EXPECT_EQ(lines, Lines{"one"});
}

TEST(ChildLines, OneThatReadsNothingBreaksNoPipe) {
  Lines lines;
  auto child = shell("exec <&-; echo one; sleep 0.1; exit 1");
  EXPECT_EQ(exchanged(child, std::string(1 << 20, 'x'), 2, lines), "has ended (exit code 1)");
  sigset_t waiting;
  sigpending(&waiting);
  EXPECT_EQ(sigismember(&waiting, SIGPIPE), 0);
}

TEST(ChildLines, OneThatIsLateIsLeftAndKilled) {
  Lines lines;
  auto child = shell("trap '' TERM; echo one; sleep 1000 & wait; sleep 1000");
  const auto trouble = child.exchange("", 2, in(std::chrono::milliseconds(300)), lines);
  ASSERT_TRUE(trouble);
  EXPECT_EQ(trouble->kind, ChildTrouble::Kind::kLate);
  EXPECT_EQ(lines, Lines{"one"});
}

TEST(ChildLines, NoneIsLeftBehind) {
  {
    auto child = shell("echo one; sleep 1000");
    Lines lines;
    EXPECT_EQ(exchanged(child, "", 1, lines), "");
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child, not even a dead one
  EXPECT_EQ(errno, ECHILD);
}

TEST(ChildLines, OneThatClosesItsOutputHasEnded) {
  auto child = shell("exec >&-; sleep 1000");
  Lines lines;
  EXPECT_EQ(exchanged(child, "", 1, lines), "has closed its output without ending");
}

TEST(ChildLines, AnEndlessLineIsRefused) {
  auto child = shell("yes | tr -d '\\n'");
  Lines lines;
  const auto trouble = child.exchange("", 1, in(kLong), lines);
  ASSERT_TRUE(trouble);
  EXPECT_EQ(trouble->kind, ChildTrouble::Kind::kTooLong);
}

TEST(ChildLines, EndlessLinesAreNotCollected) {
  auto child = shell("exec yes");
  Lines lines;
  EXPECT_EQ(exchanged(child, std::string(1 << 20, 'x'), 3, lines), "");
  EXPECT_EQ(lines, (Lines{"y", "y", "y"}));
  EXPECT_EQ(child.unasked(), "y");
}

TEST(ChildLines, WordsOnStderrWithoutEndStopNothing) {
  auto child = shell("yes >&2 & echo one; read line; echo two; kill $!");
  Lines lines;
  EXPECT_EQ(exchanged(child, "", 1, lines), "");
  EXPECT_EQ(exchanged(child, "go\n", 2, lines), "");
  EXPECT_EQ(lines, (Lines{"one", "two"}));
}

TEST(ChildLines, AStopEndsTheWait) {
  int looks = 0;
  auto child = shell("sleep 1000", [&] { return ++looks == 3; });
  Lines lines;
  EXPECT_THROW(child.exchange("", 1, in(kLong), lines), Stopped);
}

TEST(ChildLines, ProgramsThatAreNone) {
  const auto why = [](const std::string& name) {
    return refusal<UserError>([&] { ChildLines({name}, {}); });
  };
  EXPECT_PRED2(contains, why("no-such-program-at-all"),
               "no program 'no-such-program-at-all' in PATH");
  EXPECT_PRED2(contains, why("/no/such/program"), "'/no/such/program' is no program");
  EXPECT_PRED2(contains, why("/tmp"), "is no program");
  EXPECT_PRED2(contains, why("/etc/passwd"), "is no program");
}

TEST(ChildLines, DescriptorsOfThisProcessStayHere) {
  auto child = shell("ls /proc/$$/fd; echo end");
  Lines lines;
  EXPECT_EQ(exchanged(child, "", 4, lines), "");
  EXPECT_EQ(lines, (Lines{"0", "1", "2", "end"}));
}

}  // namespace
}  // namespace skein::rewards
