// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/record_log.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>

#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/testing.h"

namespace skein::report {
namespace {

using RecordLogTest = TemporaryFolder;

// A disk that takes no more bytes while it is full.
class FullDisk : public FileSystem {
 public:
  ssize_t write(int descriptor, std::span<const std::byte> bytes, uint64_t offset) override {
    if (!full) return FileSystem::write(descriptor, bytes, offset);
    errno = ENOSPC;
    return -1;
  }
  void pause(std::chrono::milliseconds) override {}

  bool full = true;
};

TEST_F(RecordLogTest, ARecordIsALine) {
  const auto file = folder_ / kRecordLogName;
  RecordLog log({.file = file});
  log.add({{"step", 1}, {"loss", 2.5}});
  log.add({{"step", 2}, {"loss", std::nan("")}});  // JSON has no NaN
  EXPECT_EQ(read_file(file), "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":null}\n");
  EXPECT_EQ(log.records().size(), 2U);
}

TEST_F(RecordLogTest, RecordsOfLostStepsGo) {
  const auto file = write(kRecordLogName, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  RecordLog log({.file = file});
  log.replace(nlohmann::ordered_json::parse(R"([{"step": 1}])"));
  log.add({{"step", 2}, {"loss", 1}});
  EXPECT_EQ(read_file(file), "{\"step\":1}\n{\"step\":2,\"loss\":1}\n");
}

TEST_F(RecordLogTest, WithoutAFileRecordsAreKeptAlone) {
  RecordLog log({});
  log.replace(nlohmann::ordered_json::parse(R"([{"step": 1}])"));
  log.add({{"step", 2}});
  log.finish();
  EXPECT_EQ(log.records().dump(), R"([{"step":1},{"step":2}])");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(RecordLogTest, WhatAFullDiskRefusedFollows) {
  const auto file = folder_ / kRecordLogName;
  FullDisk disk;
  const ScopedFileSystem scope(disk);
  RecordLog log({.file = file});
  log.add({{"step", 1}});
  log.add({{"step", 2}});
  disk.full = false;
  log.add({{"step", 3}});
  EXPECT_EQ(read_file(file), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  disk.full = true;
  log.add({{"step", 4}});
  log.finish();  // still full
  EXPECT_EQ(read_file(file), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  disk.full = false;
  log.finish();
  EXPECT_EQ(read_file(file), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
}

TEST_F(RecordLogTest, AnotherRunsFileIsNotTouched) {
  bool is_ours = true;
  const auto file = folder_ / kRecordLogName;
  RecordLog log({.file = file, .fence = [&] {
                   if (!is_ours) throw CommError("another run's");
                 }});
  log.add({{"step", 1}});
  is_ours = false;
  EXPECT_THROW(log.add({{"step", 2}}), CommError);
  EXPECT_EQ(read_file(file), "{\"step\":1}\n");
}

TEST_F(RecordLogTest, DamagedLinesArePassedOver) {
  const std::string deep = std::string(1000, '[') + std::string(1000, ']');
  const auto file = write(kRecordLogName,
                          std::string("{\"step\": 1, \"loss\": 3}\n\n7\n[{\"step\": 2}]\n") +
                              "{\"step\": 2, \"loss\": \n{\"loss\": 5}\n{\"step\": null}\n" +
                              "{\"step\": \"3\"}\n{\"step\": 1e300}\n{\"step\": 1.5}\n" +
                              "{\"step\": 18446744073709551615}\n{\"step\": 3, \"step\": 4}\n" +
                              "{\"step\": 3, \"text\": \"\xff\"}\n{\"step\": 3, \"deep\": " + deep +
                              "}\n{\"step\": 3" + '\0' + "}\n{\"step\": 6, \"b\": 1, \"a\": 2}\n" +
                              "{\"step\": 7, \"lo");
  std::string told;
  each_record(file, [&](int64_t step, const nlohmann::ordered_json& record) {
    told += fmt::format("{} {}\n", step, record.dump());
  });
  EXPECT_EQ(told, "1 {\"step\":1,\"loss\":3}\n6 {\"step\":6,\"b\":1,\"a\":2}\n");
}

TEST(RecordLog, ReportersGetTheNumbers) {
  const auto numbers = numbers_of({{"step", 3}, {"loss", 2.5}, {"note", "x"}, {"lost", nullptr}});
  EXPECT_EQ(numbers, (Numbers{{"loss", 2.5}}));
}

}  // namespace
}  // namespace skein::report
