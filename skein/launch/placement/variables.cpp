// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/variables.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "skein/core/error.h"
#include "skein/core/file.h"

namespace skein::launch {
namespace {

constexpr auto kPrefixes = std::to_array<std::string_view>(
    {"NCCL_", "TORCH_", "PYTORCH_", "GLOO_", "CUDA_", "CUBLAS_", "HF_", "WANDB_", "OMP_", "MKL_",
     "KMP_", "SKEIN_", "DEEPSPEED_", "UCX", "MLFLOW", "PYTHON", "MV2"});

// What the launcher itself tells a rank, and what is true on this machine only.
constexpr auto kOwn = std::to_array<std::string_view>(
    {"SKEIN_STORE_PORT", "SKEIN_STORE_SERVED", "SKEIN_GENERATION", "SKEIN_ATTEMPT", "SKEIN_FOREIGN",
     "SKEIN_DEVICE", "SKEIN_GPU", "SKEIN_INTERFACE", "CUDA_VISIBLE_DEVICES"});

std::string upper(std::string_view text) {
  std::string result(text);
  for (auto& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

bool is_secret(std::string_view name) {
  const auto text = upper(name);
  constexpr auto kWords = std::to_array<std::string_view>(
      {"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"});
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](auto word) { return text.find(word) != std::string::npos; });
}

bool is_read_by_ranks(std::string_view name) {
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](auto prefix) { return name.starts_with(prefix); });
}

bool is_forwarded(std::string_view name) {
  if (!is_read_by_ranks(name) || is_secret(name)) return false;
  if (name.starts_with("MV2_COMM_WORLD_")) return false;  // numbers of a rank
  if (name.starts_with("SKEIN_") && name.ends_with("_FD")) return false;
  return std::find(kOwn.begin(), kOwn.end(), name) == kOwn.end();
}

bool is_name(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) != 0) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
}

void read_deepspeed_env(const fs::path& path, Environment& out) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return;
  const auto content = read_file(path, 1 << 20);
  std::string_view text = content;
  for (int line = 1; !text.empty(); ++line) {
    const auto end = std::min(text.find('\n'), text.size());
    auto entry = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (entry.ends_with('\r')) entry.remove_suffix(1);
    const auto begin = entry.find_first_not_of(" \t");
    if (begin == std::string_view::npos || entry[begin] == '#') continue;
    entry.remove_prefix(begin);
    const auto equals = entry.find('=');
    if (equals == std::string_view::npos || !is_name(entry.substr(0, equals))) {
      throw UserError(fmt::format("{}:{}: expected NAME=VALUE, found '{}'", path.string(), line,
                                  entry.substr(0, equals)));
    }
    const auto name = entry.substr(0, equals);
    if (!is_secret(name)) out[std::string(name)] = entry.substr(equals + 1);
  }
}

// Of an address with a password in it only the name is shown.
std::string show(const std::string& name, const std::string& value) {
  const bool has_login =
      value.find("://") != std::string::npos && value.find('@') != std::string::npos;
  if (has_login) return fmt::format("{}=(hidden)", name);
  std::string clean;
  for (const unsigned char c : value) clean += std::iscntrl(c) != 0 ? ' ' : static_cast<char>(c);
  return fmt::format("{}={}", name, clean);
}

struct Word {
  std::string_view word;
  std::optional<LogLevel> level;
};

template <size_t Count>
std::optional<LogLevel> read_level(const Environment& environment, const char* name,
                                   const std::array<Word, Count>& words) {
  const auto text = find_variable(environment, name);
  if (!text) return std::nullopt;
  std::string known;
  for (const auto& [word, level] : words) {
    if (upper(*text) == word) return level;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", word);
  }
  throw UserError(fmt::format("{}='{}' is none of {}", name, *text, known));
}

}  // namespace

Environment read_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos)
      result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::optional<std::string> find_variable(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::vector<std::pair<std::string, std::string>> forwarded(const Environment& environment) {
  Environment chosen;
  for (const auto& [name, value] : environment) {
    if (is_forwarded(name)) chosen[name] = value;
  }
  if (const auto home = find_variable(environment, "HOME")) {
    read_deepspeed_env(fs::path(*home) / ".deepspeed_env", chosen);
  }
  read_deepspeed_env(".deepspeed_env", chosen);
  return {chosen.begin(), chosen.end()};
}

std::string describe(const Environment& environment) {
  std::string line;
  for (const auto& [name, value] : environment) {
    const bool shown = is_forwarded(name) || name == "CUDA_VISIBLE_DEVICES";
    if (!shown || name.starts_with("PYTHON")) continue;
    line += fmt::format("{}{}", line.empty() ? "" : " ", show(name, value));
  }
  return line;
}

std::optional<LogLevel> asked_log_level(const Environment& environment) {
  constexpr auto kTorch = std::to_array<Word>(
      {{"OFF", std::nullopt}, {"INFO", LogLevel::kInfo}, {"DETAIL", LogLevel::kDebug}});
  constexpr auto kDeepSpeed = std::to_array<Word>({{"DEBUG", LogLevel::kDebug},
                                                   {"INFO", LogLevel::kInfo},
                                                   {"WARNING", LogLevel::kWarning},
                                                   {"WARN", LogLevel::kWarning},
                                                   {"ERROR", LogLevel::kError},
                                                   {"CRITICAL", LogLevel::kError}});
  const auto torch = read_level(environment, "TORCH_DISTRIBUTED_DEBUG", kTorch);
  const auto deepspeed = read_level(environment, "DEEPSPEED_LOG_LEVEL", kDeepSpeed);
  if (torch && deepspeed) return std::min(*torch, *deepspeed);
  return torch ? torch : deepspeed;
}

}  // namespace skein::launch
