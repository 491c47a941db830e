// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/record_log.h"

#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/json.h"
#include "skein/core/log.h"

namespace skein::report {

RecordLog::RecordLog(Options options) : options_(std::move(options)) {}

void RecordLog::add(nlohmann::ordered_json record) {
  records_.push_back(std::move(record));
  if (options_.file.empty()) return;
  if (is_behind_) return catch_up();
  try {
    append_last();
  } catch (const IoError& error) {
    log_warning("{}; the run goes on, and the file follows when it can", error.what());
    is_behind_ = true;
  }
}

void RecordLog::append_last() {
  if (options_.fence) options_.fence();
  const auto log = File::open_or_create(options_.file);
  const auto line = records_.back().dump() + "\n";
  log.write_at(log.size(), std::as_bytes(std::span(line)));
}

void RecordLog::catch_up() {
  try {
    if (options_.fence) options_.fence();
    write_all();
    is_behind_ = false;
  } catch (const IoError&) {
    // Told when it began.
  }
}

void RecordLog::write_all() const {
  std::string text;
  for (const auto& record : records_) text += record.dump() + "\n";
  write_file_atomically(options_.file, text);
}

void RecordLog::replace(nlohmann::ordered_json records) {
  records_ = std::move(records);
  if (!options_.file.empty()) write_all();
}

void RecordLog::finish() {
  if (is_behind_) catch_up();
}

void each_record(const fs::path& file,
                 const std::function<void(int64_t, const nlohmann::ordered_json&)>& tell) {
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    const auto record = ordered_json_if_valid(line);
    if (!record || !record->contains("step")) continue;
    if (const auto step = whole_number(record->at("step"))) tell(*step, *record);
  }
}

Numbers numbers_of(const nlohmann::ordered_json& record) {
  Numbers numbers;
  for (const auto& [name, value] : record.items()) {
    if (name != "step" && value.is_number()) numbers.emplace_back(name, value.get<double>());
  }
  return numbers;
}

}  // namespace skein::report
