// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/banner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "skein/core/amounts.h"
#include "skein/report/host.h"
#include "skein/report/terminal.h"

namespace skein::report {
namespace {

constexpr size_t kColumns = 5;
using Row = std::array<std::string, kColumns>;
constexpr std::array<bool, kColumns> kIsNumber = {true, true, false, false, true};

struct Words {
  std::string_view training, single, effective_batch, batch_formula, amounts, parameters;
  std::array<std::string_view, kColumns> header;
};

constexpr Words kEnglishWords = {
    "{} training: {}",
    "single-rank training: {}",
    "effective batch size: {}",
    " = {} per device x {} accumulation x {} ranks ({} tokens per step)",
    "examples: {}  epochs: {:g}  steps: {}",
    "parameters: {}  trainable: {}  dtype: {}",
    {"rank", "local rank", "host", "device", "batch"}};
constexpr Words kChineseWords = {"{}训练: {}",
                                 "单进程训练: {}",
                                 "有效批次大小: {}",
                                 " = 每设备 {} x 累积 {} x {} 进程 (每步 {} tokens)",
                                 "样本数: {}  轮数: {:g}  步数: {}",
                                 "参数量: {}  可训练: {}  精度: {}",
                                 {"进程", "本地序号", "主机", "设备", "批次"}};

template <typename... Args>
std::string fill(std::string_view pattern, const Args&... args) {
  return fmt::format(fmt::runtime(pattern), args...);
}

std::string devices(const Banner& banner) {
  return counted(banner.ranks.size(), banner.on_gpus ? "GPU" : "CPU rank");
}

std::string trainable_text(const Banner& banner) {
  auto count = shown_count(banner.num_trainable);
  if (banner.num_trainable == banner.num_parameters) return count;
  return fmt::format("{} ({})", count, shown_share(banner.num_trainable, banner.num_parameters));
}

std::string training_line(const Banner& banner, const Words& words) {
  const bool alone = banner.ranks.size() == 1 && banner.strategy == "DDP";
  return alone ? fill(words.single, devices(banner))
               : fill(words.training, banner.strategy, devices(banner));
}

std::string pad(const std::string& text, int width, bool to_the_right) {
  const std::string space(static_cast<size_t>(std::max(0, width - display_width(text))), ' ');
  return to_the_right ? space + text : text + space;
}

std::string table(const std::vector<Row>& rows) {
  std::array<int, kColumns> widths{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < kColumns; ++i) line += " " + pad(row[i], widths[i], kIsNumber[i]) + " ";
    line.erase(line.find_last_not_of(' ') + 1);
    out += "\n" + line;
  }
  return out;
}

std::string rank_table(const Banner& banner, const Words& words) {
  std::vector<Row> rows(1);
  std::copy(words.header.begin(), words.header.end(), rows[0].begin());
  for (const auto& rank : banner.ranks) {
    rows.push_back({std::to_string(rank.rank), std::to_string(rank.local_rank), rank.host,
                    rank.device, std::to_string(rank.batch)});
  }
  return table(rows);
}

}  // namespace

Language user_language() {
  std::string value;
  for (const char* name : {"SKEIN_LANG", "LC_ALL", "LC_MESSAGES", "LANG"}) {
    value = environment(name);
    if (!value.empty()) break;
  }
  return value.starts_with("zh") ? Language::kChinese : Language::kEnglish;
}

std::string banner_text(const Banner& banner, Language language) {
  const auto& words = language == Language::kChinese ? kChineseWords : kEnglishWords;
  auto out = training_line(banner, words) + "\n";
  out += fill(words.effective_batch, banner.global_batch);
  out += fill(words.batch_formula, banner.per_device_batch, banner.accumulation,
              banner.ranks.size(), banner.tokens_per_step);
  out += "\n" + fill(words.amounts, shown_count(banner.num_samples), banner.num_epochs,
                     shown_count(banner.total_steps));
  out += "\n" + fill(words.parameters, shown_count(banner.num_parameters), trainable_text(banner),
                     banner.dtype);
  if (!banner.peak.empty()) out += "\n" + banner.peak;
  return out + rank_table(banner, words);
}

}  // namespace skein::report
