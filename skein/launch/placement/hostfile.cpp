// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/hostfile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <set>

#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/launch/placement/number.h"

namespace skein::launch {
namespace {

constexpr int kMostSlots = 4096;
constexpr size_t kMostRanks = size_t{1} << 20;  // of all hosts
constexpr uint64_t kMostBytes = 1 << 20;

std::vector<std::string_view> split_words(std::string_view line) {
  std::vector<std::string_view> words;
  for (;;) {
    const auto begin = line.find_first_not_of(" \t\r\v\f");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const auto end = std::min(line.find_first_of(" \t\r\v\f"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

bool is_plain(std::string_view text) {
  return !text.empty() && text[0] != '-' && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
  });
}

Host parse_line(const std::vector<std::string_view>& words, const std::string& where) {
  check_host_name(words[0], where);
  constexpr std::string_view kSlots = "slots=";
  const bool whole = words.size() == 2 && words[1].starts_with(kSlots);
  const auto slots =
      whole ? read_number(words[1].substr(kSlots.size()), 1, kMostSlots) : std::nullopt;
  if (!slots) {
    throw UserError(fmt::format("{}: expected `host slots=N` (N from 1 to {}), found '{}'", where,
                                kMostSlots, fmt::join(words, " ")));
  }
  Host host{.name = std::string(words[0]), .slots = {}};
  host.slots.resize(static_cast<size_t>(*slots));
  std::iota(host.slots.begin(), host.slots.end(), 0);
  return host;
}

std::string known_names(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const auto& host : hosts) names.push_back(host.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// `a:0,2@b` cut at each `@`. A host's own `user@` has no place in it: the name alone is enough.
struct Choice {
  std::string host;
  std::vector<int> slots;
};

// The known host with that name, with or without its `user@`.
const Host& find_host(const std::vector<Host>& hosts, std::string_view name, const char* flag) {
  const auto found = std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) {
    const auto at = host.name.find('@');
    return host.name == name ||
           (at != std::string::npos && std::string_view(host.name).substr(at + 1) == name);
  });
  if (found != hosts.end()) return *found;
  throw UserError(fmt::format("{}: unknown host '{}' (known: {})", flag, name, known_names(hosts)));
}

Choice parse_choice(std::string_view part, const std::vector<Host>& hosts, const char* flag) {
  const auto colon = part.find(':');
  check_host_name(part.substr(0, colon), flag);
  const auto& host = find_host(hosts, part.substr(0, colon), flag);
  if (colon == std::string_view::npos) return {host.name, host.slots};
  Choice choice{host.name, {}};
  for (const auto text : split(part.substr(colon + 1), ',')) {
    const auto slot = read_number(text, 0, kMostSlots);
    const bool known =
        slot && std::find(host.slots.begin(), host.slots.end(), *slot) != host.slots.end();
    if (!known) {
      throw UserError(fmt::format("{}: host '{}' has no slot '{}' (it has {})", flag, host.name,
                                  text, fmt::join(host.slots, ",")));
    }
    if (std::find(choice.slots.begin(), choice.slots.end(), *slot) != choice.slots.end()) {
      throw UserError(fmt::format("{}: slot {} of host '{}' twice", flag, *slot, host.name));
    }
    choice.slots.push_back(*slot);
  }
  return choice;
}

std::vector<Choice> parse_choices(std::string_view text, const std::vector<Host>& hosts,
                                  const char* flag) {
  std::vector<Choice> choices;
  for (const auto part : split(text, '@')) {
    choices.push_back(parse_choice(part, hosts, flag));
    const auto twice = std::count_if(choices.begin(), choices.end(), [&](const Choice& other) {
      return other.host == choices.back().host;
    });
    if (twice > 1) {
      throw UserError(fmt::format("{}: host '{}' twice: write its slots together, `{}:0,1`", flag,
                                  choices.back().host, choices.back().host));
    }
  }
  return choices;
}

std::vector<Host> keep(const std::vector<Host>& hosts, const std::vector<Choice>& choices) {
  std::vector<Host> kept;
  for (const auto& host : hosts) {
    for (const auto& choice : choices) {
      if (choice.host == host.name) kept.push_back({host.name, choice.slots});
    }
  }
  return kept;
}

std::vector<Host> remove(std::vector<Host> hosts, const std::vector<Choice>& choices) {
  for (const auto& choice : choices) {
    for (auto& host : hosts) {
      if (host.name != choice.host) continue;
      for (const int slot : choice.slots) std::erase(host.slots, slot);
    }
  }
  std::erase_if(hosts, [](const Host& host) { return host.slots.empty(); });
  return hosts;
}

}  // namespace

void check_host_name(std::string_view name, const std::string& where) {
  const auto at = name.find('@');
  const auto user = at == std::string_view::npos ? "user" : name.substr(0, at);
  const auto host = at == std::string_view::npos ? name : name.substr(at + 1);
  if (is_plain(user) && is_plain(host)) return;
  throw UserError(fmt::format(
      "{}: '{}' is no host name (letters, digits, `.`, `_`, `-`; not `-` first; `user@` before it)",
      where, name));
}

std::vector<Host> parse_hostfile(std::string_view text, const std::string& origin) {
  std::vector<Host> hosts;
  std::set<std::string> seen;
  int number = 0;
  size_t ranks = 0;
  for (const auto line : split(text, '\n')) {
    const auto where = fmt::format("{}:{}", origin, ++number);
    const auto words = split_words(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    hosts.push_back(parse_line(words, where));
    const auto& name = hosts.back().name;
    ranks += hosts.back().slots.size();
    if (ranks > kMostRanks) {
      throw UserError(fmt::format("{}: more than {} slots in all", where, kMostRanks));
    }
    if (!seen.insert(name.substr(name.find('@') + 1)).second) {
      throw UserError(fmt::format("{}: host '{}' twice: write its slots in one line", where, name));
    }
  }
  if (hosts.empty()) throw UserError(fmt::format("{} names no host (`host slots=N`)", origin));
  return hosts;
}

std::vector<Host> read_hostfile(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    throw UserError(fmt::format("--hostfile {}: {}", path.string(),
                                std::filesystem::exists(path, ignored) ? "it is no regular file"
                                                                       : "there is no such file"));
  }
  return parse_hostfile(read_file(path, kMostBytes), path.string());
}

std::vector<Host> choose_hosts(std::vector<Host> hosts, const HostChoice& choice) {
  if (!choice.include.empty() && !choice.exclude.empty()) {
    throw UserError(fmt::format("--include {} and --exclude {}: only one of them may be given",
                                choice.include, choice.exclude));
  }
  if (!choice.include.empty()) {
    hosts = keep(hosts, parse_choices(choice.include, hosts, "--include"));
  }
  if (!choice.exclude.empty()) {
    hosts = remove(hosts, parse_choices(choice.exclude, hosts, "--exclude"));
    if (hosts.empty()) throw UserError(fmt::format("--exclude {} leaves nothing", choice.exclude));
  }
  if (choice.most > 0 && static_cast<size_t>(choice.most) > hosts.size()) {
    throw UserError(fmt::format("{} nodes are asked for, but there are {}: {}", choice.most,
                                hosts.size(), known_names(hosts)));
  }
  if (choice.most > 0) hosts.resize(static_cast<size_t>(choice.most));
  return hosts;
}

}  // namespace skein::launch
