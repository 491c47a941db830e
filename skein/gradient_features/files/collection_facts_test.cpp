// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/collection_facts.h"

#include <gtest/gtest.h>

#include <functional>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/gradient_features/files/testing.h"

namespace skein::gradient_features {
namespace {

TEST(CollectionFacts, TextAndBack) {
  auto facts = small_facts();
  facts.gradient_type = GradientType::kAdam;
  facts.moments_digest = digest("moments");
  facts.output_dtype = DType::kF16;
  facts.seed = UINT64_MAX;
  facts.adam_form = AdamForm::kStandard;
  facts.max_samples = 20;
  facts.dtype = DType::kBF16;
  facts.batch_tokens = 4096;
  facts.excess_length = "drop";
  facts.data_files = {{7, digest("a")}, {0, digest("b")}, {4, digest("c")}};
  const auto text = facts_text(facts);
  const auto read = parse_facts(text, "collection.json");
  EXPECT_EQ(facts_text(read), text);
  EXPECT_FALSE(first_difference(facts, read).has_value());
  EXPECT_EQ(read.seed, UINT64_MAX);
  EXPECT_EQ(read.parameters, facts.parameters);
  EXPECT_EQ(read.dtype, DType::kBF16);
  EXPECT_EQ(read.batch_tokens, 4096);
  EXPECT_EQ(read.excess_length, "drop");
  EXPECT_EQ(read.data_files, facts.data_files);
  EXPECT_EQ(facts_digest(read), digest(text));
}

TEST(CollectionFacts, NoOtherTextIsAccepted) {
  const auto text = facts_text(small_facts());
  for (size_t place = 0; place < text.size(); ++place) {
    for (const int bit : {0, 1, 5}) {
      auto changed = text;
      changed[place] = static_cast<char>(changed[place] ^ (1 << bit));
      // A name may become another name, a number another: then the digest is another one too.
      try {
        EXPECT_NE(facts_digest(parse_facts(changed, "f")), digest(text));
      } catch (const IoError& error) {
        EXPECT_EQ(std::string(error.what()).find("f"), 0U);
      }
    }
    EXPECT_THROW(parse_facts(text.substr(0, place), "f"), IoError);
  }
  EXPECT_THROW(parse_facts(text + " ", "f"), IoError);
  EXPECT_THROW(parse_facts("[" + std::string(100000, '['), "f"), IoError);
}

TEST(CollectionFacts, FirstDifferenceNamesKeyAndBothValues) {
  const auto there = small_facts();
  auto now = small_facts();
  now.gradient_type = GradientType::kSign;
  now.num_samples = 12;
  EXPECT_EQ(first_difference(there, now), "gradient_type is \"sgd\" there and \"sign\" now");
  now.gradient_type = there.gradient_type;
  EXPECT_EQ(first_difference(there, now), "num_samples is 11 there and 12 now");
  now = there;
  now.dtype = DType::kBF16;
  EXPECT_EQ(first_difference(there, now), "dtype is \"float32\" there and \"bfloat16\" now");
  now = there;
  now.excess_length = "drop";
  EXPECT_EQ(first_difference(there, now), "excess_length is \"truncate\" there and \"drop\" now");
  now = there;
  now.parameters = {std::string(10000, 'x')};
  EXPECT_LT(first_difference(there, now)->size(), 1200U);
  now = there;
  now.data_digest = digest("other rows");
  EXPECT_PRED2(contains, *first_difference(there, now), "their tokens others");
  now.data_files.front().rows += 3;
  EXPECT_PRED2(contains, *first_difference(there, now), "the files of rows are others, ");
  now = there;
  now.model_digest = digest("other weights");
  EXPECT_FALSE(contains(*first_difference(there, now), "digest"));
}

TEST(CollectionFacts, RefusesWhatNoCollectionCanHave) {
  const std::pair<const char*, std::function<void(CollectionFacts&)>> cases[] = {
      {"names no dimension", [](auto& f) { f.dimensions = {}; }},
      {"is 0, expected 1 to", [](auto& f) { f.dimensions = {0}; }},
      {"is -5, expected", [](auto& f) { f.dimensions = {-5, 3}; }},
      {"rising", [](auto& f) { f.dimensions = {5, 3}; }},
      {"rising", [](auto& f) { f.dimensions = {5, 5}; }},
      {"only `projection: dense`", [](auto& f) { f.projection = ProjectionKind::kFactorised; }},
      {"is of sgd gradients, not of sign grads",
       [](auto& f) {
         f.projection = ProjectionKind::kFactorised;
         f.dimensions = {5};
         f.gradient_type = GradientType::kSign;
       }},
      {"output_dtype is bfloat16", [](auto& f) { f.output_dtype = DType::kBF16; }},
      {"dtype is int8", [](auto& f) { f.dtype = DType::kI8; }},
      {"excess_length is 'cut'", [](auto& f) { f.excess_length = "cut"; }},
      {"batch_tokens 0", [](auto& f) { f.batch_tokens = 0; }},
      {"0 samples", [](auto& f) { f.num_samples = 0; }},
      {"blocks of 0 samples", [](auto& f) { f.samples_per_block = 0; }},
      {"blocks of 65537 samples", [](auto& f) { f.samples_per_block = 65537; }},
      {"blocks of 2 samples, expected 1 to 1",
       [](auto& f) {
         f.dimensions = {int64_t{1} << 24};
         f.samples_per_block = 2;
       }},
      {"do not go together", [](auto& f) { f.max_samples = 3; }},
      {"11 samples of data files with 10 rows",
       [](auto& f) { f.data_files = {{4, digest("a")}, {6, digest("b")}}; }},
      {"a data file of -1 rows", [](auto& f) { f.data_files = {{-1, digest("a")}}; }},
      {"model_digest is ''", [](auto& f) { f.model_digest = ""; }},
      {"moments_digest is ''", [](auto& f) { f.gradient_type = GradientType::kAdam; }},
      {"moments_digest", [](auto& f) { f.moments_digest = digest("m"); }}};
  for (const auto& [words, change] : cases) {
    auto facts = small_facts();
    change(facts);
    EXPECT_PRED2(contains, refusal<UserError>([&] { check_facts(facts); }), words);
  }
}

TEST(CollectionFacts, SignsThatFloat16CannotHoldAreRefused) {
  constexpr int64_t kMost = 119'000'000;  // six deviations are 65,453
  auto facts = small_facts();
  facts.gradient_type = GradientType::kSign;
  check_signs_fit(facts, 100 * kMost);
  facts.output_dtype = DType::kF16;
  check_signs_fit(facts, kMost);
  EXPECT_PRED2(contains, refusal<UserError>([&] { check_signs_fit(facts, kMost + 1'000'000); }),
               "--output_dtype float32");
  facts.gradient_type = GradientType::kSgd;
  check_signs_fit(facts, 100 * kMost);
}

TEST(CollectionFacts, BlocksFitTheirBudget) {
  EXPECT_EQ(most_samples_per_block(8192), 1024);
  EXPECT_EQ(most_samples_per_block(1), kMaxSamplesPerBlock);
  EXPECT_EQ(most_samples_per_block(kMaxDimension), 1);
}

}  // namespace
}  // namespace skein::gradient_features
