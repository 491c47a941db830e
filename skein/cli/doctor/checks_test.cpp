// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/doctor/checks.h"

#include <nlohmann/json.hpp>

#include "skein/core/testing.h"

namespace skein::cli {
namespace {

using Json = nlohmann::ordered_json;

Json facts(const std::vector<std::pair<std::string, uint64_t>>& gpus) {
  Json list = Json::array();
  for (const auto& [name, bytes] : gpus) {
    list.push_back({{"name", name}, {"bytes", bytes}, {"capability", "9.0"}});
  }
  return {{"libtorch", "2.11.0"}, {"cuda_runtime", "13.0"}, {"nccl", "2.28.9"}, {"gpus", list}};
}

Finding find(const std::vector<Finding>& findings, std::string_view name) {
  for (const auto& finding : findings) {
    if (finding.name == name) return finding;
  }
  ADD_FAILURE() << "no line " << name;
  return {};
}

Finding gpus_line(const Json& facts) {
  launch::Hardware hardware;
  hardware.gpus = static_cast<int>(facts["gpus"].size());
  return find(check_gpus(hardware, /*cuda_build=*/true, facts), "GPUs");
}

TEST(DoctorChecks, GpusOfDifferentModelsAreNamed) {
  const auto alike = gpus_line(facts({{"NVIDIA H200", 141 << 20}, {"NVIDIA H200", 141 << 20}}));
  EXPECT_EQ(alike.health, Health::kOk);
  const auto mixed = gpus_line(facts({{"NVIDIA H200", 141 << 20}, {"NVIDIA A100", 80 << 20}}));
  EXPECT_EQ(mixed.health, Health::kWarning);
  EXPECT_PRED2(contains, mixed.found, "NVIDIA H200 141.0 MiB");
  EXPECT_PRED2(contains, mixed.found, "NVIDIA A100 80.0 MiB");
  EXPECT_PRED2(contains, mixed.found, "of different models");
  EXPECT_PRED2(contains, mixed.advice, "CUDA_VISIBLE_DEVICES");
  // One name, two sizes: the A100 with 40 and with 80 GB.
  const auto sizes = gpus_line(facts({{"NVIDIA A100", 40 << 20}, {"NVIDIA A100", 80 << 20}}));
  EXPECT_EQ(sizes.health, Health::kWarning);
}

TEST(DoctorChecks, HostMemoryBelowTwiceTheGpusIsNamed) {
  const auto line = [](uint64_t bytes) {
    return find(check_limits({}, {}, facts({{"A", bytes}, {"A", bytes}})), "memory");
  };
  EXPECT_EQ(line(1).health, Health::kOk);
  const auto little = line(uint64_t{1} << 50);
  EXPECT_EQ(little.health, Health::kWarning);
  EXPECT_PRED2(contains, little.found, "less than twice the GPUs' 2048.0 TiB");
  EXPECT_EQ(find(check_limits({}, {}, Json()), "memory").health, Health::kOk);
}

using DiskRate = TemporaryFolder;

TEST_F(DiskRate, IsToldAndLeavesNothing) {
  Json measured;
  const auto line = check_disk_rate(folder_, measured);
  EXPECT_PRED2(contains, line.found, "writes ");
  EXPECT_PRED2(contains, line.found, folder_.string());
  EXPECT_GT(measured["read_bytes_per_second"].get<double>(), 0);
  EXPECT_LE(measured["bytes"].get<uint64_t>(), uint64_t{256} << 20);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(DiskRate, AFolderThatIsMissingIsAWarning) {
  Json measured;
  const auto line = check_disk_rate(folder_ / "none", measured);
  EXPECT_EQ(line.health, Health::kWarning);
  EXPECT_PRED2(contains, line.found, "there is no folder");
  EXPECT_TRUE(measured.is_null());
}

}  // namespace
}  // namespace skein::cli
