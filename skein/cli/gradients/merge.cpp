// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "skein/cli/gradients/verbs.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/log.h"

namespace skein::cli {
namespace {

using gradient_features::SkippedSample;
using gradient_features::SkipReason;

constexpr size_t kMostNamed = 20;

void tell_skipped(const std::vector<SkippedSample>& skipped, SkipReason reason, const char* why) {
  std::vector<int64_t> samples;
  size_t count = 0;
  for (const auto& one : skipped) {
    if (one.reason != reason) continue;
    if (++count <= kMostNamed) samples.push_back(one.sample);
  }
  if (count == 0) return;
  log_warning("{} no row, because {}: {}{}",
              count == 1 ? "1 sample has" : fmt::format("{} samples have", count), why,
              fmt::join(samples, ", "), count > kMostNamed ? ", …" : "");
}

}  // namespace

int merge_gradients(Arguments arguments) {
  gradient_features::MergeOptions options;
  FlagSet flags("skein gradients merge");
  flags.add("parts", options.parts);
  add_less_flags(flags, "merge");
  const auto words = flags.read(arguments);
  if (words.size() != 1) {
    throw UserError(fmt::format(
        "skein gradients merge takes one folder, the output_path of a collection, and {} given: "
        "type skein gradients merge DIR{}",
        words.empty() ? "none is" : fmt::format("{} are", words.size()),
        words.empty() ? "" : ", once for each"));
  }
  options.output = words[0];
  tell_overwritten({options.output / gradient_features::kMergedFile});
  const auto summary = gradient_features::merge_collection(options);
  tell_skipped(summary.skipped, SkipReason::kNoTarget, "nothing of it is supervised");
  tell_skipped(summary.skipped, SkipReason::kNotFinite, "its gradient is not finite");
  log_info("{}: {} of {} columns, {} in {}",
           (options.output / gradient_features::kMergedFile).string(),
           counted(static_cast<uint64_t>(summary.num_rows), "row"), summary.facts.dimension(),
           shown_bytes(summary.bytes), counted(summary.files.size(), "file"));
  return 0;
}

}  // namespace skein::cli
