// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Model folders and checkpoints that somebody else has made, with intent: refused with an IoError
// that names the file, at a bounded cost, and nothing outside the folder is touched. What the
// header parser alone refuses is in safetensors_test.cpp.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/files/manifest.h"
#include "skein/checkpoint/files/model_files.h"
#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/hash.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

std::string with_length(uint64_t length, const std::string& rest) {
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + rest;
}

std::string tensor_file(const std::string& json, size_t data_bytes) {
  return with_length(json.size(), json + std::string(data_bytes, 'x'));
}

// Peak resident memory in KiB since the last reset.
int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  }
  return 0;
}
bool reset_peak_memory() {
  std::ofstream clear("/proc/self/clear_refs");
  return static_cast<bool>(clear << 5 << std::flush);
}

class HostileFolder : public TemporaryFolder {
 protected:
  // Why the folder's model.safetensors is refused; empty when it is not.
  std::string refusal_of(const std::string& bytes) {
    write_file_atomically(folder_ / "model.safetensors", bytes);
    return refusal();
  }
  std::string refusal() const {
    return skein::refusal<IoError>([&] { open_model_files(folder_); });
  }
  void write_manifest(const std::string& file, uint64_t size, const std::string& content) const {
    Manifest manifest{.step = 1, .run = "r", .files = {{file, size, {}}}};
    if (size > 0) manifest.files[0].ranges = {{0, size, digest(content)}};
    write_file_atomically(folder_ / kManifestName, manifest_text(manifest));
  }
};

// X1. What Python's pickle.dumps gives for an object whose __reduce__ is (os.system, ("touch …",)).
TEST_F(HostileFolder, APickleIsRefusedByItsFirstBytesAndNotRun) {
  const auto canary = folder_ / "canary";
  const auto call = fmt::format("cposix\nsystem\n(Vtouch {}\ntR.", canary.string());
  for (const auto& bytes : {"\x80\x02" + call, "\x80\x05" + call,
                            std::string("PK\x03\x04\x00\x00\x08\x08", 8) + call}) {
    const auto why = refusal_of(bytes);
    EXPECT_NE(why.find("model.safetensors: a pickle"), std::string::npos) << why;
  }
  EXPECT_FALSE(fs::exists(canary));
  // A header of 0x0280 bytes begins with the same two bytes and is none.
  std::string json = R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  json.resize(0x0280, ' ');
  EXPECT_EQ(refusal_of(tensor_file(json, 1)), "");
}

// X2, X3. The whole way from the file, which must be named.
TEST_F(HostileFolder, ShapesAndOffsetsThatLieAreRefusedWithFileAndTensor) {
  const auto entry = [](const std::string& shape, const std::string& offsets) {
    return fmt::format(R"({{"evil":{{"dtype":"F32","shape":{},"data_offsets":{}}}}})", shape,
                       offsets);
  };
  for (const auto& shape :
       {"[4294967296,4294967296]", "[9223372036854775810,2]", "[-1,-1]", "[1e308]",
        "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0]", "[2]"}) {
    const auto why = refusal_of(tensor_file(entry(shape, "[0,4]"), 4));
    EXPECT_NE(why.find("model.safetensors: tensor 'evil'"), std::string::npos) << shape << why;
  }
  for (const auto& offsets : {"[4,0]", "[4,8]", "[0,8]", "[0,18446744073709551615]", "[1,5]",
                              "[18446744073709551612,0]", "[0,4,4]", "[0]", "[]"}) {
    EXPECT_NE(refusal_of(tensor_file(entry("[1]", offsets), 4)), "") << offsets;
  }
  EXPECT_NE(refusal_of(tensor_file(entry("[1]", "[0,4]"), 5)), "") << "trailing byte";
  EXPECT_EQ(refusal_of(tensor_file(entry("[1]", "[0,4]"), 4)), "");
}

