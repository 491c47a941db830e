// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "skein/core/folder.h"
#include "skein/core/json.h"
#include "skein/core/system_failure.h"

namespace skein::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kLimits{.bytes = uint64_t{64} << 20, .depth = 6};
constexpr std::string_view kFormatName = "skein run";
constexpr uint64_t kVersion = 1;  // stored on disk: a reader refuses others

// Relative, and it stays below the folder whatever it is joined to.
bool is_name_below(std::string_view name) {
  while (true) {
    const auto slash = name.find('/');
    if (!is_plain_name(name.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

std::vector<std::string> parse_names(const Json& json) {
  auto names = json.get<std::vector<std::string>>();
  for (const auto& name : names) {
    if (!is_name_below(name)) throw IoError(fmt::format("'{}' is no name below the folder", name));
  }
  return names;
}

Start parse_start(const Json& json) {
  Start start{.token = json.at("token").get<std::string>(),
              .asked = json.at("asked").get<std::string>(),
              .began_at = json.at("began_at").get<std::string>()};
  const auto& step = json.at("step");
  if (step.is_null()) return start;
  if (!step.is_number_unsigned() || step.get<uint64_t>() > INT64_MAX) {
    throw IoError(fmt::format("{} is no step", step.dump()));
  }
  start.step = step.get<int64_t>();
  return start;
}

// The words become part of a configuration: no others than a ladder writes.
void check_given_up(const std::string& words) {
  static constexpr std::string_view kKeys[] = {"per_device_train_batch_size",
                                               "gradient_accumulation_steps",
                                               "gradient_checkpointing",
                                               "distributed_strategy",
                                               "offload_optimizer",
                                               "offload_param",
                                               "offload_ratio"};
  std::istringstream list(words);
  for (std::string word; list >> word;) {
    if (std::ranges::find(kKeys, word.substr(0, word.find('='))) == std::end(kKeys)) {
      throw IoError(fmt::format("given_up has '{}', which no run gives up", word.substr(0, 80)));
    }
  }
}

int64_t parse_count(const Json& json) {
  if (!json.is_number_integer() || json.get<int64_t>() < 1) {
    throw IoError("given_up has a count that is no whole number above 0");
  }
  return json.get<int64_t>();
}

GivenUp parse_given_up(const Json& json) {
  GivenUp given{.words = json.at("words").get<std::string>(),
                .ranks = parse_count(json.at("ranks")),
                .rows = parse_count(json.at("rows"))};
  check_given_up(given.words);
  return given;
}

// JSON holds no bytes that are not UTF-8.
std::string storable(const std::string& text) {
  try {
    Json(text).dump();
    return text;
  } catch (const Json::exception&) {
    std::string escaped;
    for (const unsigned char byte : text) {
      escaped +=
          byte < 0x80 ? std::string(1, static_cast<char>(byte)) : fmt::format("%{:02X}", byte);
    }
    return escaped;
  }
}

bool is_same_start(std::string_view a, std::string_view b) {
  return a.substr(0, a.find('-')) == b.substr(0, b.find('-'));
}

void check_version(const Json& json) {
  if (json.at("format") != kFormatName) throw IoError("it is not the record of a run");
  if (json.at("version") != kVersion) {
    throw IoError(fmt::format("it has version {}; this program reads version {}",
                              json.at("version").dump(), kVersion));
  }
}

}  // namespace

bool RunRecord::has_start(const std::string& token) const {
  return std::ranges::any_of(starts,
                             [&](const auto& start) { return is_same_start(start.token, token); });
}

bool RunRecord::is_being_removed(const std::string& token) const {
  return std::ranges::any_of(removing_starts,
                             [&](const auto& start) { return is_same_start(start, token); });
}

bool RunRecord::has_left(const std::string& token, int64_t step) const {
  const auto writer = std::ranges::find_if(
      starts, [&](const auto& start) { return is_same_start(start.token, token); });
  if (writer == starts.end()) return false;
  return std::any_of(writer + 1, starts.end(),
                     [&](const auto& later) { return later.step && *later.step < step; });
}

std::optional<int64_t> RunRecord::began_with(const std::string& asked) const {
  // Older programs wrote what was typed.
  const auto asks = [&](const Start& start) {
    return !start.asked.empty() && asked_name(start.asked) == asked;
  };
  for (auto start = starts.begin(); start != starts.end(); ++start) {
    if (!asks(*start)) continue;
    const int64_t step = start->step.value_or(0);
    const auto leaves = [&](const Start& later) {
      if (!later.step) return false;
      return *later.step < step || (*later.step == 0 && !asks(later));
    };
    if (std::none_of(start + 1, starts.end(), leaves)) return step;
  }
  return std::nullopt;
}

std::string asked_name(const fs::path& folder) {
  auto path = fs::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "folder/"
  std::error_code error;
  const auto parent = fs::weakly_canonical(path.parent_path(), error);
  return storable((error ? path : parent / path.filename()).string());
}

void RunRecord::add_file(const std::string& name) {
  if (std::ranges::count(files, name) == 0) files.push_back(name);
}

std::string record_text(const RunRecord& record) {
  nlohmann::ordered_json starts = nlohmann::ordered_json::array();
  for (const auto& start : record.starts) {
    starts.push_back({{"token", start.token},
                      {"step", start.step ? nlohmann::ordered_json(*start.step) : nullptr},
                      {"asked", start.asked},
                      {"began_at", start.began_at}});
  }
  nlohmann::ordered_json json = {
      {"format", kFormatName},
      {"version", kVersion},
      {"starts", starts},
      {"files", record.files},
      {"removing", {{"starts", record.removing_starts}, {"files", record.removing_files}}}};
  if (const auto& given = record.given_up) {
    json["given_up"] = {{"words", given->words}, {"ranks", given->ranks}, {"rows", given->rows}};
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunRecord parse_record(std::string_view text, std::string_view file) {
  RunRecord record;
  try {
    const Json json = parse_json(text, kLimits);
    check_version(json);
    for (const auto& start : json.at("starts")) record.starts.push_back(parse_start(start));
    record.files = parse_names(json.at("files"));
    record.removing_starts = json.at("removing").at("starts").get<std::vector<std::string>>();
    record.removing_files = parse_names(json.at("removing").at("files"));
    if (json.contains("given_up")) record.given_up = parse_given_up(json.at("given_up"));
  } catch (const std::exception& error) {
    throw IoError(fmt::format(
        "{} cannot be used: {}. It lists the starts of the run in this folder; if it is damaged, "
        "remove it: then every checkpoint in the folder counts as this run's",
        file, error.what()));
  }
  return record;
}

std::optional<RunRecord> read_record(const fs::path& output) {
  std::string text;
  try {
    try_again([&] { text = read_file(output / kRecordName, kLimits.bytes); });
  } catch (const SystemFailure& failure) {
    if (says_absent(failure.code)) return std::nullopt;
    throw;
  }
  return parse_record(text, (output / kRecordName).string());
}

void write_record(const fs::path& output, const RunRecord& record) {
  write_file_atomically(output / kRecordName, record_text(record));
}

}  // namespace skein::checkpoint
