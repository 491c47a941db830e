// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The records of a run: kept in memory by every rank, and by one of them in trainer_log.jsonl, a
// JSON object per line.
//
// A disk that refuses a record does not end the run: there is one warning, and the file is made
// whole with the first record, or at the end, that the disk takes. Not thread-safe.

#include <functional>
#include <nlohmann/json.hpp>

#include "skein/core/file.h"
#include "skein/report/hparams.h"

namespace skein::report {

inline constexpr const char* kRecordLogName = "trainer_log.jsonl";

class RecordLog {
 public:
  struct Options {
    fs::path file;                     // empty: the records are kept in memory alone
    std::function<void()> fence = {};  // throws CommError when the file is another run's by now
  };

  explicit RecordLog(Options options);

  void add(nlohmann::ordered_json record);
  // A run that is continued: these are its records so far. Throws IoError.
  void replace(nlohmann::ordered_json records);
  // Writes what the disk has refused, if it can.
  void finish();

  const nlohmann::ordered_json& records() const { return records_; }  // an array

 private:
  void append_last();
  void catch_up();
  void write_all() const;

  Options options_;
  nlohmann::ordered_json records_ = nlohmann::ordered_json::array();
  bool is_behind_ = false;  // a write has failed: the file lacks records
};

// Tells the records of such a file in their order. Lines that are none are passed over: one that a
// crash has cut, what others wrote.
void each_record(const fs::path& file,
                 const std::function<void(int64_t, const nlohmann::ordered_json&)>& tell);

// What reporters are told of a record: all its numbers but the step.
Numbers numbers_of(const nlohmann::ordered_json& record);

}  // namespace skein::report
