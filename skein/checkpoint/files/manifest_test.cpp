// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/manifest.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

// Stage 3: a rank has a slice of every weight and of three states of it.
TEST(Manifest, HoldsSeventyBillionParametersOnAThousandRanks) {
  constexpr uint64_t kRanks = 1000, kTensors = 723, kStates = 4, kParameters = 70'000'000'000;
  constexpr uint64_t kFileBytes = kParameters * (2 + 12);
  const auto line = fmt::format("      [{0}, {0}, \"{1:032}\"],\n", kFileBytes, 0);
  const uint64_t ranges = kRanks * kTensors * kStates + kFileBytes / kMaxRangeBytes;
  EXPECT_LT(ranges * line.size(), manifest_limit(kFileBytes));
}

Manifest small_manifest() {
  return {.step = 7,
          .run = "run \"1\"",
          .saved_at = "2026-01-31T12:00:00Z",
          .conditions = {.size = 2, .stage = 3, .device = "CPU", .binary = "b"},
          .files = {{"b.json", 3, {{2, 3, digest("c")}, {0, 2, digest("ab")}}}, {"a", 0, {}}}};
}

// One file of version 1, kept for ever: a later program must still read it. Its digests were made
// with the Python package xxhash, not with this code.
constexpr std::string_view kVersion1 = R"({
  "format": "skein checkpoint",
  "version": 1,
  "step": 7,
  "run": "run \"1\"",
  "saved_at": "2026-01-31T12:00:00Z",
  "world": {"size": 2, "stage": 3, "tier": "T1", "threads": 1, "device": "CPU", "binary": "b"},
  "files": [
    {"name": "a", "size": 0, "ranges": []},
    {"name": "b.json", "size": 3, "ranges": [
      [0, 2, "89c65ebc828eebaca873719c24d5735c"],
      [2, 3, "12d8bdd17f74de858c40219a46b9f81b"]
    ]}
  ],
  "digest": "b1b84397e9a1755b50454d4e4dc45a91"
}
)";

TEST(Manifest, TextOfVersion1IsFrozen) { EXPECT_EQ(manifest_text(small_manifest()), kVersion1); }

TEST(Manifest, TextIsReadBack) {
  const auto manifest = parse_manifest(kVersion1, "manifest.json");
  EXPECT_EQ(manifest.step, 7U);
  EXPECT_EQ(manifest.conditions.stage, 3U);
  EXPECT_EQ(manifest.files.at(1).ranges.at(1).end, 3U);
  EXPECT_EQ(manifest_text(manifest), kVersion1);
}

TEST(Manifest, EveryFlippedBitAndEveryTruncationIsRefused) {
  for (size_t i = 0; i < kVersion1.size() * 8; ++i) {
    std::string text(kVersion1);
    text[i / 8] = static_cast<char>(text[i / 8] ^ (1 << (i % 8)));
    EXPECT_THROW(parse_manifest(text, "m"), IoError) << "bit " << i;
  }
  for (size_t length = 0; length < kVersion1.size(); ++length) {
    EXPECT_THROW(parse_manifest(kVersion1.substr(0, length), "m"), IoError) << length;
  }
}

TEST(Manifest, AnotherVersionIsNamed) {
  std::string text(kVersion1);
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 9");
  EXPECT_PRED2(contains, refusal<IoError>([&] { parse_manifest(text, "m"); }), "version 9");
}

// One file of version 2, kept for ever like that of version 1.
constexpr std::string_view kVersion2 = R"({
  "format": "skein checkpoint",
  "version": 2,
  "step": 7,
  "run": "run \"1\"",
  "saved_at": "2026-01-31T12:00:00Z",
  "world": {"size": 2, "stage": 3, "tier": "T1", "threads": 1, "device": "CPU", "binary": "b"},
  "files": [
    {"name": "b.json", "size": 3, "ranges": [
      [0, 2, "89c65ebc828eebaca873719c24d5735c"],
      [2, 3, "12d8bdd17f74de858c40219a46b9f81b"]
    ]},
    {"name": "folder/a", "size": 0, "ranges": []}
  ],
  "digest": "f469cebec9e744631c7f3818dcc2f3d7"
}
)";

TEST(Manifest, NamesWithAFolderAreVersion2) {
  auto manifest = small_manifest();
  manifest.files[1].name = "folder/a";
  EXPECT_EQ(manifest_text(manifest), kVersion2);
  EXPECT_EQ(parse_manifest(kVersion2, "m").files.at(1).name, "folder/a");
  // A version that says less, or more than it must, is no writer's.
  for (const auto& [whole, other] : {std::pair(kVersion1, "2"), {kVersion2, "1"}}) {
    auto text = std::string(whole.substr(0, whole.find("  \"digest\"")));
    text.replace(text.find("\"version\": ") + 11, 1, other);
    text += fmt::format("  \"digest\": \"{}\"\n}}\n", digest(text));
    EXPECT_THROW(parse_manifest(text, "m"), IoError) << other;
  }
}

TEST(Manifest, NamesThatLeaveTheFolderOrGoDeeperAreRefused) {
  for (const char* name : {"../a", "..", "/a", "folder/", "/", "", ".", "a//b", "folder/../a",
                           "./a", "folder/.", "a/b/c"}) {
    auto manifest = small_manifest();
    manifest.files[1].name = name;
    EXPECT_THROW(manifest_text(manifest), IoError) << name;
  }
}

TEST(Manifest, UncoveredAndOverlappingBytesAreRefused) {
  auto manifest = small_manifest();
  manifest.files[0].ranges.pop_back();
  EXPECT_THROW(manifest_text(manifest), IoError);
  manifest = small_manifest();
  manifest.files[0].ranges.push_back(manifest.files[0].ranges[0]);
  EXPECT_THROW(manifest_text(manifest), IoError);
}

TEST(Manifest, TierHoldsOnlyUnderTheSameConditions) {
  const RunConditions saved = {.size = 2, .stage = 1, .device = "CPU", .binary = "b"};
  EXPECT_EQ(resume_tier(saved, saved), "T1");
  auto now = saved;
  now.threads = 2;
  EXPECT_EQ(resume_tier(saved, now), "T2");
  EXPECT_FALSE(current_conditions(1, 0, 1).binary.empty());
}

}  // namespace
}  // namespace skein::checkpoint
