// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/kept_looks.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/log.h"
#include "skein/data/rows/row_source.h"

namespace skein::train {
namespace {

// docs/data.md: never renumbered.
constexpr std::string_view kMagic = "SKEINREF";
constexpr uint32_t kVersion = 1;
constexpr size_t kDigestAt = 12, kHeader = kDigestAt + 32;

template <typename Value>
void append(std::string& bytes, Value value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Reads what append() has written.
class Taker {
 public:
  explicit Taker(std::string_view bytes) : bytes_(bytes) {}

  template <typename Value>
  Value take() {
    Value value{};
    std::ranges::copy(take_bytes(sizeof value), reinterpret_cast<char*>(&value));
    return value;
  }
  std::string_view take_bytes(size_t count) {
    if (count > bytes_.size()) throw IoError("it is cut short");
    const auto taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  bool is_empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

SplitLooks parse(std::string_view bytes) {
  Taker all(bytes);
  if (all.take_bytes(kMagic.size()) != kMagic) throw IoError("it holds something else");
  if (all.take<uint32_t>() != kVersion) throw IoError("it is of another version");
  const auto expected = all.take_bytes(kHeader - kDigestAt);
  if (digest(bytes.substr(kHeader)) != expected) throw IoError("its bytes have changed");
  const auto passes = all.take<uint32_t>();
  SplitLooks looks;
  for (uint32_t pass = 0; pass < passes; ++pass) {
    const auto count = all.take<uint64_t>();
    const auto values = all.take_bytes(static_cast<size_t>(count) * sizeof(double));
    auto& numbers = looks.emplace_back(static_cast<size_t>(count));
    std::ranges::copy(values, reinterpret_cast<char*>(numbers.data()));
  }
  if (!all.is_empty()) throw IoError("it is longer than it says");
  return looks;
}

}  // namespace

at::Tensor KeptLooks::of(data::Split split, size_t pass, const tensor::Answers& answers) const {
  const auto& numbers = looks_[index(split)].at(pass);
  const auto samples = static_cast<int64_t>(answers.samples.size());
  const int64_t each = samples == 0 ? 1 : answers.count() / samples;  // two of each pair
  auto found = at::empty({answers.count()}, at::kDouble);
  auto* out = found.data_ptr<double>();
  for (int64_t i = 0; i < samples; ++i) {
    for (int64_t j = 0; j < each; ++j) {
      const auto at = static_cast<size_t>(answers.samples[static_cast<size_t>(i)] * each + j);
      out[i * each + j] = numbers.at(at);
      SKEIN_CHECK(!std::isnan(numbers[at]), "the reference was asked about every sample");
    }
  }
  return found.to(answers.ends.device());
}

std::string looks_key(const data::ChosenSamples& samples, const std::string& reference) {
  const auto& rows = dynamic_cast<const data::RowsSource&>(*samples.source);
  const auto& limits = rows.limits();
  std::string chosen;
  for (int64_t i = 0; i < samples.set.count(); ++i) append(chosen, samples.set.sample(i));
  return digest(fmt::format(
      "{} rows {} cutoff_len {} excess {} equal {} samples {}{}", reference, rows.prepared().digest,
      limits.cutoff_len, config::to_text(limits.excess_length), config::to_text(limits.equal_pairs),
      digest(chosen), samples.mismatched ? " mismatched" : ""));
}

SplitLooks read_looks(const fs::path& path) try {
  if (!fs::exists(path)) return {};
  try {
    return parse(read_file(path, uint64_t{1} << 40));
  } catch (const IoError& error) {
    log_warning("{}: {}; the reference is asked again", path.string(), error.what());
    return {};
  }
} catch (const fs::filesystem_error&) {
  return {};
}

void write_looks(const fs::path& path, const SplitLooks& looks) {
  std::string values;
  append(values, static_cast<uint32_t>(looks.size()));
  for (const auto& numbers : looks) {
    append(values, static_cast<uint64_t>(numbers.size()));
    values.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
  }
  std::string bytes(kMagic);
  append(bytes, kVersion);
  write_file_atomically(path, bytes + digest(values) + values);
}

}  // namespace skein::train
