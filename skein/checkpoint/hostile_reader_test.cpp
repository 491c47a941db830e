// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A file that changes between its check and its reading.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/checkpoint/reader.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

using HostileReader = TemporaryFolder;

TEST_F(HostileReader, ATruncatedShardIsAnErrorAndNoZeros) {
  const auto layout = lay_out_files("model", {{"w", DType::kF32, {3000}}});
  write_file_atomically(folder_ / layout.files[0].name,
                        layout.files[0].header +
                            std::string(layout.files[0].size - layout.files[0].header.size(), 'x'));
  const Reader reader(folder_);
  fs::resize_file(folder_ / layout.files[0].name, 8000);
  auto data = at::zeros({3000});
  std::vector<tensor::TensorSlice> slices{
      {.name = "w", .shape = {3000}, .dtype = at::kFloat, .begin = 0, .end = 3000, .data = data}};
  EXPECT_THROW(reader.load(slices), IoError);
}

}  // namespace
}  // namespace skein::checkpoint
