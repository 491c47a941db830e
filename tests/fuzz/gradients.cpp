// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The bytes are read as a collection.json and as a shard of one that is known. A mutated shard no
// longer has the digest that it states, so that it is also read with the right one put in:
// otherwise nothing behind that check would ever be reached.
#include <fmt/format.h>
#include <sys/mman.h>

#include "skein/checkpoint/files/safetensors.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/gradient_features/files/shard.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

namespace features = gradient_features;

features::CollectionFacts known_facts() {
  return {.dimensions = {3, 5},
          .projection_digest = digest("projection"),
          .model_digest = digest("model"),
          .data_digest = digest("data"),
          .data_files = {{11, digest("file")}},
          .num_samples = 11,
          .samples_per_block = 4,
          .batch_tokens = 64,
          .max_length = 128,
          .parameters = {"a.weight"}};
}

void read_facts(std::string_view text) try {
  const auto facts = features::parse_facts(text, "f");
  require(features::facts_text(facts) == text, "one text per collection");
  require(facts.num_blocks() > 0 && facts.dimension() > 0, "a collection has rows");
} catch (const IoError&) {
}

void read_shard(const File& file, std::string_view bytes) try {
  static const features::KnownCollection collection(known_facts());
  file.resize(0);
  file.write_at(0, std::as_bytes(std::span(bytes)));
  const auto block = features::read_shard(file, "f", collection);
  require(block.rows.size() == block.samples.size() * 5, "a row for each sample");
  require(block.samples.size() + block.skipped.size() ==
              static_cast<size_t>(block.range.last - block.range.first),
          "all samples of the block");
  for (const auto sample : block.samples) {
    require(sample >= block.range.first && sample < block.range.last, "samples of the block");
  }
} catch (const IoError&) {
} catch (const features::ForeignShard&) {
}

// As docs/gradient_format.md has it.
std::string with_right_digest(const File& file, std::string_view bytes) {
  const auto header = checkpoint::read_header(file, "f");
  auto metadata = header.metadata;
  std::string lines = fmt::format("skein gradient block 1\n{}\n{}\n{}\n", metadata["block"],
                                  metadata["collection"], metadata["skipped"]);
  std::vector<checkpoint::TensorEntry> entries;
  for (const auto& tensor : header.tensors) {  // samples, then rows
    const auto content = bytes.substr(header.data_begin + tensor.begin, tensor.end - tensor.begin);
    lines += digest(content) + "\n";
    entries.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  metadata["digest"] = digest(lines);
  std::vector<checkpoint::PlacedTensor> ignored;
  return checkpoint::build_header(entries, ignored, metadata) +
         std::string(bytes.substr(header.data_begin));
}

}  // namespace

void gradients(std::string_view bytes) {
  static const File file(memfd_create("fuzz", MFD_CLOEXEC));
  read_facts(bytes);
  read_shard(file, bytes);
  try {
    read_shard(file, with_right_digest(file, bytes));
  } catch (const IoError&) {
  }
}

}  // namespace skein::fuzz
