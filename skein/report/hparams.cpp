// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/hparams.h"

#include <optional>
#include <type_traits>

#include "skein/config/values.h"

namespace skein::report {
namespace {

HparamValue value_of(bool value) { return value; }
HparamValue value_of(int64_t value) { return static_cast<double>(value); }
HparamValue value_of(double value) { return value; }
HparamValue value_of(const std::string& value) { return value; }
HparamValue value_of(const std::optional<int64_t>& value) {
  return value ? value_of(*value) : value_of(std::string("none"));
}
HparamValue value_of(const std::vector<std::string>& value) { return config::to_text(value); }
template <config::IsChoice Choice>
HparamValue value_of(const Choice& value) {
  return config::to_text(value);
}

}  // namespace

Hparams hparams_of(config::RunConfig config) {
  Hparams hparams;
  config.fields([&](const std::string& name, auto& member, const config::About& about) {
    if (about.saved) hparams.emplace_back(name, value_of(member));
  });
  return hparams;
}

}  // namespace skein::report
