// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace skein::report {
namespace {

double sum_of(const std::vector<ProfileRow>& rows) {
  double sum = 0;
  for (const auto& row : rows) sum += row.amount;
  return sum;
}

class Page {
 public:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

void add_times(Page& page, const Profile& profile) {
  const auto count = static_cast<double>(profile.num_updates);
  page.line("  {:<24}{:>12}{:>10}", profile.of_device ? "phase (device)" : "phase", "seconds",
            "share");
  const double all = sum_of(profile.phases);
  for (const auto& [name, seconds] : profile.phases) {
    page.line("  {:<24}{:>12.6f}{:>8.1f} %", name, seconds / count, percent(seconds, all));
  }
  page.line("  {:<24}{:>12.6f}{:>8.1f} %", "all", all / count, percent(all, all));
  page.line("  {:<24}{:>12.6f}   inside the phases", "waiting for collectives",
            profile.seconds_waiting / count);
}

void add_flops(Page& page, const Profile& profile) {
  const auto count = static_cast<double>(profile.num_updates);
  page.line("  {:<24}{:>12}{:>10}", "component (all ranks)", "GFLOP", "share");
  const double all = sum_of(profile.flops);
  for (const auto& [name, flops] : profile.flops) {
    page.line("  {:<24}{:>12.4g}{:>8.1f} %", name, flops * 1e-9 / count, percent(flops, all));
  }
  page.line("  {:<24}{:>12.4g}{:>8.1f} %", "all", all * 1e-9 / count, percent(all, all));
  const double rate = all / profile.seconds / static_cast<double>(profile.ranks);
  page.line("  {:.4g} TFLOP/s on each of {} rank{}{}", rate * 1e-12, profile.ranks,
            profile.ranks == 1 ? "" : "s",
            profile.peak_flops > 0
                ? fmt::format(", {:.1f} % of its peak (MFU)", percent(rate, profile.peak_flops))
                : "");
}

}  // namespace

std::string profile_table(const Profile& profile) {
  Page page;
  page.line("profile of update{} {}, on the first of {} rank{}, each: {:.6f} s, {:.0f} tokens/s",
            profile.num_updates == 1 ? "" : "s", profile.updates, profile.ranks,
            profile.ranks == 1 ? "" : "s",
            profile.seconds / static_cast<double>(profile.num_updates),
            static_cast<double>(profile.num_tokens) / profile.seconds);
  add_times(page, profile);
  add_flops(page, profile);
  page.line("  {:.1f} MiB at most in weights, gradients and states of this rank",
            static_cast<double>(profile.peak_memory_bytes) / (1 << 20));
  return page.take();
}

}  // namespace skein::report
