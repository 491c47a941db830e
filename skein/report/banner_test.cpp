// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/banner.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "skein/report/terminal.h"

namespace skein::report {
namespace {

Banner two_gpus() {
  return {.strategy = "DDP",
          .on_gpus = true,
          .per_device_batch = 16,
          .accumulation = 8,
          .global_batch = 256,
          .tokens_per_step = 262144,
          .num_samples = 12345,
          .num_epochs = 1.5,
          .total_steps = 72,
          .num_parameters = 124439808,
          .num_trainable = 124439808,
          .dtype = "bf16",
          .peak = "",
          .ranks = {{0, 0, "node-a", "cuda:0 NVIDIA H200", 16}, {1, 0, "b", "cuda:0 A100", 16}}};
}

bool has_line(const std::string& text, const std::string& start) {
  return ("\n" + text).find("\n" + start) != std::string::npos;
}

TEST(Banner, English) {
  EXPECT_EQ(banner_text(two_gpus(), Language::kEnglish),
            "DDP training: 2 GPUs\n"
            "effective batch size: 256 = 16 per device x 8 accumulation x 2 ranks "
            "(262144 tokens per step)\n"
            "examples: 12,345  epochs: 1.5  steps: 72\n"
            "parameters: 124,439,808  trainable: 124,439,808  dtype: bf16\n"
            "  rank  local rank  host    device              batch\n"
            "     0           0  node-a  cuda:0 NVIDIA H200     16\n"
            "     1           0  b       cuda:0 A100            16");
}

TEST(Banner, ChineseLinesAndAlignment) {
  const auto text = banner_text(two_gpus(), Language::kChinese);
  EXPECT_TRUE(has_line(text, "DDP训练: 2 GPUs\n")) << text;
  EXPECT_TRUE(has_line(text, "有效批次大小: 256 = ")) << text;
  const auto last = text.substr(text.rfind('\n') + 1);
  const auto header_at = text.find("\n  进程") + 1;
  const auto header = text.substr(header_at, text.find('\n', header_at) - header_at);
  EXPECT_EQ(display_width(header), display_width(last)) << text;
}

TEST(Banner, CpuRanksAndOneRank) {
  auto banner = two_gpus();
  banner.on_gpus = false;
  EXPECT_TRUE(has_line(banner_text(banner, Language::kEnglish), "DDP training: 2 CPU ranks\n"));
  EXPECT_TRUE(has_line(banner_text(banner, Language::kChinese), "DDP训练: 2 CPU ranks\n"));
  banner.ranks.pop_back();
  EXPECT_TRUE(
      has_line(banner_text(banner, Language::kEnglish), "single-rank training: 1 CPU rank"));
  banner.strategy = "ZeRO-2";
  EXPECT_TRUE(has_line(banner_text(banner, Language::kEnglish), "ZeRO-2 training: 1 CPU rank\n"));
}

struct Locale {
  const char *skein_lang, *lc_all, *lang;
};

Language language_in(const Locale& locale) {
  setenv("SKEIN_LANG", locale.skein_lang, 1);
  setenv("LC_ALL", locale.lc_all, 1);
  setenv("LC_MESSAGES", "", 1);
  setenv("LANG", locale.lang, 1);
  return user_language();
}

TEST(Banner, LanguageOfTheUser) {
  EXPECT_EQ(language_in({"", "", "zh_CN.UTF-8"}), Language::kChinese);
  EXPECT_EQ(language_in({"", "en_US.UTF-8", "zh_CN.UTF-8"}), Language::kEnglish);
  EXPECT_EQ(language_in({"zh", "C", "C"}), Language::kChinese);
  EXPECT_EQ(language_in({"en", "zh_TW", "zh_TW"}), Language::kEnglish);
  EXPECT_EQ(language_in({"", "", ""}), Language::kEnglish);
}

}  // namespace
}  // namespace skein::report
