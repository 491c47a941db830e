// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/hash.h"
#include "skein/core/json.h"

namespace skein::checkpoint {
namespace {

using Json = nlohmann::json;
// Whoever has read the text has asked manifest_limit().
constexpr JsonLimits kLimits{.bytes = std::numeric_limits<uint64_t>::max(), .depth = 8};
constexpr std::string_view kFormatName = "skein checkpoint";

std::string json_string(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void check_cover(const FileRecord& file) {
  uint64_t position = 0;
  for (const auto& range : file.ranges) {
    if (range.begin != position || range.end <= range.begin ||
        range.end - range.begin > kMaxRangeBytes) {
      throw IoError(fmt::format("{}: bytes [{}, {}) were expected to begin at {}", file.name,
                                range.begin, range.end, position));
    }
    position = range.end;
  }
  if (position != file.size) {
    throw IoError(
        fmt::format("{}: no range covers bytes {} to {}", file.name, position, file.size));
  }
}

void sort_and_check(std::vector<FileRecord>& files) {
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (size_t i = 0; i < files.size(); ++i) {
    if (!is_file_name(files[i].name)) throw IoError("'" + files[i].name + "' is not a file name");
    if (i > 0 && files[i - 1].name == files[i].name)
      throw IoError(files[i].name + " is there twice");
    std::sort(files[i].ranges.begin(), files[i].ranges.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    check_cover(files[i]);
  }
}

std::string file_text(const FileRecord& file) {
  std::string text = fmt::format("    {{\"name\": {}, \"size\": {}, \"ranges\": [",
                                 json_string(file.name), file.size);
  const char* separator = "\n";
  for (const auto& range : file.ranges) {
    text += fmt::format("{}      [{}, {}, {}]", separator, range.begin, range.end,
                        json_string(range.digest));
    separator = ",\n";
  }
  return text + (file.ranges.empty() ? "]}" : "\n    ]}");
}

// Without the library's conversions: a float or a negative number is not a count.
uint64_t to_count(const Json& json) {
  if (!json.is_number_unsigned()) {
    throw IoError(fmt::format("{} is not an unsigned 64-bit integer", json.dump()));
  }
  return json.get<uint64_t>();
}

FileRecord parse_file(const Json& json) {
  FileRecord file{.name = json.at("name").get<std::string>(), .size = to_count(json.at("size"))};
  for (const auto& range : json.at("ranges")) {
    file.ranges.push_back(
        {to_count(range.at(0)), to_count(range.at(1)), range.at(2).get<std::string>()});
  }
  return file;
}

RunConditions parse_conditions(const Json& json) {
  return {.size = to_count(json.at("size")),
          .stage = to_count(json.at("stage")),
          .tier = json.at("tier").get<std::string>(),
          .threads = to_count(json.at("threads")),
          .device = json.at("device").get<std::string>(),
          .binary = json.at("binary").get<std::string>()};
}

void check_version(const Json& json, std::string_view file) {
  if (json.at("format") != kFormatName) {
    throw IoError(fmt::format("{}: not the manifest of a checkpoint", file));
  }
  if (to_count(json.at("version")) > kFormatVersion) {
    throw IoError(
        fmt::format("{}: checkpoint format version {}; this program reads versions up to {}", file,
                    json.at("version").dump(), kFormatVersion));
  }
}

uint64_t version_of(const Manifest& manifest) {
  const bool has_folders = std::ranges::any_of(manifest.files, [](const FileRecord& file) {
    return file.name.find('/') != std::string::npos;
  });
  return has_folders ? 2 : 1;
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

}  // namespace

std::string Problem::message() const {
  return tensor.empty() ? fmt::format("{}: {}", file, text)
                        : fmt::format("{}, tensor {}: {}", file, tensor, text);
}

std::string resume_tier(const RunConditions& saved, const RunConditions& now) {
  const bool same = saved.size == now.size && saved.stage == now.stage &&
                    saved.threads == now.threads && saved.device == now.device &&
                    saved.binary == now.binary;
  return same && saved.tier == "T1" && now.tier == "T1" ? "T1" : "T2";
}

RunConditions current_conditions(uint64_t size, uint64_t stage, uint64_t threads) {
  return {.size = size,
          .stage = stage,
          .threads = threads,
          .device = cpu_model(),
          .binary = digest(read_file("/proc/self/exe", uint64_t{4} << 30))};
}

std::string manifest_text(Manifest manifest) {
  sort_and_check(manifest.files);
  const auto& world = manifest.conditions;
  std::string text = fmt::format(
      "{{\n  \"format\": {},\n  \"version\": {},\n  \"step\": {},\n  \"run\": {},\n"
      "  \"saved_at\": {},\n",
      json_string(std::string(kFormatName)), version_of(manifest), manifest.step,
      json_string(manifest.run), json_string(manifest.saved_at));
  text += fmt::format(
      "  \"world\": {{\"size\": {}, \"stage\": {}, \"tier\": {}, \"threads\": {}, \"device\": {}, "
      "\"binary\": {}}},\n  \"files\": [",
      world.size, world.stage, json_string(world.tier), world.threads, json_string(world.device),
      json_string(world.binary));
  const char* separator = "\n";
  for (const auto& file : manifest.files) {
    text += separator + file_text(file);
    separator = ",\n";
  }
  text += "\n  ],\n";
  return text + fmt::format("  \"digest\": {}\n}}\n", json_string(digest(text)));
}

Manifest parse_manifest(std::string_view text, std::string_view file) {
  const Json json = parse_json<IoError>(text, file, kLimits);
  Manifest manifest;
  try {
    check_version(json, file);
    manifest.step = to_count(json.at("step"));
    manifest.run = json.at("run").get<std::string>();
    manifest.saved_at = json.at("saved_at").get<std::string>();
    manifest.conditions = parse_conditions(json.at("world"));
    for (const auto& entry : json.at("files")) manifest.files.push_back(parse_file(entry));
  } catch (const Json::exception& error) {
    throw IoError(fmt::format("{}: {}", file, error.what()));
  }
  // One comparison refuses unknown keys, other spellings of a number, and every changed byte.
  if (manifest_text(manifest) != text) {
    throw IoError(fmt::format("{}: the text does not have the digest that it states", file));
  }
  return manifest;
}

}  // namespace skein::checkpoint
