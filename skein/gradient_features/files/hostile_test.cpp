// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A shard that is not exactly what was written is never accepted.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "skein/checkpoint/files/safetensors.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/gradient_features/files/shard.h"
#include "skein/gradient_features/files/testing.h"

namespace skein::gradient_features {
namespace {

class HostileShard : public TemporaryFolder {
 protected:
  HostileShard() {
    write_known(folder_, collection_.facts, 1, {{5, SkipReason::kNoTarget}});
    bytes_ = read_file(path_);
  }

  bool accepts(std::string_view bytes) const {
    file_.resize(0);
    file_.write_at(0, std::as_bytes(std::span(bytes)));
    try {
      read_shard(file_, "f", collection_);
      return true;
    } catch (const IoError&) {
    } catch (const ForeignShard&) {
    }
    return false;
  }

  const KnownCollection collection_{small_facts()};
  const fs::path path_ = folder_ / shard_name(1);
  const File file_{::memfd_create("shard", MFD_CLOEXEC)};
  std::string bytes_;
};

TEST_F(HostileShard, EveryFlippedBitIsFound) {
  EXPECT_TRUE(accepts(bytes_));
  for (size_t place = 0; place < bytes_.size(); ++place) {
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = bytes_;
      changed[place] = static_cast<char>(changed[place] ^ (1 << bit));
      EXPECT_FALSE(accepts(changed)) << place << " " << bit;
    }
  }
}

TEST_F(HostileShard, EveryTruncationIsFound) {
  for (size_t length = 0; length < bytes_.size(); ++length) {
    EXPECT_FALSE(accepts(std::string_view(bytes_).substr(0, length))) << length;
  }
  EXPECT_FALSE(accepts(bytes_ + '\0'));
}

// Shards that are consistent in themselves, as a stranger or another version could write them.
TEST_F(HostileShard, OtherHeadersAreRefused) {
  const auto parsed = checkpoint::read_header(File::open_to_read(path_), "f");
  const auto with = [&](const char* key, const std::string& value) {
    auto metadata = parsed.metadata;
    metadata[key] = value;
    std::vector<checkpoint::TensorEntry> entries;
    for (const auto& tensor : parsed.tensors) {
      entries.push_back({tensor.name, tensor.dtype, tensor.shape});
    }
    std::vector<checkpoint::PlacedTensor> placed;
    return checkpoint::build_header(entries, placed, metadata) + bytes_.substr(parsed.data_begin);
  };
  EXPECT_TRUE(accepts(with("block", "1")));
  for (const auto* block : {"0", "2", "3", "-1", "99999999999999999999", "1 ", "", "01"}) {
    EXPECT_FALSE(accepts(with("block", block))) << block;
  }
  for (const auto* skipped :
       {"", "4:no_target", "5:no_target,5:no_target", "5:because", "5", ":", "x:no_target",
        "5:no_target,", "99999999999999999999:no_target", ","}) {
    EXPECT_FALSE(accepts(with("skipped", skipped))) << skipped;
  }
  EXPECT_FALSE(accepts(with("version", "2")));
  EXPECT_FALSE(accepts(with("kind", "model")));
  EXPECT_FALSE(accepts(with("digest", digest("other"))));
  EXPECT_FALSE(accepts(with("collection", digest("other"))));
  EXPECT_FALSE(accepts(with("more", "")));
}

TEST_F(HostileShard, HugeShapesAreRefusedBeforeAnythingIsRead) {
  for (const uint64_t rows : {uint64_t{1} << 40, uint64_t{1} << 62, uint64_t{65537}}) {
    std::vector<checkpoint::PlacedTensor> placed;
    const auto parsed = checkpoint::read_header(File::open_to_read(path_), "f");
    const auto header =
        checkpoint::build_header({{"rows", DType::kF32, {rows, 0}}}, placed, parsed.metadata);
    EXPECT_FALSE(accepts(header)) << rows;
  }
}

TEST(ShardName, OnlyItsOwnForm) {
  EXPECT_EQ(shard_name(12), "block-00000012.safetensors");
  EXPECT_EQ(block_of_name("block-00000012.safetensors"), 12);
  EXPECT_EQ(block_of_name(shard_name(123456789)), 123456789);
  for (const auto* name :
       {"block-12.safetensors", "block-.safetensors", "block-0000001x.safetensors",
        "block-00000012.safetensors.tmp-0123456789abcdef", "block", "",
        "block-000000012.safetensors", "block--0000012.safetensors",
        "block-99999999999999999999.safetensors"}) {
    EXPECT_FALSE(block_of_name(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace skein::gradient_features
