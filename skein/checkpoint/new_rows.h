// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A model with more rows (of its vocabulary) than its files have.
//
// A row that no file holds becomes the mean of those that are there, formed in fp64 and rounded to
// fp32: a new token begins as no token in particular, and its logit is no outlier.

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>

#include "skein/checkpoint/reader.h"

namespace skein::checkpoint {

struct NewRows {
  int64_t there = 0, wanted = 0;
  std::set<std::string, std::less<>> tensors{};  // that grow, by their names in the files
};

// As Reader::load() does it; those tensors have `there` rows in the files. The slices
// lie anywhere: a rank reads the rows that it averages, and none where it has no new one.
void load_with_new_rows(const Reader& reader, std::span<tensor::TensorSlice> slices,
                        const LoadOptions& options, const NewRows& rows);

}  // namespace skein::checkpoint
