// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/batch_plan.h"

#include <fmt/format.h>

#include <initializer_list>
#include <optional>

#include "skein/core/error.h"

namespace skein::config {
namespace {

constexpr int64_t kDefaultPerDevice = 8;  // HF's

struct Given {
  std::optional<int64_t> value;
  std::string origin;

  void set(int64_t number, const std::string& from) {
    value = number;
    origin = from;
  }
};

struct Triangle {
  Given per_device, accumulation, global;
  int64_t ranks = 1;
};

Given given(const Resolved& resolved, const std::string& key, const std::optional<int64_t>& value) {
  return {value, value ? resolved.origin_of(key).text() : ""};
}

std::string shown(const char* name, const Given& side) {
  return fmt::format("{} {} ({})", name, *side.value, side.origin);
}

std::string ranks_text(int64_t ranks) {
  return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
}

int64_t product(std::initializer_list<int64_t> factors) {
  int64_t result = 1;
  for (const auto factor : factors) {
    if (__builtin_mul_overflow(result, factor, &result)) {
      throw UserError("the batch sizes multiply to more than any machine can count");
    }
  }
  return result;
}

// The remaining side, or an error that says what would divide.
int64_t divide(const Triangle& t, int64_t divisor, const char* what, const std::string& by) {
  const int64_t whole = *t.global.value, quotient = whole / divisor;
  if (whole % divisor == 0) return quotient;
  const auto below =
      quotient == 0 ? "" : fmt::format("global_batch_size={} or ", quotient * divisor);
  throw UserError(fmt::format(
      "{} is not a multiple of {} ({}), so that {} cannot be derived.\n"
      "ways to close it: {}global_batch_size={}, or another number of ranks",
      shown("the global batch", t.global), divisor, by, what, below, (quotient + 1) * divisor));
}

void derive_accumulation(Triangle& t) {
  const auto by = fmt::format("{} per device x {}", *t.per_device.value, ranks_text(t.ranks));
  t.accumulation.set(
      divide(t, product({*t.per_device.value, t.ranks}), "gradient_accumulation_steps", by),
      "global / (per device x ranks)");
}

void derive_per_device(Triangle& t) {
  const auto by = fmt::format("{} accumulation x {}", *t.accumulation.value, ranks_text(t.ranks));
  t.per_device.set(
      divide(t, product({*t.accumulation.value, t.ranks}), "per_device_train_batch_size", by),
      "global / (accumulation x ranks)");
}

void derive_global(Triangle& t) {
  t.global.set(product({*t.per_device.value, *t.accumulation.value, t.ranks}),
               "per device x accumulation x ranks");
}

[[noreturn]] void refuse_triangle(const Triangle& t) {
  const int64_t micro = *t.per_device.value, steps = *t.accumulation.value;
  const int64_t whole = *t.global.value, all = product({micro, steps, t.ranks});
  std::string ways =
      fmt::format("\n  global_batch_size={} (or \"auto\" in the DeepSpeed file)", all);
  if (whole % (micro * t.ranks) == 0) {
    ways += fmt::format("\n  gradient_accumulation_steps={}", whole / (micro * t.ranks));
  }
  if (whole % (steps * t.ranks) == 0) {
    ways += fmt::format("\n  per_device_train_batch_size={}", whole / (steps * t.ranks));
  }
  if (whole % (micro * steps) == 0) {
    ways += fmt::format("\n  {} instead of {}", ranks_text(whole / (micro * steps)), t.ranks);
  }
  throw UserError(
      fmt::format("the batch sizes do not multiply: {} x {} x {} = {}, but {}.\n"
                  "ways to close it:{}\n  batch_conflict=keep_micro (global becomes {}) or "
                  "batch_conflict=keep_global (accumulation is derived)",
                  shown("per device", t.per_device), shown("accumulation", t.accumulation),
                  ranks_text(t.ranks), all, shown("the global batch is", t.global), ways, all));
}

void settle(Triangle& t, BatchConflict conflict) {
  if (product({*t.per_device.value, *t.accumulation.value, t.ranks}) == *t.global.value) return;
  switch (conflict) {
    case BatchConflict::kError:
      refuse_triangle(t);
    case BatchConflict::kKeepMicro:
      return derive_global(t);
    case BatchConflict::kKeepGlobal:
      return derive_accumulation(t);
  }
}

void close(Triangle& t, BatchConflict conflict) {
  const bool micro = t.per_device.value.has_value(), steps = t.accumulation.value.has_value();
  if (!t.global.value) {
    if (!micro) t.per_device.set(kDefaultPerDevice, "default");
    if (!steps) t.accumulation.set(1, "default");
    return derive_global(t);
  }
  if (micro && steps) return settle(t, conflict);
  if (micro) return derive_accumulation(t);
  if (!steps) t.accumulation.set(1, "default");
  derive_per_device(t);
}

}  // namespace

std::string BatchPlan::line() const {
  return fmt::format(
      "effective batch size: {} = {} per device x {} accumulation x {} ({} tokens per {})", global,
      per_device, accumulation, ranks_text(ranks), tokens_per_step,
      is_part_of_step ? "update at most" : "step");
}

std::string BatchPlan::table() const {
  const auto row = [](const char* name, int64_t value, const std::string& origin) {
    return fmt::format("  {:<14}{:>8}  {}\n", name, value, origin);
  };
  return line() + "\n" + row("per device", per_device, per_device_origin) +
         row("accumulation", accumulation, accumulation_origin) + row("ranks", ranks, "launch") +
         row("global", global, global_origin);
}

BatchPlan plan_batches(const Resolved& resolved, int64_t world_size) {
  SKEIN_CHECK(world_size >= 1, "a run has at least one rank");
  const auto& batch = resolved.config.batch;
  SKEIN_CHECK(!batch.batch_size, "load() gives the bare batch size its reading");
  Triangle t{
      given(resolved, "per_device_train_batch_size", batch.per_device_train_batch_size),
      given(resolved, "gradient_accumulation_steps", batch.gradient_accumulation_steps),
      given(resolved, "global_batch_size", batch.global_batch_size),
      world_size,
  };
  close(t, batch.batch_conflict);
  return {
      .per_device = *t.per_device.value,
      .accumulation = *t.accumulation.value,
      .ranks = world_size,
      .global = *t.global.value,
      .tokens_per_step = product({*t.global.value, resolved.config.data.block_size}),
      .is_part_of_step = is_online(resolved.config.stage),
      .per_device_origin = t.per_device.origin,
      .accumulation_origin = t.accumulation.origin,
      .global_origin = t.global.origin,
  };
}

}  // namespace skein::config
