// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/new_rows.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/tensor/dtype.h"

namespace skein::checkpoint {
namespace {

// Two rows in the files, four in the model; another tensor happens to have four in both.
class NewRowsTest : public TemporaryFolder {
 protected:
  NewRowsTest() {
    const std::vector<TensorEntry> entries = {{"embed", DType::kF32, {2, 2}},
                                              {"other", DType::kF32, {4, 2}}};
    const auto layout = lay_out_files("model", entries);
    std::string bytes = layout.files[0].header;
    for (const auto& entry : entries) {
      const auto data = at::tensor({1.0F, 2.0F, 4.0F, 8.0F, 16.0F, 32.0F, 64.0F, 128.0F})
                            .narrow(0, 0, static_cast<int64_t>(2 * entry.shape[0]));
      bytes.append(static_cast<const char*>(data.data_ptr()), data.nbytes());
    }
    write("model.safetensors", bytes);
  }

  tensor::TensorSlice slice(const std::string& name, int64_t rows, int64_t begin, int64_t end) {
    return {name, {rows, 2}, at::kFloat, begin, end, at::zeros({end - begin})};
  }
  void load(std::vector<tensor::TensorSlice> slices) {
    const LoadOptions options{
        .tensors = {{"embed", DType::kF32, {4, 2}}, {"other", DType::kF32, {4, 2}}}};
    load_with_new_rows(Reader(folder_), slices, options,
                       {.there = 2, .wanted = 4, .tensors = {"embed"}});
  }
};

TEST_F(NewRowsTest, AreTheMeanOfTheOthers) {
  const auto whole = at::tensor({1.0F, 2.0F, 4.0F, 8.0F, 2.5F, 5.0F, 2.5F, 5.0F});
  for (int64_t begin = 0; begin < 8; ++begin) {
    for (int64_t end = begin + 1; end <= 8; ++end) {
      const auto part = slice("embed", 4, begin, end), other = slice("other", 4, 3, 6);
      load({part, other});
      EXPECT_TRUE(at::equal(part.data, whole.narrow(0, begin, end - begin))) << begin << end;
      EXPECT_TRUE(at::equal(other.data, at::tensor({8.0F, 16.0F, 32.0F})));
    }
  }
}

TEST_F(NewRowsTest, OtherShapesAreRefusedAsEver) {
  EXPECT_THROW(load({slice("other", 3, 0, 2)}), UserError);
  write("model.safetensors", "");
  EXPECT_THROW(load({slice("embed", 4, 0, 2)}), IoError);
}

}  // namespace
}  // namespace skein::checkpoint
