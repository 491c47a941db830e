// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The `scheduler` section of a DeepSpeed file: which of our keys each of its parameters sets, and
// what DeepSpeed takes where one is absent.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skein/config/syntax/choices.h"
#include "skein/config/syntax/node.h"

namespace skein::config {

// A parameter that the file leaves to DeepSpeed.
struct SchedulerDefault {
  std::string_view parameter, key, value;
};

class DeepSpeedScheduler {
 public:
  // `leaves` are those of the whole file. Throws UserError for a type that is not known, a
  // parameter that the type does not have, or one that it lacks.
  DeepSpeedScheduler(std::span<const Setting> leaves, DsCompat compat);

  // Our key for `scheduler.params.NAME`; empty: it sets none.
  std::string_view key_of(std::string_view path) const;
  // Absent parameters whose defaults are not ours.
  const std::vector<SchedulerDefault>& defaults() const { return defaults_; }
  // The parameter, given or not, that says the learning rate in place of the optimizer's; empty:
  // there is none.
  std::string_view rate_parameter() const { return rate_parameter_; }

 private:
  struct Type;
  static std::span<const Type> types();
  void check_parameters(std::span<const Setting> leaves) const;
  void find_defaults(std::span<const Setting> leaves, DsCompat compat);

  const Type* type_ = nullptr;  // null: no section
  std::vector<SchedulerDefault> defaults_;
  std::string_view rate_parameter_;
};

}  // namespace skein::config
