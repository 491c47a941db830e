// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/reader.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/checkpoint/snapshot.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/tensor/dtype.h"

namespace skein::checkpoint {
namespace {

class ReaderTest : public TemporaryFolder {
 protected:
  // model.safetensors whose tensors all hold 1, 2, 3, …
  void write_model(const std::vector<std::pair<std::string, at::ScalarType>>& tensors) {
    std::vector<TensorEntry> entries;
    for (const auto& [name, type] : tensors)
      entries.push_back({name, tensor::dtype_of(type), {2, 2}});
    const auto layout = lay_out_files("model", entries);
    std::string bytes = layout.files[0].header;
    for (const auto& placed : layout.files[0].tensors) {
      const auto data = at::tensor({1.0, 2.0, 3.0, 4.0}).to(tensor::scalar_type_of(placed.dtype));
      bytes.append(static_cast<const char*>(data.data_ptr()), data.nbytes());
    }
    write_file_atomically(folder_ / "model.safetensors", bytes);
  }

  tensor::TensorSlice slice(const std::string& name, int64_t begin, int64_t end,
                            at::ScalarType type = at::kFloat) {
    return {name, {2, 2}, type, begin, end, at::zeros({end - begin}, at::TensorOptions(type))};
  }

  std::string why_refused(std::vector<tensor::TensorSlice> slices,
                          const LoadOptions& options = {}) {
    return refusal<UserError>([&] { Reader(folder_).load(slices, options); });
  }
};

TEST_F(ReaderTest, FloatingTypesAreConverted) {
  const auto types = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  for (const auto stored : types) {
    write_model({{"w", stored}});
    for (const auto wanted : types) {
      std::vector<tensor::TensorSlice> slices = {slice("w", 1, 4, wanted)};
      Reader(folder_).load(slices);
      EXPECT_TRUE(at::equal(slices[0].data, at::tensor({2.0, 3.0, 4.0}).to(wanted)));
    }
  }
  write_model({{"w", at::kLong}});
  EXPECT_NE(why_refused({slice("w", 0, 4)}), "");
  EXPECT_EQ(why_refused({slice("w", 0, 4, at::kLong)}), "");
}

TEST_F(ReaderTest, DifferencesComeInOneMessage) {
  write_model({{"a", at::kFloat}, {"b", at::kFloat}, {"c", at::kFloat}});
  auto wrong = slice("b", 0, 4);
  wrong.shape = {4};
  const auto text = why_refused({slice("a", 0, 2), wrong, slice("d", 0, 1)});
  EXPECT_NE(text.find("missing in the files (1): d"), std::string::npos) << text;
  EXPECT_NE(text.find("not part of the model (1): c"), std::string::npos) << text;
  EXPECT_NE(text.find("b is [2, 2], not [4]"), std::string::npos) << text;
}

TEST_F(ReaderTest, RankThatOwnsPartOfTheTensorsNamesThemAll) {
  write_model({{"a", at::kFloat}, {"b", at::kFloat}});
  const auto entry = [](const char* name) { return TensorEntry{name, DType::kF32, {2, 2}}; };
  EXPECT_NE(why_refused({slice("a", 0, 4)}), "");
  EXPECT_EQ(why_refused({slice("a", 0, 4)}, {.tensors = {entry("a"), entry("b")}}), "");
  EXPECT_NE(why_refused({slice("a", 0, 4)}, {.tensors = {entry("a"), entry("b"), entry("c")}}), "");
  // Also when the slice of the tensor that differs is another rank's.
  const auto text =
      why_refused({slice("a", 0, 4)}, {.tensors = {entry("a"), {"b", DType::kF32, {4}}}});
  EXPECT_NE(text.find("b is [2, 2], not [4]"), std::string::npos) << text;
}

TEST_F(ReaderTest, BasePrefixMayBeThereOrNot) {
  write_model({{"h.0.w", at::kFloat}});
  EXPECT_EQ(why_refused({slice("transformer.h.0.w", 0, 4)}), "");
  EXPECT_NE(why_refused({slice("model.x", 0, 4)}), "");
  EXPECT_NE(why_refused({slice("transformer.h.0.w", 0, 4)}, {.foreign = false}), "");
  write_model({{"model.norm", at::kFloat}});
  EXPECT_EQ(why_refused({slice("norm", 0, 4)}), "");
}

TEST_F(ReaderTest, MaskBuffersAndTiedHeadsArePassedOver) {
  write_model({{"h.0.attn.bias", at::kFloat},
               {"h.0.attn.masked_bias", at::kFloat},
               {"w", at::kFloat},
               {"lm_head.weight", at::kFloat}});
  EXPECT_NE(why_refused({slice("w", 0, 4)}), "");
  EXPECT_EQ(why_refused({slice("w", 0, 4)}, {.tied_head = true}), "");
}

TEST_F(ReaderTest, FileThatShrinksAfterOpeningIsAnError) {
  write_model({{"w", at::kFloat}});
  const Reader reader(folder_);
  fs::resize_file(folder_ / "model.safetensors", fs::file_size(folder_ / "model.safetensors") - 4);
  std::vector<tensor::TensorSlice> slices = {slice("w", 0, 4)};
  EXPECT_THROW(reader.load(slices), IoError);
}

}  // namespace
}  // namespace skein::checkpoint
