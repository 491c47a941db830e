// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/rank_environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "skein/control/store_client.h"
#include "skein/core/error.h"
#include "skein/launch/process/inherited_bytes.h"

namespace skein::launch {
namespace {

std::string read_text(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) {
    throw UserError(
        fmt::format("{} is not set: ranks are started by `skein train`, not by hand", name));
  }
  return text;
}

template <typename T>
T read_number(const char* name, T low, T high) {
  const auto text = read_text(name);
  T value{};
  const auto* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < low || value > high) {
    throw UserError(fmt::format("{}='{}' is not a number from {} to {}", name, text, low, high));
  }
  return value;
}

config::Device read_device() {
  const auto text = read_text("SKEIN_DEVICE");
  if (text != "cuda" && text != "cpu") {
    throw UserError(fmt::format("SKEIN_DEVICE='{}' is neither cuda nor cpu", text));
  }
  return text == "cuda" ? config::Device::kCuda : config::Device::kCpu;
}

// A descriptor that the launcher has handed over, if it has. The variable goes: its number may soon
// name another file.
std::optional<int> take_descriptor(const char* name) {
  if (std::getenv(name) == nullptr) return std::nullopt;
  const int descriptor = read_number(name, 3, std::numeric_limits<int>::max());
  unsetenv(name);
  return descriptor;
}

// What skein's own launcher hands over besides the numbers.
void take_inheritance(RankEnvironment& rank) {
  rank.generation =
      read_number<uint64_t>("SKEIN_GENERATION", 0, std::numeric_limits<uint64_t>::max());
  read_text("SKEIN_SECRET_FD");
  rank.secret = control::take_secret(*take_descriptor("SKEIN_SECRET_FD"));
  rank.board = take_descriptor("SKEIN_BOARD_FD").value_or(-1);
  if (const char* lease = std::getenv("SKEIN_LEASE")) rank.lease = lease;
  if (const char* words = std::getenv("SKEIN_GIVEN_UP")) rank.given_up = words;
  if (const char* may = std::getenv("SKEIN_MAY_GIVE_UP")) rank.may_give_up = *may == '1';
}

}  // namespace

RankEnvironment from_environment() {
  constexpr int kMost = std::numeric_limits<int>::max();
  RankEnvironment rank;
  rank.size = read_number("WORLD_SIZE", 1, kMost);
  rank.rank = read_number("RANK", 0, rank.size - 1);
  rank.local_size = read_number("LOCAL_WORLD_SIZE", 1, rank.size);
  rank.local_rank = read_number("LOCAL_RANK", 0, rank.local_size - 1);
  rank.device = read_device();
  rank.store_host = read_text("MASTER_ADDR");
  rank.interface = read_text("SKEIN_INTERFACE");
  rank.foreign.name = read_text("SKEIN_FOREIGN");
  rank.store_port = read_number("SKEIN_STORE_PORT", rank.foreign.name.empty() ? 1 : 0, 65535);
  if (rank.foreign.name.empty()) {
    rank.gpu = rank.local_rank;
    take_inheritance(rank);
  } else {
    rank.gpu = read_number("SKEIN_GPU", 0, kMost);
    rank.foreign.store_is_served = read_number("SKEIN_STORE_SERVED", 0, 1) == 1;
    rank.foreign.attempt = read_text("SKEIN_ATTEMPT");
  }
  rank.continues = read_number("SKEIN_CONTINUES", 0, 1) == 1;
  if (std::getenv("SKEIN_SHARED_MEMORY") != nullptr) {
    rank.shared_memory = read_number("SKEIN_SHARED_MEMORY", 0, 1) == 1;
  }
  if (const auto descriptor = take_descriptor("SKEIN_CONFIGURATION_FD")) {
    rank.configuration = take_bytes(*descriptor);
  }
  return rank;
}

std::vector<std::pair<std::string, std::string>> to_environment(const RankEnvironment& rank,
                                                                const Inherited& inherited) {
  std::vector<std::pair<std::string, std::string>> variables = {
      {"RANK", std::to_string(rank.rank)},
      {"WORLD_SIZE", std::to_string(rank.size)},
      {"LOCAL_RANK", std::to_string(rank.local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(rank.local_size)},
      {"MASTER_ADDR", rank.store_host},
      {"SKEIN_DEVICE", rank.device == config::Device::kCuda ? "cuda" : "cpu"},
      {"SKEIN_STORE_PORT", std::to_string(rank.store_port)},
      {"SKEIN_INTERFACE", rank.interface},
      {"SKEIN_FOREIGN", rank.foreign.name},
      {"SKEIN_CONTINUES", rank.continues ? "1" : "0"}};
  if (inherited.configuration >= 0)
    variables.emplace_back("SKEIN_CONFIGURATION_FD", std::to_string(inherited.configuration));
  if (!rank.foreign.name.empty()) {
    variables.emplace_back("SKEIN_GPU", std::to_string(rank.gpu));
    variables.emplace_back("SKEIN_STORE_SERVED", rank.foreign.store_is_served ? "1" : "0");
    variables.emplace_back("SKEIN_ATTEMPT", rank.foreign.attempt);
    return variables;
  }
  variables.emplace_back("SKEIN_GENERATION", std::to_string(rank.generation));
  variables.emplace_back("SKEIN_SECRET_FD", std::to_string(inherited.secret));
  variables.emplace_back("SKEIN_GIVEN_UP", rank.given_up);
  variables.emplace_back("SKEIN_MAY_GIVE_UP", rank.may_give_up ? "1" : "0");
  if (!rank.lease.empty()) variables.emplace_back("SKEIN_LEASE", rank.lease);
  if (rank.board >= 0) variables.emplace_back("SKEIN_BOARD_FD", std::to_string(rank.board));
  return variables;
}

std::unique_ptr<Store> connect_store(const RankEnvironment& rank,
                                     std::chrono::milliseconds join_timeout) {
  const control::StoreAddress address{.host = rank.store_host,
                                      .port = rank.store_port,
                                      .rank = static_cast<uint32_t>(rank.rank),
                                      .generation = rank.generation,
                                      .join_timeout = join_timeout};
  return std::make_unique<control::StoreClient>(rank.secret, address);
}

}  // namespace skein::launch
