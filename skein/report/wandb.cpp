// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/wandb.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <ctime>
#include <random>
#include <span>

#include "skein/core/error.h"
#include "skein/core/host.h"
#include "skein/core/json.h"
#include "skein/report/checksum.h"
#include "skein/report/host.h"

namespace skein::report {
namespace {

// Field numbers of W&B's wandb_internal.proto; names as there.
namespace record {
enum { kNum = 1, kHistory = 2, kSummary = 3, kMetric = 12, kRun = 17, kExit = 18, kHeader = 21 };
}
namespace run {
enum {
  kId = 1,
  kEntity = 2,
  kProject = 3,
  kConfig = 4,
  kGroup = 6,
  kJobType = 7,
  kName = 8,
  kNotes = 9,
  kTags = 10,
  kHost = 13,
  kStartTime = 17,
  kResumed = 18
};
}
namespace item {
enum { kKey = 1, kNestedKey = 2, kValueJson = 16 };
}
namespace metric {
enum { kName = 1, kGlobName = 2, kStepMetric = 4, kOptions = 6 };
enum { kStepSync = 1, kDefined = 3 };
}  // namespace metric
constexpr int kItems = 1;  // of config, history and summary alike
constexpr int kHistoryStep = 2;
constexpr int kExitCode = 1, kExitRuntime = 2;
constexpr int kVersionInfo = 1, kProducer = 1, kMinConsumer = 2;

// A file is cut into blocks so that a reader can find its feet again after damage. A record is cut
// into chunks that never cross a block's end.
constexpr size_t kBlock = 32768;
constexpr size_t kChunkHeader = 7;  // checksum, length, kind
enum ChunkKind : char { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

ChunkKind kind_of(bool is_first, bool is_last) {
  if (is_first) return is_last ? kFull : kFirst;
  return is_last ? kLast : kMiddle;
}

// W&B writes and reads the three words that JSON lacks. It takes `_step` only without a decimal
// point, and would number the records itself.
std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  if (value == std::trunc(value) && std::abs(value) < 0x1p53) return fmt::format("{:.0f}", value);
  return nlohmann::json(value).dump();
}

struct ToJson {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(double value) const { return json_number(value); }
  std::string operator()(const std::string& value) const {
    return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
};

WireMessage config_record(const Hparams& config) {
  WireMessage out;
  for (const auto& [key, value] : config) {
    out.message(
        kItems,
        WireMessage().text(item::kKey, key).text(item::kValueJson, std::visit(ToJson{}, value)));
  }
  return out;
}

// A name with dots or slashes stays one name: it is a path of length one.
WireMessage number_item(std::string_view name, double value) {
  return WireMessage().text(item::kNestedKey, name).text(item::kValueJson, json_number(value));
}

WireMessage timestamp(std::chrono::system_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  return WireMessage()
      .integer(1, seconds.count())
      .integer(2, std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count());
}

std::string new_id() {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::uniform_int_distribution<size_t> pick(0, letters.size() - 1);
  std::string id(8, ' ');
  for (char& c : id) c = letters[pick(random)];
  return id;
}

// The name and the key that wandb itself uses to find a run again.
fs::path memory_of(const fs::path& output) { return output / "wandb" / "wandb-resume.json"; }

// It becomes part of file names and of addresses.
bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= 128 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

std::string remembered_id(const fs::path& memory) {
  if (!file_exists(memory)) return "";
  const auto saved = json_if_valid(read_file(memory, 4096));
  if (!saved || !saved->is_object()) return "";
  const auto id = saved->find("run_id");
  return id != saved->end() && id->is_string() ? id->get<std::string>() : "";
}

std::string choose_id(const WandbOptions& options) {
  if (const auto id = environment("WANDB_RUN_ID"); !id.empty()) {
    if (is_id(id)) return id;
    throw UserError(fmt::format(
        "WANDB_RUN_ID is '{}': a run's id has letters, digits, '-', '_' and '.' only", id));
  }
  if (options.resume_step) {
    if (const auto id = remembered_id(memory_of(options.output)); is_id(id)) return id;
  }
  return new_id();
}

std::string folder_name(std::time_t start, const std::string& id) {
  std::tm parts{};
  localtime_r(&start, &parts);
  return fmt::format("offline-run-{:04}{:02}{:02}_{:02}{:02}{:02}-{}", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     id);
}

fs::path free_name(const fs::path& parent, const std::string& id) {
  std::time_t start = std::time(nullptr);
  while (file_exists(parent / folder_name(start, id))) ++start;  // continued within a second
  return parent / folder_name(start, id);
}

}  // namespace

WandbRun::WandbRun(const WandbOptions& options) : id_(choose_id(options)) {
  const fs::path parent = fs::path(environment("WANDB_DIR", options.output.string())) / "wandb";
  const auto memory = memory_of(options.output);
  folder_ = free_name(parent, id_);
  options.announce({folder_, parent / "latest-run", memory});
  make_directories(folder_ / "files");
  replace_symlink(parent / "latest-run", folder_.filename());
  make_directories(memory.parent_path());
  write_file_atomically(memory, nlohmann::json{{"run_id", id_}}.dump() + "\n");

  file_ = File::create(folder_ / fmt::format("run-{}.wandb", id_));
  std::string header = ":W&B";
  append_little_endian(header, 0xBEE1, 2);
  append_little_endian(header, 0, 1);  // version of the layout
  file_.write_at(0, std::as_bytes(std::span(header)));
  size_ = header.size();

  const auto version = WireMessage().text(kProducer, "skein").text(kMinConsumer, "0.18.0");
  write_record(record::kHeader, WireMessage().message(kVersionInfo, version));
  write_run(options);
  write_metrics();
}

void WandbRun::write_run(const WandbOptions& options) {
  WireMessage out;
  const auto add = [&out](int field, const std::string& value) {
    if (!value.empty()) out.text(field, value);
  };
  add(run::kId, id_);
  add(run::kEntity, environment("WANDB_ENTITY"));
  add(run::kProject, environment("WANDB_PROJECT", "skein"));
  out.message(run::kConfig, config_record(options.config));
  add(run::kGroup, environment("WANDB_RUN_GROUP"));
  add(run::kJobType, environment("WANDB_JOB_TYPE"));
  add(run::kName, options.run_name.empty() ? environment("WANDB_NAME") : options.run_name);
  add(run::kNotes, environment("WANDB_NOTES"));
  const auto tags = environment("WANDB_TAGS");
  for (size_t begin = 0; begin < tags.size();) {
    const auto end = std::min(tags.find(',', begin), tags.size());
    add(run::kTags, tags.substr(begin, end - begin));
    begin = end + 1;
  }
  add(run::kHost, host_name());
  out.message(run::kStartTime, timestamp(std::chrono::system_clock::now()));
  if (options.resume_step) out.integer(run::kResumed, 1);
  write_record(record::kRun, out);
}

// Charts get the step of training as their axis: W&B counts `_step` up by itself when a training
// and an evaluation record share a step.
void WandbRun::write_metrics() {
  write_record(record::kMetric,
               WireMessage()
                   .text(metric::kName, kWandbStepName)
                   .message(metric::kOptions, WireMessage().integer(metric::kDefined, 1)));
  const auto options = WireMessage().integer(metric::kStepSync, 1).integer(metric::kDefined, 1);
  write_record(record::kMetric, WireMessage()
                                    .text(metric::kGlobName, "*")
                                    .text(metric::kStepMetric, kWandbStepName)
                                    .message(metric::kOptions, options));
}

void WandbRun::history(int64_t step, const Numbers& values) {
  Numbers all = values;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  all.emplace_back(kWandbStepName, static_cast<double>(step));
  all.emplace_back("_timestamp", std::chrono::duration<double>(now).count());
  all.emplace_back("_runtime", runtime());
  all.emplace_back("_step", static_cast<double>(step));

  WireMessage items;  // history and summary write theirs alike
  for (const auto& [name, value] : all) items.message(kItems, number_item(name, value));
  write_record(record::kSummary, items);
  write_record(record::kHistory, items.message(kHistoryStep, WireMessage().integer(1, step)));
}

void WandbRun::finish() {
  write_record(
      record::kExit,
      WireMessage().integer(kExitCode, 0).integer(kExitRuntime, static_cast<int64_t>(runtime())));
  file_.sync();
}

void WandbRun::write_record(int field, const WireMessage& content) {
  write_chunks(WireMessage().integer(record::kNum, ++num_records_).message(field, content).bytes());
}

void WandbRun::write_chunks(std::string_view record) {
  std::string out;
  for (bool is_first = true; is_first || !record.empty(); is_first = false) {
    const size_t left_in_block = kBlock - (size_ + out.size()) % kBlock;
    if (left_in_block < kChunkHeader) out.append(left_in_block, '\0');
    const size_t room = left_in_block < kChunkHeader ? kBlock : left_in_block;
    const auto data = record.substr(0, room - kChunkHeader);
    record.remove_prefix(data.size());
    const std::string kind(1, kind_of(is_first, record.empty()));
    append_little_endian(out, crc32(kind + std::string(data)), 4);
    append_little_endian(out, data.size(), 2);
    out += kind;
    out += data;
  }
  file_.write_at(size_, std::as_bytes(std::span(out)));
  size_ += out.size();
}

double WandbRun::runtime() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

bool wandb_is_disabled() {
  const auto disabled = environment("WANDB_DISABLED");
  return environment("WANDB_MODE") == "disabled" || disabled == "true" || disabled == "1" ||
         disabled == "True";
}

}  // namespace skein::report