// X4. A length or a depth that lies costs no memory.
TEST_F(HostileFolder, HeadersThatLieCostNoMemory) {
  constexpr int64_t kMostKiB = 16 << 10;
  const std::string small(4096 - 8, '{');
  const std::vector<std::string> files = {
      with_length(0, small),          with_length(7, small),
      with_length(1ULL << 63, small), with_length(~0ULL, small),
      with_length(4096 - 7, small),   tensor_file(R"({"a":)" + std::string(1 << 20, '['), 0)};
  for (const auto& bytes : files) {
    if (!reset_peak_memory()) GTEST_SKIP() << "/proc/self/clear_refs cannot be written";
    const auto before = peak_memory();
    EXPECT_NE(refusal_of(bytes), "") << bytes.size();
    EXPECT_LT(peak_memory() - before, kMostKiB) << bytes.size();
  }
  {
    const auto file = File::create(folder_ / "model.safetensors");
    file.resize(300'000'000);  // without blocks on the disk
    const uint64_t length = kMaxHeaderBytes + 1;
    file.write_at(0, std::as_bytes(std::span(&length, 1)));
  }
  ASSERT_TRUE(reset_peak_memory());
  const auto before = peak_memory();
  EXPECT_NE(refusal().find("limit"), std::string::npos);
  EXPECT_LT(peak_memory() - before, kMostKiB);
}

// X5. Files are read, not mapped: one that shrinks under the reader is an error, not a SIGBUS.
TEST_F(HostileFolder, AFileThatShrinksAfterItWasOpenedIsAnError) {
  ASSERT_EQ(refusal_of(tensor_file(R"({"w":{"dtype":"U8","shape":[9000],"data_offsets":[0,9000]}})",
                                   9000)),
            "");
  const auto model = open_model_files(folder_);
  const auto& stored = model.tensors.at("w");
  fs::resize_file(folder_ / "model.safetensors", 5000);
  std::vector<std::byte> bytes(9000);
  const auto message = skein::refusal<IoError>(
      [&] { stored.file->file.read_at(stored.file->header.data_begin, bytes); });
  EXPECT_PRED2(contains, message, "model.safetensors ends at byte 5000");
}

// X6. Names in a manifest lead out no more than those in an index (folder_test.cpp) do, and what is
// not a regular file is not waited for.
TEST_F(HostileFolder, AManifestCannotNameWhatIsNotAFileOfItsFolder) {
  const auto outside = folder_.string() + "-outside";
  write_file_atomically(outside, "secret");
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  fs::create_symlink(outside, folder_ / "link");
  fs::create_symlink("/dev/zero", folder_ / "device");
  fs::create_directories(folder_ / "folder");
  fs::create_directory_symlink(folder_.parent_path(), folder_ / "up");
  const auto through = "up/" + fs::path(outside).filename().string();
  for (const std::string& name :
       {std::string("fifo"), std::string("link"), std::string("device"), std::string("folder"),
        std::string("absent"), std::string("folder/absent"), through}) {
    write_manifest(name, 6, "secret");
    const auto problems = verify(folder_);
    ASSERT_EQ(problems.size(), 1U) << name;
    EXPECT_EQ(problems[0].file, name);
  }
  for (const std::string& name : {std::string("../x"), outside, std::string("a/b/c"),
                                  std::string("folder/../x"), std::string("folder/")}) {
    EXPECT_THROW(write_manifest(name, 0, ""), IoError) << name;
  }
  fs::remove(folder_ / kManifestName);
  ASSERT_EQ(::mkfifo((folder_ / kManifestName).c_str(), 0600), 0);
  EXPECT_EQ(verify(folder_).size(), 1U);
  fs::remove(outside);
}

// A size that lies costs no memory either: digests are taken over bounded pieces.
TEST_F(HostileFolder, AManifestOfAHugeFileIsRefusedByTheFilesSize) {
  write_file_atomically(folder_ / "model.safetensors", "tiny");
  Manifest manifest{.step = 1, .run = "r", .files = {{"model.safetensors", 0, {}}}};
  for (uint64_t begin = 0; begin < 64 * kMaxRangeBytes; begin += kMaxRangeBytes) {
    manifest.files[0].ranges.push_back({begin, begin + kMaxRangeBytes, "d"});
    manifest.files[0].size = begin + kMaxRangeBytes;
  }
  write_file_atomically(folder_ / kManifestName, manifest_text(manifest));
  const auto problems = verify(folder_);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].text.find("it has 4 bytes"), std::string::npos) << problems[0].text;
}

// The numbers of a manifest are whole: a float would be converted without a word.
TEST_F(HostileFolder, NumbersOfAManifestAreCounts) {
  const auto text = manifest_text({.step = 7, .run = "r"});
  for (const std::string number : {"7.0", "7e0", "1e308", "-7", "\"7\"", "null"}) {
    auto changed = text;
    changed.replace(changed.find("\"step\": 7") + 8, 1, number);
    EXPECT_THROW(parse_manifest(changed, "m"), IoError) << number;
  }
}

}  // namespace
}  // namespace skein::checkpoint
