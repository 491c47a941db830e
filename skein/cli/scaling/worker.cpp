// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "skein/cli/rank_run.h"
#include "skein/cli/scaling/flags.h"
#include "skein/config/syntax/values.h"
#include "skein/core/amounts.h"
#include "skein/plan/rules.h"
#include "skein/tensor/dtype.h"
#include "skein/train/bench/scaling.h"
#include "skein/train/place.h"

namespace skein::cli {
namespace {

using Json = nlohmann::ordered_json;
using train::ScalingCase;
using train::ScalingReport;

std::string strategy_word(int stage) { return config::to_text(plan::strategy_of(stage)); }

double tokens_per_second(const ScalingCase& row, const ScalingFlags& flags) {
  const int64_t tokens = flags.batch * flags.tokens * flags.accumulation * row.world.size();
  return static_cast<double>(tokens) / row.seconds;
}

// Of one rank, or of the smallest world for each of its ranks.
double speed(const ScalingCase& row) {
  return row.efficiency * static_cast<double>(row.world.size());
}

Json case_json(const ScalingCase& row, const ScalingFlags& flags) {
  Json json = {{"ranks", row.world.size()},
               {"nodes", row.world.nodes},
               {"ranks_per_node", row.world.ranks_per_node},
               {"strategy", strategy_word(row.stage)},
               {"global_batch", flags.batch * flags.accumulation * row.world.size()},
               {"tokens_per_second", tokens_per_second(row, flags)},
               {"milliseconds", row.seconds * 1e3},
               {"speed", speed(row)},
               {"efficiency", row.efficiency},
               {"peak_flat_bytes", row.flat_bytes},
               {"peak_device_bytes", row.device_bytes},
               {"predicted", nullptr}};
  if (row.predicted) {
    json["predicted"] = {{"milliseconds", row.predicted->seconds() * 1e3},
                         {"compute_milliseconds", row.predicted->work.seconds() * 1e3},
                         {"communication_milliseconds", row.predicted->communication * 1e3},
                         {"efficiency", row.predicted->efficiency()}};
  }
  return json;
}

Json outlook_json(const ScalingReport::Outlook& outlook) {
  Json rows = Json::array();
  for (const auto& row : outlook.rows) {
    rows.push_back({{"nodes", row.world.nodes},
                    {"ranks_per_node", row.world.ranks_per_node},
                    {"link_gbit", row.world.nodes == 1 ? Json(nullptr) : Json(row.link_gbit)},
                    {"milliseconds", row.time.seconds() * 1e3},
                    {"efficiency", row.time.efficiency()}});
  }
  return {{"strategy", strategy_word(outlook.stage)}, {"worlds", rows}};
}

// What every row shares.
struct Setting {
  const ScalingFlags& flags;
  std::string device, dtype;
};

void print_json(const ScalingReport& report, const Setting& setting) {
  const auto& flags = setting.flags;
  Json json = {{"model", flags.model},
               {"parameters", report.num_parameters},
               {"device", setting.device},
               {"dtype", setting.dtype},
               {"batch", flags.batch},
               {"tokens", flags.tokens},
               {"accumulation", flags.accumulation},
               {"steps", flags.steps},
               {"rounds", flags.rounds}};
  auto& links = json["links"] = Json::array();
  for (const auto& link : report.links) {
    links.push_back({{"nodes", {link.first, link.second}},
                     {"gbit_per_second", link.bytes_per_second * 8e-9},
                     {"latency_microseconds", link.latency * 1e6}});
  }
  auto& rows = json["rows"] = Json::array();
  for (const auto& row : report.cases) rows.push_back(case_json(row, flags));
  auto& predicted = json["predicted"] = Json::array();
  for (const auto& outlook : report.outlooks) predicted.push_back(outlook_json(outlook));
  fmt::print("{}\n", json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string shown_world(const plan::WorldShape& world) {
  if (world.nodes == 1) return std::to_string(world.ranks_per_node);
  return fmt::format("{} x {}", world.nodes, world.ranks_per_node);
}

void print_cases(const ScalingReport& report, const ScalingFlags& flags) {
  fmt::print("\n{:<7}{:<10}{:>7}{:>12}{:>11}{:>10}{:>12}{:>22}{:>13}{:>13}\n", "ranks", "strategy",
             "batch", "tokens/s", "step ms", "speed", "efficiency", "predicted", "flat memory",
             "GPU memory");
  for (const auto& row : report.cases) {
    const auto predicted = row.predicted
                               ? fmt::format("{:.1f} ms, {}", row.predicted->seconds() * 1e3,
                                             percent(row.predicted->efficiency()))
                               : "-";
    fmt::print("{:<7}{:<10}{:>7}{:>12}{:>11.1f}{:>10}{:>12}{:>22}{:>13}{:>13}\n",
               shown_world(row.world), strategy_word(row.stage),
               flags.batch * flags.accumulation * row.world.size(),
               shown_count(static_cast<int64_t>(tokens_per_second(row, flags))), row.seconds * 1e3,
               percent(speed(row)), percent(row.efficiency), predicted,
               shown_bytes(static_cast<uint64_t>(row.flat_bytes)),
               row.device_bytes == 0 ? "-" : shown_bytes(static_cast<uint64_t>(row.device_bytes)));
  }
}

// A row for each world, a column for each strategy.
void print_outlooks(const ScalingReport& report) {
  if (report.outlooks.empty()) return;
  fmt::print("\n{:<26}", "efficiency, predicted");
  for (const auto& outlook : report.outlooks) fmt::print("{:>10}", strategy_word(outlook.stage));
  fmt::print("\n");
  for (size_t i = 0; i < report.outlooks.front().rows.size(); ++i) {
    const auto& row = report.outlooks.front().rows[i];
    const auto link =
        row.world.nodes == 1 ? std::string() : fmt::format(" at {:g} Gbit/s", row.link_gbit);
    fmt::print("{:<26}", shown_world(row.world) + link);
    for (const auto& outlook : report.outlooks) {
      fmt::print("{:>10}", percent(outlook.rows[i].time.efficiency()));
    }
    fmt::print("\n");
  }
}

void print_text(const ScalingReport& report, const Setting& setting) {
  const auto& flags = setting.flags;
  fmt::print("{}: {} parameters, {}, {}; {} x {} tokens x {} per rank\n", flags.model,
             shown_count(report.num_parameters), setting.device, setting.dtype, flags.batch,
             flags.tokens, flags.accumulation);
  for (const auto& link : report.links) {
    fmt::print("link of nodes {} and {}: {:.2f} Gbit/s each way, {:.0f} us\n", link.first,
               link.second, link.bytes_per_second * 8e-9, link.latency * 1e6);
  }
  print_cases(report, flags);
  print_outlooks(report);
}

train::ScalingOptions options_of(const ScalingFlags& flags, at::Device device) {
  train::ScalingOptions options{.bench = {.model = flags.model,
                                          .rows = flags.batch,
                                          .tokens = flags.tokens,
                                          .warmup_steps = flags.warmup,
                                          .steps = flags.steps,
                                          .recompute = flags.recompute,
                                          .accumulation = flags.accumulation,
                                          .dtype = tensor::scalar_type_of(flags.dtype.value_or(
                                              device.is_cuda() ? DType::kBF16 : DType::kF32))},
                                .ranks = flags.ranks,
                                .stages = {},
                                .rounds = flags.rounds};
  for (const auto strategy : flags.strategies) options.stages.push_back(plan::zero_stage(strategy));
  return options;
}

}  // namespace

int run_scaling_rank(std::span<const std::string> arguments) {
  const auto flags = parse_scaling_flags(arguments);
  return run_rank({.body = [&](const config::Resolved&, train::World& world) {
    check_scaling(flags);
    const auto options = options_of(flags, world.device);
    const auto report = train::bench_scaling(options, world);
    if (!world.is_first()) return 0;
    const Setting setting{flags, train::device_name(world.device),
                          std::string(dtype_word(tensor::dtype_of(options.bench.dtype)))};
    flags.json ? print_json(report, setting) : print_text(report, setting);
    return 0;
  }});
}

}  // namespace skein::cli
