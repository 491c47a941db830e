// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "skein/cli/rank_run.h"
#include "skein/cli/verify/flags.h"
#include "skein/config/syntax/values.h"
#include "skein/core/dtype.h"
#include "skein/core/error.h"
#include "skein/train/verify/verify_strategy.h"

namespace skein::cli {
namespace {

using Json = nlohmann::ordered_json;
using train::StrategyReport;
using train::VariantNumbers;

Json variant_json(const train::Variant& variant) {
  return {{"name", variant.name()},
          {"distributed_strategy", config::to_text(variant.strategy)},
          {"offload_optimizer", config::to_text(variant.optimizer)},
          {"offload_param", config::to_text(variant.parameters)}};
}

Json numbers_json(const VariantNumbers& numbers) {
  auto json = variant_json(numbers.variant);
  json["losses"] = numbers.losses;
  json["grad_norms"] = numbers.norms;
  json["digest"] = numbers.digest;
  auto& tensors = json["parameters"] = Json::object();
  for (const auto& [name, sum, square_sum] : numbers.tensors) {
    tensors[name] = {{"sum", sum}, {"square_sum", square_sum}};
  }
  return json;
}

Json pair_json(const StrategyReport& report, const train::VariantPair& pair) {
  return {
      {"variants",
       {report.variants[pair.first].variant.name(), report.variants[pair.second].variant.name()}},
      {"loss", pair.loss},
      {"grad_norm", pair.norm},
      {"parameters", pair.parameters},
      {"tensor", pair.tensor.empty() ? Json(nullptr) : Json(pair.tensor)},
      {"allowed",
       {{"loss", pair.allowed.numbers},
        {"grad_norm", pair.allowed.numbers},
        {"parameters", pair.allowed.parameters},
        {"why", pair.allowed.why}}},
      {"within", pair.is_within()}};
}

void print_json(const StrategyReport& report) {
  Json json = {{"ranks", report.batches.ranks},
               {"device", report.device},
               {"dtype", dtype_word(report.dtype)},
               {"steps", report.steps},
               {"batch",
                {{"per_device", report.batches.per_device},
                 {"accumulation", report.batches.accumulation},
                 {"global", report.batches.global}}}};
  auto& variants = json["variants"] = Json::array();
  for (const auto& numbers : report.variants) variants.push_back(numbers_json(numbers));
  auto& left_out = json["left_out"] = Json::array();
  for (const auto& [variant, why] : report.left_out) {
    left_out.push_back(variant_json(variant));
    left_out.back()["why"] = why;
  }
  auto& pairs = json["pairs"] = Json::array();
  for (const auto& pair : report.pairs) pairs.push_back(pair_json(report, pair));
  json["within"] = report.is_within();
  fmt::print("{}\n", json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
}

// Of many steps the first three and the last two.
std::string row_of(const std::vector<double>& values) {
  constexpr size_t kFirst = 3, kLast = 2;
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i >= kFirst && i + kLast < values.size()) {
      if (i == kFirst) text += "  …";
    } else {
      text += fmt::format("  {:<12.9g}", values[i]);
    }
  }
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

size_t longest_name(const StrategyReport& report) {
  size_t longest = 0;
  for (const auto& numbers : report.variants) {
    longest = std::max(longest, numbers.variant.name().size());
  }
  return longest;
}

void print_rows(const StrategyReport& report, const char* title,
                std::vector<double> VariantNumbers::* values) {
  fmt::print("\n{} of steps 1 to {}\n", title, report.steps);
  const auto width = longest_name(report);
  for (const auto& numbers : report.variants) {
    fmt::print("  {:<{}}{}\n", numbers.variant.name(), width, row_of(numbers.*values));
  }
}

std::string limit_text(const train::Tolerance& allowed) {
  if (allowed.is_exact()) return "bit-equal";
  return fmt::format("{:g}, parameters {:g}", allowed.numbers, allowed.parameters);
}

std::string allowed_text(const train::Tolerance& allowed) {
  return fmt::format("{} ({})", limit_text(allowed), allowed.why);
}

void print_pairs(const StrategyReport& report) {
  const auto width = longest_name(report);
  fmt::print("\n{:<{}}  {:<9} {:<9} {:<10} allowed\n", "largest relative difference of",
             2 * width + 7, "loss", "norm", "parameters");
  std::vector<std::string> reasons;
  for (const auto& pair : report.pairs) {
    fmt::print("  {:<{}} and {:<{}}  {:<9.2g} {:<9.2g} {:<10.2g} {}{}\n",
               report.variants[pair.first].variant.name(), width,
               report.variants[pair.second].variant.name(), width, pair.loss, pair.norm,
               pair.parameters, limit_text(pair.allowed), pair.is_within() ? "" : "  TOO FAR");
    const auto reason = allowed_text(pair.allowed);
    if (std::ranges::count(reasons, reason) == 0) reasons.push_back(reason);
  }
  for (const auto& reason : reasons) fmt::print("allowed: {}\n", reason);
}

void print_text(const StrategyReport& report) {
  fmt::print("{} steps on {} {} ({}), {}\n{}\n", report.steps, report.batches.ranks,
             report.batches.ranks == 1 ? "rank" : "ranks", report.device, dtype_word(report.dtype),
             report.batches.line());
  print_rows(report, "loss", &VariantNumbers::losses);
  print_rows(report, "gradient norm", &VariantNumbers::norms);
  print_pairs(report);
  for (const auto& [variant, why] : report.left_out) {
    fmt::print("left out: {}: {}\n", variant.name(), why);
  }
  const auto beyond =
      std::ranges::count_if(report.pairs, [](const auto& p) { return !p.is_within(); });
  fmt::print("\n{} variants, {} pairs, {} beyond the tolerance\n", report.variants.size(),
             report.pairs.size(), beyond);
}

// A difference is a mistake of ours.
void require_within(const StrategyReport& report) {
  for (const auto& pair : report.pairs) {
    if (pair.is_within()) continue;
    throw InternalError(fmt::format(
        "{} and {} differ by {:.2g} in the loss, {:.2g} in the gradient norm and {:.2g} in the "
        "parameters{}; allowed is {}",
        report.variants[pair.first].variant.name(), report.variants[pair.second].variant.name(),
        pair.loss, pair.norm, pair.parameters,
        pair.tensor.empty() ? "" : fmt::format(" ({})", pair.tensor), allowed_text(pair.allowed)));
  }
}

}  // namespace

int run_verify_rank(std::span<const std::string> arguments) {
  const auto flags = parse_verify_flags(arguments);
  const train::VerifyOptions options{
      .steps = flags.steps, .strategies = flags.strategies, .tolerance = flags.tolerance};
  return run_rank({.body =
                       [&](const config::Resolved& resolved, train::World& world) {
                         const auto report = train::verify_strategies(resolved, options, world);
                         if (world.is_first()) {
                           flags.json ? print_json(report) : print_text(report);
                           std::fflush(stdout);  // it stands before what is said of it
                         }
                         require_within(report);
                         return 0;
                       },
                   .prepare = prepare_training_data});
}

}  // namespace skein::cli
